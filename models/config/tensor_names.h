// What a checkpoint calls its tensors, as data: models/weights/weights.cpp finds them by these names.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

// How one tensor holds the heads of q, k and v, one below the other.
enum class FusedHeads : uint8_t {
  by_kind,  // all of q, then all of k, then all of v
  by_head,  // q, k and v of the first head, then of the next; as many heads of each
};

// Each name is followed by ".weight", and by ".bias" where the family has one; empty for a part that it lacks.
struct TensorNames {
  std::string prefix;        // of all but the head; a file may leave it out
  std::string other_prefix;  // that a file may have instead; or empty
  std::string embedding, positions, final_norm;
  std::string head = "lm_head";  // absent from the file if tied
  std::string layers;            // "layers": layer 3 is at "layers.3."

  // Within a layer.
  std::string attention_norm;
  std::vector<std::string> qkv;  // q, k and v, or one tensor that holds all three
  FusedHeads fused = FusedHeads::by_kind;
  std::string q_norm, k_norm, out, attention_post_norm;
  std::string feed_forward_norm, gate, up, down, feed_forward_post_norm;
  std::string gate_up;          // one tensor of all gate rows, then all up rows; gate and up are empty then
  std::string router, experts;  // of a mixture
  std::string expert_gate, expert_up, expert_down;  // those of expert 3 are at "<experts>.3."

  bool transposed = false;                          // products of a layer are stored [in, out]
  std::vector<std::string_view> unused_beginnings;  // of tensors of parts that are not text
};

// Llama's, which most families share or begin with.
TensorNames llama_names();
TensorNames gpt2_names();

}  // namespace nodewright
