#include "examples/nanogpt/nanogpt_weights.h"

#include <fmt/format.h>

#include <cmath>

#include "examples/nanogpt/kernels/projection_shape.h"
#include "runtime/error.h"
#include "runtime/memory/arena.h"

namespace nodewright {
namespace {

// Where a tensor lies and what it is filled with: center + reach * noise.
struct Tensor {
  View<float> view;
  int64_t rows, cols, stride;  // elements
  float center, reach;
};

// SplitMix64 of (stream, index) (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", 2014), as a
// multiple of 2^-23 in [-1, 1): exact in float, and so in any language.
float noise(uint64_t stream, uint64_t index) {
  uint64_t z = stream * 0xd1342543de82ef95u + (index + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<float>(static_cast<int64_t>(z >> 40) - (int64_t{1} << 23)) * 0x1p-23f;
}

void check(const NanogptConfig& c) {
  const auto refuse = [](const char* field, const std::string& detail) {
    throw Error({.doing = "use nanoGPT config", .object = field, .detail = detail, .fault = Fault::usage});
  };
  const std::pair<const char*, int64_t> sizes[] = {
      {"layers", c.layers}, {"heads", c.heads}, {"embedding", c.embedding}, {"context", c.context}, {"vocab", c.vocab}};
  for (const auto& [field, value] : sizes)
    if (value < 1 || value > 65535) refuse(field, fmt::format("{} is outside 1 to 65535", value));
  if (c.embedding % c.heads != 0)
    refuse("heads", fmt::format("an embedding of {} cannot be dealt to {} heads", c.embedding, c.heads));
  if (c.head_dim() > 256) refuse("heads", fmt::format("a head of {} elements; at most 256", c.head_dim()));
}

}  // namespace

NanogptWeights NanogptWeights::random(Device& device, const NanogptConfig& config, uint64_t seed) {
  check(config);
  return {device, config, seed};
}

NanogptWeights::NanogptWeights(Device& device, const NanogptConfig& config, uint64_t seed)
    : config_(config), buffer_(device, "nanogpt.weights", 0) {
  const int64_t n = config.embedding;
  std::vector<Tensor> tensors;
  // The first pass measures, the second places; both in this order.
  const auto lay_out = [&](Arena& arena) {
    tensors.clear();
    layers_.clear();
    const auto take = [&](const std::string& name, int64_t rows, int64_t cols, int64_t stride, double center,
                          double reach) {
      const View<float> view = arena.take<float>(name, static_cast<uint64_t>(rows * stride), "weight");
      tensors.push_back({view, rows, cols, stride, static_cast<float>(center), static_cast<float>(reach)});
      return Weight<float>{view.data, view.count};
    };
    const auto vector = [&](const std::string& name, int64_t width, double center, double reach) {
      return take(name, 1, width, width, center, reach);
    };
    // Outputs of standard deviation `size` for inputs of standard deviation 1.
    const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols, double size) {
      const int64_t stride = ProjectionShape{.cols = cols, .weight_bytes = sizeof(float)}.stride();
      return take(name, rows, cols, stride, 0.0, size * std::sqrt(3.0 / static_cast<double>(cols)));
    };
    tokens = take("tokens", config.vocab, n, n, 0.0, 1.0);
    positions = take("positions", config.context, n, n, 0.0, 1.0);
    for (int64_t l = 0; l < config.layers; ++l) {
      const auto named = [l](const char* what) { return fmt::format("l{}.{}", l, what); };
      NanogptLayer layer;
      layer.attention_gain = vector(named("attention_gain"), n, 1.0, 0.3);
      layer.attention_shift = vector(named("attention_shift"), n, 0.0, 0.3);
      layer.qkv = matrix(named("qkv"), 3 * n, n, 1.5);
      layer.out = matrix(named("out"), n, n, 0.5);
      layer.out_bias = vector(named("out_bias"), n, 0.0, 0.3);
      layer.feed_forward_gain = vector(named("feed_forward_gain"), n, 1.0, 0.3);
      layer.feed_forward_shift = vector(named("feed_forward_shift"), n, 0.0, 0.3);
      layer.up = matrix(named("up"), config.feed_forward(), n, 1.0);
      layer.up_bias = vector(named("up_bias"), config.feed_forward(), 0.0, 0.3);
      layer.down = matrix(named("down"), n, config.feed_forward(), 0.5);
      layer.down_bias = vector(named("down_bias"), n, 0.0, 0.3);
      layers_.push_back(layer);
    }
    final_gain = vector("final_gain", n, 1.0, 0.3);
    final_shift = vector("final_shift", n, 0.0, 0.3);
    head = matrix("head", config.vocab, n, 2.0);
    head_bias = vector("head_bias", config.vocab, 0.0, 0.3);
  };
  Arena measure("nanogpt.weights", kArenaAlignBytes, uint64_t{1} << 62);
  lay_out(measure);
  buffer_ = DeviceBuffer(device, "nanogpt.weights", measure.used_bytes());
  Arena arena(buffer_);
  lay_out(arena);
  ranges_ = arena.ranges();

  for (size_t t = 0; t < tensors.size(); ++t) {
    const Tensor& tensor = tensors[t];
    std::vector<float> values(tensor.view.count, 0.0f);
    for (int64_t r = 0; r < tensor.rows; ++r)
      for (int64_t c = 0; c < tensor.cols; ++c)
        values[static_cast<size_t>(r * tensor.stride + c)] =
            tensor.center + tensor.reach * noise(seed * 1000 + t, static_cast<uint64_t>(r * tensor.cols + c));
    write_view(device, tensor.view, std::span<const float>(values), ranges_[t].name);
    parameters_ += tensor.rows * tensor.cols;
  }
  // A copy of pageable memory returns before it has arrived, and non-blocking streams do not wait for it.
  device.synchronize();
}

}  // namespace nodewright
