#include "models/weights.h"

#include <fmt/format.h>

#include <set>
#include <string>

#include "models/json_file.h"
#include "runtime/arena.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using Part = WeightPart;
using Source = WeightSource;

constexpr uint64_t kElementBytes = sizeof(bf16);
constexpr int64_t kStrideElements = 8;  // 16 bytes of bf16, the widest load of a thread

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// ---- What goes where -------------------------------------------------------------------------------------------

// The whole buffer, range after range: embedding, six per layer in the order of LayerWeights, final norm, head.
class Image {
 public:
  Image(const Checkpoint& checkpoint, const ModelConfig& config) : checkpoint_(checkpoint), tied_(config.tied) {
    const ModelConfig& c = config;
    matrix("embedding", c.hidden, {{"model.embed_tokens.weight", c.vocab}});
    for (int64_t l = 0; l < c.layers; ++l) {
      const auto ours = [l](std::string_view what) { return fmt::format("l{}.{}", l, what); };
      const auto theirs = [l](std::string_view what) { return fmt::format("model.layers.{}.{}.weight", l, what); };
      vector(ours("attention_norm"), c.hidden, theirs("input_layernorm"));
      matrix(ours("qkv"), c.hidden,
             {{theirs("self_attn.q_proj"), c.query_width()},
              {theirs("self_attn.k_proj"), c.kv_width()},
              {theirs("self_attn.v_proj"), c.kv_width()}});
      matrix(ours("out"), c.query_width(), {{theirs("self_attn.o_proj"), c.hidden}});
      vector(ours("feed_forward_norm"), c.hidden, theirs("post_attention_layernorm"));
      interleaved(ours("gate_up"), c.hidden, c.intermediate, theirs("mlp.gate_proj"), theirs("mlp.up_proj"));
      matrix(ours("down"), c.intermediate, {{theirs("mlp.down_proj"), c.hidden}});
    }
    vector("final_norm", c.hidden, "model.norm.weight");
    if (!c.tied) matrix("head", c.hidden, {{"lm_head.weight", c.vocab}});
    refuse_unused();
  }

  const std::vector<Source>& sources() const { return sources_; }
  const std::set<const TensorInfo*>& tensors() const { return used_; }  // by name, as the checkpoint holds them
  uint64_t bytes() const { return bytes_; }

  uint64_t bytes_per_token() const {
    const Source& embedding = sources_.front();
    uint64_t bytes = embedding.row_bytes();
    for (const Source& source : sources_)
      if (tied_ || &source != &embedding) bytes += source.bytes();
    return bytes;
  }

 private:
  struct NamedRows {
    std::string tensor;
    int64_t rows;
  };

  void vector(std::string name, int64_t width, const std::string& tensor) {
    const TensorInfo& info = checkpoint_.require(tensor, {width});
    used_.insert(&info);
    add({std::move(name), 0, 1, width, width, {{&info, 1, 0, 1}}});
  }

  // The rows of the tensors one below the other.
  void matrix(std::string name, int64_t cols, const std::vector<NamedRows>& tensors) {
    Source source{std::move(name), 0, 0, cols, padded(cols), {}};
    for (const NamedRows& t : tensors) {
      source.parts.push_back({&require(t.tensor, t.rows, cols), t.rows, source.rows, 1});
      source.rows += t.rows;
    }
    add(std::move(source));
  }

  void interleaved(std::string name, int64_t cols, int64_t rows, const std::string& even, const std::string& odd) {
    add({std::move(name),
         0,
         2 * rows,
         cols,
         padded(cols),
         {{&require(even, rows, cols), rows, 0, 2}, {&require(odd, rows, cols), rows, 1, 2}}});
  }

  static int64_t padded(int64_t cols) { return (cols + kStrideElements - 1) / kStrideElements * kStrideElements; }

  const TensorInfo& require(const std::string& tensor, int64_t rows, int64_t cols) {
    const TensorInfo& info = checkpoint_.require(tensor, {rows, cols});
    used_.insert(&info);
    return info;
  }

  void add(Source source) {
    source.offset = bytes_;
    bytes_ += round_up(source.bytes(), kArenaAlignBytes);
    sources_.push_back(std::move(source));
  }

  // A tensor that nothing reads (a bias, one layer more) means that config.json describes another network.
  void refuse_unused() const {
    const TensorInfo* first = nullptr;
    size_t count = 0;
    for (const TensorInfo& tensor : checkpoint_.tensors()) {
      const bool derived = tensor.name.ends_with(".rotary_emb.inv_freq");  // old files store it; config.json gives it
      if (used_.contains(&tensor) || derived || (tied_ && tensor.name == "lm_head.weight")) continue;
      if (count++ == 0) first = &tensor;
    }
    if (first)
      throw Error({.doing = "load the weights of",
                   .object = checkpoint_.folder().string(),
                   .detail = fmt::format("{} tensors belong to no part of the network that config.json describes, the "
                                         "first is {} with shape {}",
                                         count, in_quotes(first->name), shape_text(first->shape)),
                   .advice = "check that config.json belongs to these weights"});
  }

  const Checkpoint& checkpoint_;
  bool tied_;
  std::vector<Source> sources_;
  std::set<const TensorInfo*> used_;
  uint64_t bytes_ = 0;
};

}  // namespace

WeightFootprint weight_footprint(const Checkpoint& checkpoint, const ModelConfig& config) {
  const Image image(checkpoint, config);
  return {{image.tensors().begin(), image.tensors().end()}, image.bytes(), image.bytes_per_token()};
}

DecoderWeights DecoderWeights::load(Device& device, Stream& stream, const Checkpoint& checkpoint,
                                    const ModelConfig& config, const Progress& progress, const UploadForm& form) {
  const Image image(checkpoint, config);
  DecoderWeights weights(DeviceBuffer(device, "weights", image.bytes()));
  upload_weights(device, stream, image.sources(), weights.buffer_, progress, form);

  auto source = image.sources().begin();
  const auto matrix = [&] {
    const Source& s = *source++;
    const Weight<bf16> data =
        weight_of<bf16>(weights.buffer_).subview(s.offset / kElementBytes, s.bytes() / kElementBytes);
    weights.ranges_.push_back({s.name, data.address(), s.bytes(), "weight"});
    return WeightMatrix{data, s.rows, s.cols, s.stride};
  };
  const auto vector = [&] { return matrix().data; };

  weights.embedding_ = matrix();
  for (int64_t l = 0; l < config.layers; ++l)  // braces evaluate in the order of the fields
    weights.layers_.push_back({vector(), matrix(), matrix(), vector(), matrix(), matrix()});
  weights.final_norm_ = vector();
  weights.head_ = config.tied ? weights.embedding_ : matrix();
  weights.bytes_per_token_ = image.bytes_per_token();
  return weights;
}

}  // namespace nodewright
