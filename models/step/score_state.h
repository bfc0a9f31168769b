// The device memory that scores a slot's prompts: the log probability of each token that follows another in a prompt,
// from the residual that a step leaves. The head multiplies a slice of the step's rows at a time, so that logits of a
// long chunk need not lie in memory all at once.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "models/step/choice_state.h"
#include "models/step/decode_state.h"

namespace nodewright {

// Rows of a slice, at most. With as many the head's product is bound by arithmetic, not by its weights; their logits
// take 131 MB for a vocabulary of 128 000 tokens.
inline constexpr int64_t kRowsOfSlice = 256;

struct ScoreLimits {
  int64_t step_rows = 1;              // of the largest step
  int64_t slice_rows = kRowsOfSlice;  // at least 2
  bool with_products = false;         // the head is a library's product
  bool may_hold = false;              // the head is the one of the steps: tiles past held rows, if they have those
  bool beside_adapters = false;       // of the steps (StepShape)
  int64_t slices() const { return (step_rows + slice_rows - 1) / slice_rows; }
  bool operator==(const ScoreLimits&) const = default;
};

// How steps within these limits are scored. `slice_rows`: at most; a slice is no larger than a step, but for a step of
// one row.
ScoreLimits score_limits(const ModelConfig& config, const DecodeLimits& limits, int64_t slice_rows = kRowsOfSlice);

// The host's inputs for a slice. Pinned and on the device, in one copy.
struct ScoreInputs {
  View<int32_t> n_live;    // [1] rows that count
  View<int64_t> places;    // [2] as GatherResidual::places
  View<int32_t> rows;      // [slice rows] of the step
  View<int32_t> tokens;    // [slice rows] that follow in the prompt: the ones scored; of a rank of a team from 0, and
                           // 0 where another has the token
  View<int32_t> logprobs;  // [slice rows] of how many of the likeliest tokens
  View<int32_t> indices;   // [slice rows] 0, 1, ...: where RecordChoice finds a row's logits
  View<int32_t> zeros;     // [slice rows] no row is counted
};

// One slice of one slot. What slices share is written anew by each.
struct ScoreState {
  int64_t rows = 0;
  bool with_products = false, may_hold = false;
  ScoreInputs inputs, host_inputs;
  ChoiceOutputs outputs, host_outputs;  // of a rank of a team those of its part of the vocabulary, tokens from 0
  View<float> log_sum, host_log_sum;    // [slice rows] log(sum(exp(logits))), of a rank likewise
  NamedRange inputs_range, host_inputs_range, outputs_range, host_outputs_range;
  NamedRange activations_range;  // of the slot's steps
  View<float> activations;
  View<float> residual;     // [rows, hidden rounded up to 8]
  View<bf16> normed;        // the same, of products, or times the norm's gain, where rows may be held; or empty
  View<float> squares;      // [1, rows padded as by TileShape] sums of squares, where rows may be held; or empty
  View<float> logits;       // [rows, logits_stride]
  View<uint8_t> workspace;  // of products on a GPU
  int64_t logits_stride = 0;
  std::vector<NamedRange> scratch;
};

class ScoreSlot {
 public:
  // For the steps of `step`, which must outlive it.
  ScoreSlot(Device& device, const ModelConfig& config, const ScoreLimits& limits, const DecodeSlot& step);
  // For another slot whose steps run on the same stream: it shares the buffers that no two slices use at once.
  ScoreSlot(const ScoreSlot& first, const DecodeSlot& step);

  ScoreState slice(int64_t index) const;
  const ScoreLimits& limits() const { return limits_; }
  // Says where a step of this bucket leaves its residual.
  void place(const ScoreInputs& in, const DecodeState& step) const;
  uint64_t bytes() const;  // of device memory; what slots share counts in the first
  // As DecodeSlot::poison, but for what slots share.
  void poison();

 private:
  ScoreSlot(Device& device, const ModelConfig& config, const ScoreLimits& limits, const DecodeSlot& step,
            std::shared_ptr<DeviceBuffer> scratch);

  Device& device_;
  ModelConfig config_;
  ScoreLimits limits_;
  const DecodeSlot& step_;
  bool owns_scratch_ = false;
  std::shared_ptr<DeviceBuffer> scratch_;
  DeviceBuffer inputs_, outputs_;
  PinnedBuffer host_inputs_, host_outputs_;
};

}  // namespace nodewright
