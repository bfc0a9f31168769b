// A step's inputs, from pinned host memory to their place on the device: 1.5 µs, where a copy node takes 2.9 for 1 row
// and 8.4 to 8.7 for 32 and 64 (bench/results/2026-11-28-h200-inputs.txt).
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct FetchInputs {
  In<uint32_t> from;  // pinned host memory
  Out<uint32_t> to;   // as many
};

// A thread takes a word; a warp's 32 are one request to the host.
inline constexpr unsigned kFetchInputsThreads = 128;
constexpr LaunchShape fetch_inputs_shape(uint64_t words) {
  const auto blocks = static_cast<unsigned>((words + kFetchInputsThreads - 1) / kFetchInputsThreads);
  return launch_shape_1d(blocks, kFetchInputsThreads);
}

}  // namespace nodewright
