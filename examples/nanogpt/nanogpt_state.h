// The device memory that a nanoGPT sequence lives in: what the host says once per prompt, the cache, activations.
#pragma once

#include <cstdint>
#include <vector>

#include "examples/nanogpt/nanogpt_weights.h"
#include "runtime/memory/arena.h"
#include "runtime/memory/memory.h"

namespace nodewright {

// What the host says about a prompt; the whole block travels in one copy, and a step needs nothing further: the
// position moves on, and the token goes round, on the device. The same layout in pinned host memory and on the device.
struct NanogptInputs {
  View<int32_t> prompt;            // [context] token ids
  View<int32_t> prompt_positions;  // [context] 0, 1, ...
  View<int32_t> prompt_length;     // [1]
  View<int32_t> one;               // [1] 1: live rows of a step
  View<int32_t> position;          // [1] of the newest token in the cache; each step adds 1
  View<int32_t> token;             // [1] of the step: -1, the last chosen one
  View<int32_t> sequence;          // [context] 0: index into last_token
  View<float> temperature;         // [1] below 1e-5: greedy
  View<int32_t> top_k;             // [1] 0: all
  View<float> top_p;               // [1] 1: all
  View<uint64_t> seed;             // [1]
};

class NanogptState {
 public:
  NanogptState(Device& device, const NanogptConfig& config);

  NanogptInputs inputs;            // device
  NanogptInputs host_inputs;       // pinned
  View<float> residual;            // [context, embedding rounded up to 4]
  View<float> qkv;                 // [context, 3 embedding rounded up to 4]
  View<float> attended;            // as residual
  View<float> activated;           // [context, 4 embedding]
  View<float> logits;              // [vocab] of the last row
  View<int32_t> chosen;            // [1]
  View<int32_t> last_token;        // [1]
  std::vector<View<float>> cache;  // per layer [2, heads, context, head_dim]
  View<int32_t> host_chosen;       // [1] pinned

  int64_t embedding_stride = 0, qkv_stride = 0, feed_forward_stride = 0;  // elements between two rows

  NamedRange inputs_range, host_inputs_range, host_chosen_range;
  const std::vector<NamedRange>& scratch() const { return scratch_; }  // written before it is read
  const std::vector<NamedRange>& kept() const { return kept_; }        // lives from launch to launch

 private:
  DeviceBuffer device_inputs_, activations_, lasting_;
  PinnedBuffer pinned_inputs_, pinned_chosen_;
  std::vector<NamedRange> scratch_, kept_;
};

}  // namespace nodewright
