// The host's inputs for one row of a step, and where they go in the slot's input block.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "models/step/decode_state.h"

namespace nodewright {

// How a row's next token is chosen. Greedy below a temperature of 1e-5.
struct Sampling {
  float temperature = 0.0f;
  float min_p = 0.0f;  // of the likeliest token's probability, after temperature; 0: all
  int32_t top_k = 0;   // 0: all tokens; ties with the k-th are kept
  float top_p = 1.0f;  // of what top_k keeps; 1: all
  // With the index of the output, the whole random state: an equal seed repeats. None: a request of an Engine gets one
  // of its own, elsewhere it is 0.
  std::optional<uint64_t> seed = {};
};

struct RowInputs {
  int32_t token = -1;    // -1: the sequence's last token, already on the device
  int64_t position = 0;  // of that token
  int32_t sequence = 0;  // index into last_token and block_table
  int64_t output = 0;    // which output of its sequence the next token is
  int32_t adapter = -1;  // slot of its adapter; -1: none
  Sampling sampling;
};

// `in`: the pinned block of a bucket, with at least row + 1 rows.
void write_row(const StepInputs& in, int64_t row, const RowInputs& inputs);

// When the row ends, in a launch of several steps: after `most` tokens or with one of `stop_ids`, at most kMostStopIds.
void write_end(const StepInputs& in, int64_t row, int64_t most, std::span<const int32_t> stop_ids);

}  // namespace nodewright
