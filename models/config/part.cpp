#include "models/config/part.h"

namespace nodewright {

std::string_view to_string(Part part) {
  constexpr std::string_view kNames[] = {"embedding",
                                         "attention_norm",
                                         "qkv",
                                         "head_norms",
                                         "out",
                                         "attention_post_norm",
                                         "feed_forward_norm",
                                         "router",
                                         "gate_up",
                                         "down",
                                         "feed_forward_post_norm",
                                         "final_norm",
                                         "head"};
  return kNames[static_cast<size_t>(part)];
}

std::string weight_name(const ModelConfig& config, Part part) {
  return part == Part::gate_up && !config.gated ? "up" : std::string(to_string(part));
}

MatrixSize matrix_size(const ModelConfig& c, Part part) {
  switch (part) {
    case Part::qkv:
      return {c.hidden, c.qkv_width()};
    case Part::out:
      return {c.query_width(), c.hidden};
    case Part::gate_up:
      return {c.hidden, (c.gated ? 2 : 1) * c.intermediate};
    case Part::down:
      return {c.intermediate, c.hidden};
    case Part::router:
      return {c.hidden, c.experts.count};
    default:  // the embedding and the head
      return {c.hidden, c.head_rows()};
  }
}

MatrixSize expert_matrix_size(const ModelConfig& c, Part part) {
  const int64_t inner = c.experts.intermediate;
  return part == Part::gate_up ? MatrixSize{c.hidden, 2 * inner} : MatrixSize{inner, c.hidden};
}

int64_t layer_elements(const ModelConfig& c, int64_t layer, int64_t experts) {
  int64_t elements = matrix_size(c, Part::qkv).elements() + matrix_size(c, Part::out).elements();
  for (const Part part : {Part::gate_up, Part::down})
    elements += c.feed_forward(layer) == FeedForward::dense ? matrix_size(c, part).elements()
                                                            : experts * expert_matrix_size(c, part).elements();
  return elements;
}

WeightLayout layout_of(const WeightLayouts& of, Part part) {
  return part == Part::qkv       ? of.qkv
         : part == Part::out     ? of.out
         : part == Part::gate_up ? of.gate_up
         : part == Part::down    ? of.down
         : part == Part::head    ? of.head
                                 : WeightLayout{};
}

}  // namespace nodewright
