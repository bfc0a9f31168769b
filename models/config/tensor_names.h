// What the families call the tensors of a checkpoint, as data: models/weights/weights.cpp finds them by these names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/config/model_config.h"

namespace nodewright {

// Each name is followed by ".weight", and by ".bias" where the family has one; empty for a part that it lacks.
struct TensorNames {
  std::string prefix;  // of all but the head; a file may leave it out
  std::string embedding, positions, final_norm;
  std::string head = "lm_head";  // absent from the file if tied
  std::string layers;            // "layers": layer 3 is at "layers.3."

  // Within a layer.
  std::string attention_norm;
  std::vector<std::string> qkv;  // q, k and v, or one tensor that holds them below each other
  std::string q_norm, k_norm, out, attention_post_norm;
  std::string feed_forward_norm, gate, up, down, feed_forward_post_norm;

  bool transposed = false;                       // products of a layer are stored [in, out]
  std::vector<std::string_view> unused_endings;  // of tensors that follow from the configuration, in old files
};

TensorNames tensor_names(const ModelConfig& config);

}  // namespace nodewright
