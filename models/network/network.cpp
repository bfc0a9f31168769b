#include "models/network/network.h"

#include <fmt/format.h>

#include <algorithm>

namespace nodewright {
namespace {

bool has_weight(OpKind kind) {
  switch (kind) {
    case OpKind::embed:
    case OpKind::embed_shared:
    case OpKind::norm:
    case OpKind::product:
    case OpKind::expert_product:
    case OpKind::head_norm:
    case OpKind::shared_norm:
    case OpKind::hand_out:
    case OpKind::shrink:
    case OpKind::expand:
      return true;
    default:
      return false;
  }
}

std::string line_of(const Op& op) {
  std::string inputs;
  const auto add = [&](const std::string& input) { inputs += (inputs.empty() ? "" : ", ") + input; };
  if (op.to.id != 0) add(fmt::format("v{}", op.to.id));
  if (op.in.id != 0) add(fmt::format("v{}", op.in.id));
  if (has_weight(op.kind)) add(std::string(to_string(op.part)));
  std::string line = fmt::format("v{} = {}({})", op.out.id, to_string(op.kind), inputs);
  if (op.kind == OpKind::expert_product) line += fmt::format(" [{} -> {}] each", op.cols, op.outputs);
  if (op.kind == OpKind::product) line += fmt::format(" [{} -> {}]{}", op.cols, op.outputs, op.bias ? " + bias" : "");
  if (op.kind == OpKind::activate && op.gated) line += " gated";
  return line + "\n";
}

std::string heading_of(const Network& network, size_t kind) {
  if (network.kinds.size() == 1) return "each layer:\n";
  const LayerKind& one = network.kinds[kind];
  const auto layers = std::ranges::count(network.layers, kind);
  if (one.layouts != WeightLayouts{})
    return fmt::format("{} of {} layers, qkv {}, out {}, gate and up {}, down {}:\n", layers, network.layers.size(),
                       name_of(one.layouts.qkv), name_of(one.layouts.out), name_of(one.layouts.gate_up),
                       name_of(one.layouts.down));
  const bool dense = one.feed_forward == FeedForward::dense;
  return fmt::format("each layer {} experts ({} of {}):\n", dense ? "without" : "with", layers, network.layers.size());
}

}  // namespace

std::string_view to_string(OpKind kind) {
  constexpr std::string_view kNames[] = {"embed",       "norm",     "product", "route",        "expert_product",
                                         "head_norm",   "rotate",   "append",  "attend",       "activate",
                                         "add",         "hand_out", "choose",  "embed_shared", "reduce",
                                         "shared_norm", "gather",   "shrink",  "expand"};
  return kNames[static_cast<size_t>(kind)];
}

std::vector<size_t> Recorder::layers_by_kind() {
  std::vector<size_t> layers;
  for (const FeedForward feed_forward : config_.feed_forwards()) {
    const WeightLayouts& layouts = config_.layouts.of_layer(layers.size());
    const auto kind = std::ranges::find_if(network_.kinds, [&](const LayerKind& one) {
      return one.feed_forward == feed_forward && one.layouts == layouts;
    });
    layers.push_back(static_cast<size_t>(kind - network_.kinds.begin()));
    if (kind == network_.kinds.end())
      network_.kinds.push_back({.feed_forward = feed_forward, .layouts = layouts, .ops = {}});
  }
  return layers;
}

Norm Recorder::norm_of(Part gain) const {
  const bool in_front = gain == Part::attention_norm || gain == Part::feed_forward_norm;
  return in_front && !config_.pre_norms ? Norm::none : config_.norm;
}

Value Recorder::norm(Value x, Part gain) {
  return record({.kind = OpKind::norm, .in = x, .part = gain, .norm = norm_of(gain)});
}

void Recorder::shrink(Value x, Part matrix, Part gain) {
  if (adapted_) record({.kind = OpKind::shrink, .in = x, .part = matrix, .norm = norm_of(gain), .gain = gain});
}

Value Recorder::product(Value x, Part matrix) {
  const MatrixSize size = matrix_size(config_, matrix);
  const Biases& biases = config_.biases;
  const bool bias = matrix == Part::qkv       ? biases.qkv
                    : matrix == Part::out     ? biases.out
                    : matrix == Part::gate_up ? biases.gate_up
                                              : matrix == Part::down && biases.down;
  return record({.kind = OpKind::product,
                 .in = x,
                 .part = matrix,
                 .cols = size.cols,
                 .outputs = size.outputs,
                 .bias = bias,
                 .weights = layout_of(layouts_, matrix),
                 .gated = matrix == Part::gate_up && config_.gated});
}

Value Recorder::expert_product(Value x, Value experts, Part matrix) {
  const MatrixSize size = expert_matrix_size(config_, matrix);
  return record({.kind = OpKind::expert_product,
                 .in = x,
                 .to = experts,
                 .part = matrix,
                 .cols = size.cols,
                 .outputs = size.outputs,
                 .weights = layout_of(layouts_, matrix),
                 .gated = matrix == Part::gate_up});
}

bool has_post_norms(const Network& network) {
  return std::ranges::any_of(network.kinds, [](const LayerKind& kind) {
    const auto is_added = [&](Value y) {
      return std::ranges::any_of(kind.ops, [&](const Op& op) { return op.kind == OpKind::add && op.in == y; });
    };
    return std::ranges::any_of(kind.ops, [&](const Op& op) { return op.kind == OpKind::norm && is_added(op.out); });
  });
}

std::string to_text(const Network& network) {
  std::string text;
  for (const Op& op : network.first) text += line_of(op);
  for (size_t kind = 0; kind < network.kinds.size(); ++kind) {
    text += heading_of(network, kind);
    for (const Op& op : network.kinds[kind].ops) text += "  " + line_of(op);
  }
  for (const Op& op : network.last) text += line_of(op);
  return text;
}

}  // namespace nodewright
