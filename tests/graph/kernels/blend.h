// Argument structs of the kernels that tests of whole graphs are made of: whole numbers, so that any two orders of work
// that should agree do so bit by bit.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// y[i] = (a[i % na] * 1664525 + b[i % nb] * 22695477 + key[i % nk]) ^ salt, for the elements that the grid reaches.
struct Blend {
  In<uint32_t> a;
  In<uint32_t> b;
  Optional<Frozen<uint32_t>> key = {};  // or empty
  Out<uint32_t> y;
  uint32_t salt;
};

// y[i] = y[i] * 31 + x[i % nx] + salt
struct Accumulate {
  InOut<uint32_t> y;
  In<uint32_t> x;
  uint32_t salt;
};

// The condition is value[0] % modulus + base.
struct Decide {
  In<uint32_t> value;
  Condition condition;
  uint32_t modulus;
  uint32_t base;
};

// rounds[0] += 1; the condition is whether that is still below `limit`.
struct Count {
  InOut<uint32_t> rounds;
  Condition again;
  uint32_t limit;
};

// y[block] = blocks * 1000 + a value that went through the last word of the block's shared memory.
struct SharedProbe {
  Out<uint32_t> y;
  uint32_t shared_bytes;
};

// y[block] = the first block of its cluster * 1000 + the one at half its rank, both through shared memory.
struct ClusterProbe {
  Out<uint32_t> y;
  uint32_t cluster_blocks;
};

inline constexpr unsigned kBlendThreads = 64;
constexpr LaunchShape blend_shape(uint64_t n) {
  return launch_shape_1d(static_cast<unsigned>((n + kBlendThreads - 1) / kBlendThreads), kBlendThreads);
}

}  // namespace nodewright
