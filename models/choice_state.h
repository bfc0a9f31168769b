// The device memory of the second choice of a slot: rows of a step whose requests ask for more than temperature, top-k
// and top-p (kernels_src/shape_logits.h). One slot serves every bucket, as DecodeSlot does.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/decode_state.h"

namespace nodewright {

// What the host says about the rows; the whole block travels in one copy. Pinned (where `data` may be dereferenced) and
// on the device. The fields are those of ShapeLogits, Sample and RecordChoice.
struct ChoiceInputs {
  View<int32_t> n_live;                                                        // [1] rows that count
  View<int32_t> rows;                                                          // [rows] of the step
  View<int32_t> sequences;                                                     // [rows]
  View<float> temperature;                                                     // [rows]
  View<int32_t> top_k;                                                         // [rows]
  View<float> top_p;                                                           // [rows]
  View<uint64_t> seed;                                                         // [rows]
  View<int32_t> output_index;                                                  // [rows]
  View<float> min_p, repetition_penalty, presence_penalty, frequency_penalty;  // [rows]
  View<int32_t> counted;                                                       // [rows]
  View<int32_t> logprobs;                                                      // [rows]
  View<int32_t> biases;                                                        // [rows]
  View<int32_t> bias_tokens;                                                   // [rows, kMostBiases]
  View<float> bias_values;                                                     // [rows, kMostBiases]
  View<int32_t> constrained;                                                   // [rows]
  View<uint32_t> masks;                                                        // [rows, mask_words]
  int64_t mask_words = 0;                                                      // vocab / 32, rounded up
};

// What comes back, in one copy.
struct ChoiceOutputs {
  View<int32_t> tokens;      // [rows]
  View<int32_t> kept;        // [rows]
  View<float> logprob;       // [rows]
  View<int32_t> top_tokens;  // [rows, kMostLogprobs]
  View<float> top_logprobs;  // [rows, kMostLogprobs]
};

struct ChoiceState {
  int64_t rows = 0;
  ChoiceInputs inputs, host_inputs;
  ChoiceOutputs outputs, host_outputs;
  NamedRange inputs_range, host_inputs_range, outputs_range, host_outputs_range;
  View<float> shaped;    // [rows, logits_stride]
  View<int32_t> counts;  // [sequences, vocab] of the tokens of each sequence: kInPrompt, and how often chosen
  std::vector<NamedRange> scratch;
};

class ChoiceSlot {
 public:
  ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits);
  // Another slot for the same sequences.
  explicit ChoiceSlot(const ChoiceSlot& first);

  ChoiceState state(int64_t rows) const;
  uint64_t bytes() const;  // of device memory, with what slots share
  // As DecodeSlot::poison.
  void poison();

 private:
  ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits,
             std::shared_ptr<DeviceBuffer> counts);

  Device& device_;
  int64_t vocab_;
  DecodeLimits limits_;
  DeviceBuffer inputs_, outputs_, shaped_;
  std::shared_ptr<DeviceBuffer> counts_;
  PinnedBuffer host_inputs_, host_outputs_;
};

}  // namespace nodewright
