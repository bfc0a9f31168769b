// Which outputs a block computes: a contiguous range of weight rows, so that bytes are balanced over SMs to within one.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

struct OutputRange {
  int first, last;
};

// Outputs are dealt in units of `unit` rows, to blocks or to clusters of `kBlocks`, which share a range.
template <int64_t kBlocks = 1>
NODEWRIGHT_DEVICE OutputRange block_outputs(int64_t outputs, int unit = 1) {
  const int64_t units = outputs / unit, blocks = gridDim.x / kBlocks, b = blockIdx.x / kBlocks;
  return {static_cast<int>(units * b / blocks) * unit, static_cast<int>(units * (b + 1) / blocks) * unit};
}

}  // namespace nodewright
