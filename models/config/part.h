// The weights of a decoder by their part in the network, and the sizes of those that are matrices.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/config/model_config.h"

namespace nodewright {

// Every layer has its own of those between the embedding and the final norm.
enum class Part : uint8_t {
  embedding,
  attention_norm,
  qkv,         // queries, keys and values in one matrix
  head_norms,  // of queries and of keys
  out,
  attention_post_norm,
  feed_forward_norm,
  router,   // of a mixture: a logit for each expert
  gate_up,  // gate and up in one matrix, or up alone; of a mixture those of all experts
  down,     // of a mixture likewise
  feed_forward_post_norm,
  final_norm,
  head,
};
std::string_view to_string(Part part);  // "attention_norm"
// The name of a matrix in messages and dumps: "qkv", "gate_up", or "up" where the model has no gate.
std::string weight_name(const ModelConfig& config, Part part);

// W is [outputs, cols]. Where devices share the network, of this rank's part.
struct MatrixSize {
  int64_t cols = 0, outputs = 0;
  int64_t elements() const { return cols * outputs; }
};
// The part is embedding, head, router, qkv, out, or, in a layer without experts, gate_up or down.
MatrixSize matrix_size(const ModelConfig& config, Part part);
// How the matrix lies in device memory: that of a product of a layer, otherwise of bf16.
WeightLayout layout_of(const WeightLayouts& of, Part part);
// The part is gate_up or down, of one expert of a mixture.
MatrixSize expert_matrix_size(const ModelConfig& config, Part part);
// The elements of a layer's matrices, but the router's, with those of `experts` experts if the layer has experts.
int64_t layer_elements(const ModelConfig& config, int64_t layer, int64_t experts);

}  // namespace nodewright
