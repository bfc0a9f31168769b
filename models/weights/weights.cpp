#include "models/weights/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "base/json_file.h"
#include "models/config/tensor_names.h"
#include "runtime/buffers/arena.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using Part = WeightPart;
using Source = WeightSource;

constexpr uint64_t kElementBytes = sizeof(bf16);
constexpr int64_t kStrideElements = 8;  // 16 bytes of bf16, the widest load of a thread

uint64_t round_up(uint64_t value, uint64_t multiple) { return (value + multiple - 1) / multiple * multiple; }

// ---- What goes where -------------------------------------------------------------------------------------------

// The whole buffer, range after range: embedding, positions, the layers' in the order of LayerWeights, final norm,
// head.
class Image {
 public:
  Image(const Checkpoint& checkpoint, const ModelConfig& config)
      : checkpoint_(checkpoint), config_(config), names_(tensor_names(config)) {
    const ModelConfig& c = config;
    // A file saved from the network without its head leaves the prefix out.
    const std::string bare = names_.embedding + ".weight";
    if (!checkpoint.find(names_.prefix + bare) && checkpoint.find(bare)) names_.prefix.clear();
    const std::string& prefix = names_.prefix;

    matrix("embedding", c.hidden, {{prefix + names_.embedding, c.vocab}});
    if (c.learned_positions) matrix("positions", c.hidden, {{prefix + names_.positions, c.max_position}});
    for (int64_t l = 0; l < c.layers; ++l)
      layer(fmt::format("l{}.", l), fmt::format("{}{}.{}.", prefix, names_.layers, l));
    norm("final_norm", prefix, names_.final_norm);
    if (!c.tied) matrix("head", c.hidden, {{names_.head, c.vocab}});
    refuse_unused();
  }

  const std::vector<Source>& sources() const { return sources_; }
  const std::set<const TensorInfo*>& tensors() const { return used_; }  // by name, as the checkpoint holds them
  uint64_t bytes() const { return bytes_; }

  // A token reads one row of the embedding and of the positions, and all of the embedding where it is the head.
  uint64_t bytes_per_token() const {
    uint64_t bytes = sources_.front().row_bytes();
    for (const Source& source : sources_) {
      const bool embedding = &source == &sources_.front();
      if (config_.learned_positions && source.name == "positions")
        bytes += source.row_bytes();
      else if (!embedding || config_.tied)
        bytes += source.bytes();
    }
    return bytes;
  }

 private:
  struct NamedRows {
    std::string tensor;
    int64_t rows;
  };

  void layer(const std::string& ours, const std::string& theirs) {
    const ModelConfig& c = config_;
    const TensorNames& n = names_;
    norm(ours + "attention_norm", theirs, n.attention_norm);
    if (n.qkv.size() == 1)
      product(ours + "qkv", c.hidden, {{theirs + n.qkv[0], c.qkv_width()}}, c.biases.qkv);
    else
      product(
          ours + "qkv", c.hidden,
          {{theirs + n.qkv[0], c.query_width()}, {theirs + n.qkv[1], c.kv_width()}, {theirs + n.qkv[2], c.kv_width()}},
          c.biases.qkv);
    if (c.head_norm) {
      vector(ours + "q_norm", {{theirs + n.q_norm + ".weight", c.head_dim}});
      vector(ours + "k_norm", {{theirs + n.k_norm + ".weight", c.head_dim}});
    }
    product(ours + "out", c.query_width(), {{theirs + n.out, c.hidden}}, c.biases.out);
    norm(ours + "attention_post_norm", theirs, n.attention_post_norm);
    norm(ours + "feed_forward_norm", theirs, n.feed_forward_norm);
    if (c.gated)
      interleaved(ours + "gate_up", c.hidden, c.intermediate, theirs + n.gate, theirs + n.up);
    else
      product(ours + "up", c.hidden, {{theirs + n.up, c.intermediate}}, c.biases.gate_up);
    product(ours + "down", c.intermediate, {{theirs + n.down, c.hidden}}, c.biases.down);
    norm(ours + "feed_forward_post_norm", theirs, n.feed_forward_post_norm);
  }

  // `part`: the tensor's name behind the prefix; empty where the family has no such norm.
  void norm(const std::string& name, const std::string& prefix, const std::string& part) {
    if (part.empty()) return;
    vector(name, {{prefix + part + ".weight", config_.hidden}});
    if (config_.norm == Norm::layer) vector(name + ".shift", {{prefix + part + ".bias", config_.hidden}});
  }

  // A matrix of a layer, and its bias where it has one.
  void product(const std::string& name, int64_t cols, const std::vector<NamedRows>& tensors, bool bias) {
    matrix(name, cols, tensors, names_.transposed);
    if (!bias) return;
    std::vector<NamedRows> biases;
    for (const NamedRows& t : tensors) biases.push_back({t.tensor + ".bias", t.rows});
    vector(name + ".bias", biases);
  }

  // One row, the tensors one after the other.
  void vector(std::string name, const std::vector<NamedRows>& tensors) {
    // As a column, so that each part is a run of rows.
    Source source{std::move(name), 0, 0, 1, 1, {}};
    for (const NamedRows& t : tensors) {
      const TensorInfo& info = checkpoint_.require(t.tensor, {t.rows});
      used_.insert(&info);
      source.parts.push_back({&info, t.rows, source.rows, 1});
      source.rows += t.rows;
    }
    add(std::move(source));
  }

  // The rows of the tensors one below the other.
  void matrix(std::string name, int64_t cols, const std::vector<NamedRows>& tensors, bool transposed = false) {
    Source source{std::move(name), 0, 0, cols, padded(cols), {}};
    for (const NamedRows& t : tensors) {
      const TensorInfo& info = transposed ? require(t.tensor, cols, t.rows) : require(t.tensor, t.rows, cols);
      source.parts.push_back({&info, t.rows, source.rows, 1, transposed});
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
    const TensorInfo& info = checkpoint_.require(tensor + ".weight", {rows, cols});
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
      const bool derived = std::any_of(names_.unused_endings.begin(), names_.unused_endings.end(),
                                       [&](std::string_view ending) { return tensor.name.ends_with(ending); });
      const bool spare_head = config_.tied && tensor.name == names_.head + ".weight";
      if (used_.contains(&tensor) || derived || spare_head) continue;
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
  const ModelConfig& config_;
  TensorNames names_;
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
  Places placed = place(device, checkpoint, config);
  upload_weights(device, stream, placed.sources, placed.weights.range(), progress, form);
  return std::move(placed.weights);
}

DecoderWeights::Places DecoderWeights::place(Device& device, const Checkpoint& checkpoint, const ModelConfig& config) {
  const Image image(checkpoint, config);
  DecoderWeights weights(DeviceBuffer(device, "weights", image.bytes()));

  std::map<std::string_view, const Source*> sources;
  for (const Source& s : image.sources()) {
    sources.emplace(s.name, &s);
    weights.ranges_.push_back({s.name, weights.buffer_.address() + s.offset, s.bytes(), "weight"});
  }
  const auto vector = [&](const std::string& name) -> Weight<bf16> {
    const auto found = sources.find(name);
    if (found == sources.end()) return {};
    const Source& s = *found->second;
    return weight_of<bf16>(weights.buffer_).subview(s.offset / kElementBytes, s.bytes() / kElementBytes);
  };
  const auto norm = [&](const std::string& name) { return NormWeights{vector(name), vector(name + ".shift")}; };
  const auto matrix = [&](const std::string& name) -> WeightMatrix {
    const auto found = sources.find(name);
    if (found == sources.end()) return {};
    const Source& s = *found->second;
    return {vector(name), s.rows, s.cols, s.stride, vector(name + ".bias")};
  };

  weights.embedding_ = matrix("embedding");
  weights.positions_ = matrix("positions");
  for (int64_t l = 0; l < config.layers; ++l) {
    const std::string prefix = fmt::format("l{}.", l);
    weights.layers_.push_back({.attention_norm = norm(prefix + "attention_norm"),
                               .qkv = matrix(prefix + "qkv"),
                               .q_norm = vector(prefix + "q_norm"),
                               .k_norm = vector(prefix + "k_norm"),
                               .out = matrix(prefix + "out"),
                               .attention_post_norm = vector(prefix + "attention_post_norm"),
                               .feed_forward_norm = norm(prefix + "feed_forward_norm"),
                               .gate_up = matrix(prefix + (config.gated ? "gate_up" : "up")),
                               .down = matrix(prefix + "down"),
                               .feed_forward_post_norm = vector(prefix + "feed_forward_post_norm")});
  }
  weights.final_norm_ = norm("final_norm");
  weights.head_ = config.tied ? weights.embedding_ : matrix("head");

  weights.bytes_per_token_ = image.bytes_per_token();
  return {std::move(weights), image.sources()};
}

}  // namespace nodewright
