// From one step of a launch to the next, on the device: what each row chose is delivered, rows that have ended leave
// the step, and the others stand where their next token goes. Only where a launch holds several steps.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// Token ids that end a row, at most.
inline constexpr int64_t kMostStopIds = 8;

// Rows lie in any order: the last live row takes the place of one that ends, with all that is said about it.
struct Advance {
  In<int32_t> chosen;                  // [rows] by the step; below 0: the row has failed, and ends
  SettledInOut<int32_t> n_live;        // [1] rows that go on
  InOut<int32_t> n_sampled;            // [1] the same
  SettledInOut<int32_t> steps_done;    // [1] of this launch
  InOut<int32_t> tokens;               // [rows] becomes -1: the chosen token is on the device
  SettledInOut<int32_t> positions;     // [rows] one further
  InOut<int32_t> sequences;            // [rows]
  InOut<float> temperature;            // [rows]
  InOut<float> min_p;                  // [rows]
  InOut<int32_t> top_k;                // [rows]
  InOut<float> top_p;                  // [rows]
  InOut<uint64_t> seed;                // [rows]
  SettledInOut<int32_t> output_index;  // [rows] one further
  SettledInOut<int32_t> left;          // [rows] tokens that the row may still choose; at 0 it ends
  SettledInOut<int32_t> caller_row;    // [rows] where the row stood when the launch began
  SettledInOut<int32_t> stop_ids;      // [rows, kMostStopIds] each of them ends the row; -1: none
  PartialOut<int32_t> delivered;       // [most_steps, rows] pinned host memory: what caller_row chose at each step
  Condition again;                     // whether a row goes on and another step may follow; empty outside a loop
  int32_t rows;
  int32_t most_steps;
};

inline constexpr unsigned kAdvanceThreads = 128;
constexpr LaunchShape advance_shape(unsigned rows) { return {{1, 1, 1}, {kAdvanceThreads, 1, 1}, 4 * (rows + 1)}; }

}  // namespace nodewright
