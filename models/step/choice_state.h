// The device memory of the second choice of a slot: rows of a step whose requests ask for more than temperature, min-p,
// top-k and top-p (kernels_src/sampling/shape_logits.h). One slot serves every bucket, as DecodeSlot does; it has room
// for the rows of a step that choose, however many tokens of prompts stand beside them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/step/decode_state.h"

namespace nodewright {

// The host's inputs for the rows. Pinned (where `data` may be dereferenced) and on the device; what every row has
// travels in one copy. The fields are those of ShapeLogits, Sample and RecordChoice.
struct ChoiceInputs {
  View<int32_t> n_live;                                                 // [1] rows that count
  View<int32_t> rows;                                                   // [rows] of the step
  View<int32_t> sequences;                                              // [rows]
  View<int32_t> forced;                                                 // [rows] -1: none
  View<float> temperature;                                              // [rows]
  View<float> min_p;                                                    // [rows]
  View<int32_t> top_k;                                                  // [rows]
  View<float> top_p;                                                    // [rows]
  View<uint64_t> seed;                                                  // [rows]
  View<int32_t> output_index;                                           // [rows]
  View<float> repetition_penalty, presence_penalty, frequency_penalty;  // [rows]
  View<int32_t> counted;                                                // [rows]
  View<int32_t> logprobs;                                               // [rows]
  View<int32_t> biases;                                                 // [rows]
  View<int32_t> constrained;                                            // [rows]
  // Pinned alone: the device reads there what a row asks for.
  View<int32_t> bias_tokens;  // [rows, kMostBiases]
  View<float> bias_values;    // [rows, kMostBiases]
  View<uint32_t> masks;       // [rows, mask_words]
  int64_t mask_words = 0;     // vocab / 32, rounded up
};

// What comes back, in one copy.
struct ChoiceOutputs {
  View<int32_t> tokens;      // [rows]
  View<int32_t> kept;        // [rows]
  View<float> logprob;       // [rows]
  View<int32_t> top_tokens;  // [rows, kMostLogprobs]
  View<float> top_logprobs;  // [rows, kMostLogprobs]
};

// In `arena`, for `rows` rows.
ChoiceOutputs lay_out_choice_outputs(Arena& arena, int64_t rows);

struct ChoiceState {
  int64_t rows = 0;   // that choose
  int64_t parts = 1;  // of a row, that shape_logits leaves the best of
  ChoiceInputs inputs, host_inputs;
  ChoiceOutputs outputs, host_outputs;
  NamedRange inputs_range, host_inputs_range, outputs_range, host_outputs_range;
  NamedRange asked_range;     // pinned: biases and masks
  View<float> shaped;         // [rows, logits_stride]
  View<ScoredToken> best;     // [rows, parts]
  View<int32_t> chosen;       // [rows]
  View<int32_t> counts;       // [sequences, logits_stride] of the tokens of each: kInPrompt, and how often chosen
  int64_t counts_stride = 0;  // of a sequence
  std::vector<NamedRange> scratch;
};

class ChoiceSlot {
 public:
  ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits);
  // Another slot for the same sequences.
  explicit ChoiceSlot(const ChoiceSlot& first);
  // The slot of another rank of a team: `host` has the host's inputs for all ranks.
  static std::unique_ptr<ChoiceSlot> of_rank(Device& device, const ModelConfig& config, const DecodeLimits& limits,
                                             const ChoiceSlot& host);
  std::unique_ptr<ChoiceSlot> another(const ChoiceSlot& host) const;  // as ChoiceSlot(*this), of such a rank

  // The state for a step of `step_rows` rows.
  ChoiceState state(int64_t step_rows) const;
  uint64_t bytes() const;  // of device memory, with what slots share
  // As DecodeSlot::poison.
  void poison();

 private:
  ChoiceSlot(Device& device, const ModelConfig& config, const DecodeLimits& limits,
             std::shared_ptr<DeviceBuffer> counts, const ChoiceSlot* host);

  Device& device_;
  int64_t vocab_;
  DecodeLimits limits_;
  int64_t rows_;  // at most
  DeviceBuffer inputs_, outputs_, shaped_;
  std::shared_ptr<DeviceBuffer> counts_;
  PinnedBuffer host_outputs_;
  std::shared_ptr<PinnedBuffer> host_inputs_, asked_;
};

}  // namespace nodewright
