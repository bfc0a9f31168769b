// What a decoder computes for each row, as a paper writes it: a list of operations on values. Nothing here knows a
// kernel; models/lowering/lowering.h turns runs of operations into kernels.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/model_config.h"
#include "models/config/part.h"

namespace nodewright {

enum class OpKind : uint8_t {
  embed,           // rows of the embedding, scaled, and of the learned positions where there are such
  norm,            // over the width of a row
  product,         // with a matrix, and a bias where the matrix has one; of a normed value or of the residual itself
  route,           // the experts of a mixture that a row has, and how much each counts
  expert_product,  // with the matrices of a row's experts; of what they share, or of what each has made
  head_norm,       // over each head of queries and keys
  rotate,          // queries and keys by their positions
  append,          // keys and values to the cache
  attend,          // queries to the cache, within the layer's window
  activate,        // f(gate) * up, or f(up)
  add,             // to the residual; of what experts have made the sum, as much as each counts
  hand_out,        // the hidden states, as an output of the step
  choose,          // a token
  embed_shared,    // embed, by the rank of a team that has the token's row
  reduce,          // the sum over the ranks of a team of what each has
  shared_norm,     // head_norm over the heads of all ranks of a team
  gather,          // the logits of all ranks of a team, each of its part of the vocabulary
  shrink,          // rows to the few dimensions of their adapters, in front of the norm or product that reads the same
  expand,          // from there onto what the product of `part` has given; of gate_up the activation does so itself
};
std::string_view to_string(OpKind kind);  // "head_norm"

// A value of every row; made by one operation.
struct Value {
  int id = 0;
  bool operator==(const Value&) const = default;
};

struct Op {
  OpKind kind = OpKind::embed;
  Value out, in;
  Value to{};                     // of add: the residual; of expert_product: the experts
  Part part = Part::embedding;    // the weight, of those that have one
  Norm norm = Norm::rms;          // of norms
  Part gain = Part::embedding;    // of shrink: of the norm that stands before its matrix; embedding: none does
  int64_t cols = 0, outputs = 0;  // of a product; of expert_product, of one expert
  bool bias = false;              // of a product
  WeightLayout weights = {};      // of a product: how its matrix lies in memory
  bool gated = false;             // of an activation, and of the product before it
};

// Layers that are alike in their operations and in how their matrices lie in memory. What else differs from layer to
// layer (weights, window, frequencies) is in the model's configuration.
struct LayerKind {
  FeedForward feed_forward = FeedForward::dense;
  WeightLayouts layouts = {};
  std::vector<Op> ops;
};

// Before the layers, in layers of each kind, and after them.
struct Network {
  std::vector<Op> first, last;
  std::vector<LayerKind> kinds;
  std::vector<size_t> layers;  // [layers of all stages] the kind of each
};

// Records the operations of a network. Each function names what it computes and returns its value.
class Recorder {
 public:
  // `adapted`: rows may have adapters, each its own.
  explicit Recorder(const ModelConfig& config, bool adapted = false)
      : config_(config), adapted_(adapted), ops_(&network_.first) {}

  Value embed() {
    return record({.kind = config_.shard.is_part() ? OpKind::embed_shared : OpKind::embed, .part = Part::embedding});
  }
  // The sum over the ranks, in a part of a network; y itself in a whole one.
  Value reduce(Value y) { return config_.shard.is_part() ? record({.kind = OpKind::reduce, .in = y}) : y; }
  Value gather(Value y) { return config_.shard.is_part() ? record({.kind = OpKind::gather, .in = y}) : y; }
  Value norm(Value x, Part gain);
  Value product(Value x, Part matrix);
  Value route(Value logits) { return record({.kind = OpKind::route, .in = logits}); }
  Value expert_product(Value x, Value experts, Part matrix);
  Value head_norm(Value qkv) {
    const OpKind kind = config_.norms_heads_of_ranks() ? OpKind::shared_norm : OpKind::head_norm;
    return record({.kind = kind, .in = qkv, .part = Part::head_norms, .norm = config_.norm});
  }
  Value rotate(Value qkv) { return record({.kind = OpKind::rotate, .in = qkv}); }
  Value append(Value qkv) { return record({.kind = OpKind::append, .in = qkv}); }
  Value attend(Value qkv) { return record({.kind = OpKind::attend, .in = qkv}); }
  Value activate(Value x) { return record({.kind = OpKind::activate, .in = x, .gated = config_.gated}); }
  Value add(Value residual, Value y) { return record({.kind = OpKind::add, .in = y, .to = residual}); }
  void hand_out(Value x, Part gain) { record({.kind = OpKind::hand_out, .in = x, .part = gain, .norm = config_.norm}); }
  // Where rows have adapters; nothing elsewhere. `x`: what `matrix` multiplies, or its norm does.
  void shrink(Value x, Part matrix, Part gain);
  void expand(Part matrix) {
    if (adapted_) record({.kind = OpKind::expand, .part = matrix});
  }
  void choose(Value logits) { record({.kind = OpKind::choose, .in = logits}); }

  // What `one_layer` records of a kind of layer is recorded once and stands for all layers of that kind.
  template <class F>
  void layers(const F& one_layer) {
    network_.layers = layers_by_kind();
    for (LayerKind& kind : network_.kinds) {
      ops_ = &kind.ops, layouts_ = kind.layouts;
      one_layer(kind.feed_forward);
    }
    ops_ = &network_.last, layouts_ = {.head = config_.layouts.head};
  }

  Network take() { return std::move(network_); }

 private:
  std::vector<size_t> layers_by_kind();  // adds the kinds to the network
  Norm norm_of(Part gain) const;
  Value record(Op op) {
    op.out = {++values_};
    ops_->push_back(op);
    return op.out;
  }

  const ModelConfig& config_;
  bool adapted_;
  Network network_;
  std::vector<Op>* ops_;
  WeightLayouts layouts_;  // of the layers that are recorded; after them of the head
  int values_ = 0;
};

// The network of the configuration (models/network/decoder_network.cpp).
// `adapted`: rows may have adapters.
Network network_of(const ModelConfig& config, bool adapted = false);

// Whether the output of a block is normed before it is added to the residual.
bool has_post_norms(const Network& network);

// One line an operation: "v3 = product(v2, qkv) [768 -> 1280]".
std::string to_text(const Network& network);

}  // namespace nodewright
