// Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

// The four words for this key and counter.
NODEWRIGHT_DEVICE uint4 philox_words(uint64_t key, uint32_t counter0, uint32_t counter1) {
  uint32_t c0 = counter0, c1 = counter1, c2 = 0, c3 = 0;
  auto k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  NODEWRIGHT_UNROLL
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(0xD2511F53u) * c0, p1 = static_cast<uint64_t>(0xCD9E8D57u) * c2;
    const auto n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0, n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return make_uint4(c0, c1, c2, c3);
}

// The words of tokens 4 q to 4 q + 3 at output `index` under `seed`.
NODEWRIGHT_DEVICE uint4 noise_words(uint64_t seed, uint32_t index, uint32_t q) { return philox_words(seed, q, index); }

// Standard Gumbel noise of a word: -log(-log(1 - v)), v in (0, 1). The noise that decides is the largest, from v near
// 0, where floats are densest: it follows all 32 bits of the word. The minimum keeps v below 1 where the word rounds up
// to 2^32. Within 10^-5: near 0 the inner logarithm is its series, within v^5 / 6 of itself, and elsewhere the device's
// own is within 2^-21 (CUDA programming guide, intrinsic functions).
NODEWRIGHT_DEVICE float gumbel_noise(uint32_t word) {
  const float fraction = (static_cast<float>(word) + 0.5f) * (1.0f / 4294967296.0f);
  const float v = fminf(fraction, 1.0f - 1.0f / 16777216.0f);
  const float series = v * (1.0f + v * (0.5f + v * (1.0f / 3 + v * (0.25f + v * 0.2f))));
  return -__logf(v < 0.0625f ? series : -__logf(1.0f - v));
}

}  // namespace nodewright
