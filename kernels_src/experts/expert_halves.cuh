// What multiplies words of experts' rows by a row of x: floats or, on a device, where W is in codes, tensor cores,
// which take x as pairs of fp16 from shared memory (product/rows/diagonal.cuh).
#pragma once

#include "kernels_src/experts/expert_rows.cuh"
#include "kernels_src/product/rows/diagonal.cuh"

namespace nodewright {

// x_at(column, x): eight elements of x from a chunk's column on.
template <class XAt, int kGroup, int kParts>
struct FloatX {
  using Rows = ExpertRows<kGroup, kParts>;
  static constexpr bool kStaged = false;
  XAt x_at;

  struct Sums {
    float of[kGroup] = {};
  };

  template <class Max>
  NODEWRIGHT_DEVICE void stage(const Rows&, int, int, Max) {}  // x is where x_at finds it
  // sums += rows' words times those columns of x. word: the number of the words in their rows.
  NODEWRIGHT_DEVICE void multiply(Sums& sums, const Rows& rows, const uint4 (&words)[kGroup],
                                  const ExpertScales<kGroup>& scales, int word) const {
    NODEWRIGHT_UNROLL
    for (int c = 0; c < kChunksOfWord; ++c) {
      float x[8] = {};
      if (rows.has(word)) x_at(column_of_chunk(rows.column(word), c), x);
      NODEWRIGHT_UNROLL
      for (int r = 0; r < kGroup; ++r) {
        const uint32_t* const of_row = scales.of[r % ExpertScales<kGroup>::kRows];
        const auto eight = eight_of(words[r], c, of_row);
        if constexpr (kScaledBlocks)
          sums.of[r] = fmaf(dot_8(eight, x, 0.0f), bits_to_float(of_row[0]), sums.of[r]);
        else
          sums.of[r] = dot_8(eight, x, sums.of[r]);
      }
    }
  }
  // This lane's part of the sums.
  NODEWRIGHT_DEVICE float (&ended(Sums& sums) const)[kGroup] { return sums.of; }
};

#ifdef __CUDACC_RTC__
// 16 bytes of shared memory, once more each time: the compiler would hold x of a group of rows for the next one.
NODEWRIGHT_DEVICE uint4 load_staged(const void* shared) {
  uint4 v;
  asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "r"(static_cast<uint32_t>(__cvta_generic_to_shared(shared)))
               : "memory");
  return v;
}

template <class XAt, int kGroup, int kParts>
struct HalfX {
  using Rows = ExpertRows<kGroup, kParts>;
  static constexpr bool kStaged = true;
  static constexpr bool kEnds = kSumsOfCodes || kScaledBlocks;  // a group of a word's columns has a scale
  static constexpr int kGroups = kSumsOfCodes ? Weights::kGroupsOfWord : 1, kChunksOfGroup = kChunksOfWord / kGroups;
  // A word of all lanes has their chunks, and what codes of 1 give, where sums take it, [lanes / 4][kGroups].
  static constexpr int kChunkBytes = 32 * 16;
  static constexpr int kWordBytes = kChunksOfWord * kChunkBytes + (kSumsOfCodes ? 32 * kGroups : 0);
  static constexpr int kBytes = Rows::kWords * kWordBytes;

  XAt x_at;
  unsigned char* shared;  // [kWords] of these
  float inverse = 0.0f;   // what sums are multiplied by

  struct Sums {
    float of[kGroup] = {};
    float diagonals[kGroup / 2][4] = {};
  };

  // Words `first`, first + step, ... of x to shared memory. all_max: over the warps that read them.
  template <class Max>
  NODEWRIGHT_DEVICE void stage(const Rows& rows, int first, int step, Max all_max) {
    const auto eight_at = [&](int word, int c, float(&v)[8]) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < 8; ++i) v[i] = 0.0f;
      if (rows.has(word)) x_at(column_of_chunk(rows.column(word), c), v);
    };
    float v[8], largest = 0.0f;
    NODEWRIGHT_UNROLL_BY(2)
    for (int word = first; word < Rows::kWords; word += step) {
      NODEWRIGHT_UNROLL
      for (int c = 0; c < kChunksOfWord; ++c) {
        eight_at(word, c, v);
        NODEWRIGHT_UNROLL
        for (int i = 0; i < 8; ++i) largest = fmaxf(largest, fabsf(v[i]));
      }
    }
    const HalfFactors factors(float_to_bits(all_max(largest)));
    inverse = factors.inverse;
    NODEWRIGHT_NO_UNROLL
    for (int word = first; word < Rows::kWords; word += step) {
      uint4 chunks[kChunksOfWord];
      NODEWRIGHT_UNROLL
      for (int c = 0; c < kChunksOfWord; ++c) {
        eight_at(word, c, v);
        chunks[c] = factors.halves(v);
        store_16(chunk_of(word, c), chunks[c]);
      }
      if constexpr (kSumsOfCodes) {
        const uint4 ones{0x11111111u, 0x11111111u, 0x11111111u, 0x11111111u};
        NODEWRIGHT_UNROLL
        for (int g = 0; g < kGroups; ++g) {
          float sum[4] = {};
          NODEWRIGHT_UNROLL
          for (int j = 0; j < kChunksOfGroup; ++j)
            add_chunk<Weights>(sum, {ones, nullptr}, {ones, nullptr}, j, chunks[g * kChunksOfGroup + j]);
          if (has_diagonal()) of_ones(word)[g] = on_diagonal(sum, 0);
        }
      }
    }
  }

  NODEWRIGHT_DEVICE void multiply(Sums& sums, const Rows&, const uint4 (&words)[kGroup],
                                  const ExpertScales<kGroup>& scales, int word) const {
    const auto of_row = [&](int r) { return scales.of[r % ExpertScales<kGroup>::kRows]; };
    NODEWRIGHT_UNROLL
    for (int g = 0; g < kGroups; ++g) {
      NODEWRIGHT_UNROLL
      for (int j = g * kChunksOfGroup; j < (g + 1) * kChunksOfGroup; ++j) {
        const uint4 columns = load_staged(chunk_of(word, j));
        NODEWRIGHT_UNROLL
        for (int p = 0; p < kGroup / 2; ++p)
          add_chunk<Weights>(sums.diagonals[p], {words[2 * p], of_row(2 * p)}, {words[2 * p + 1], of_row(2 * p + 1)}, j,
                             columns);
      }
      if constexpr (kEnds) {
        NODEWRIGHT_UNROLL
        for (int r = 0; r < kGroup; ++r) {
          float(&diagonal)[4] = sums.diagonals[r / 2];
          const float of_group = on_diagonal(diagonal, r % 2);
          if constexpr (kSumsOfCodes)
            sums.of[r] = Weights::group(of_row(r), g).joined(sums.of[r], of_group, of_ones(word)[g]);
          else
            sums.of[r] = fmaf(of_group, bits_to_float(of_row(r)[0]), sums.of[r]);
          diagonal[r % 2 * 2] = diagonal[r % 2 * 2 + 1] = 0.0f;
        }
      }
    }
  }
  NODEWRIGHT_DEVICE float (&ended(Sums& sums) const)[kGroup] {
    NODEWRIGHT_UNROLL
    for (int r = 0; r < kGroup; ++r) {
      const float sum = kEnds ? sums.of[r] : on_diagonal(sums.diagonals[r / 2], r % 2);
      sums.of[r] = has_diagonal() ? sum * inverse : 0.0f;
    }
    return sums.of;
  }

 private:
  NODEWRIGHT_DEVICE unsigned char* chunk_of(int word, int c) const {
    return shared + word * kWordBytes + c * kChunkBytes + lane_of_warp() * 16;
  }
  NODEWRIGHT_DEVICE float* of_ones(int word) const {
    return reinterpret_cast<float*>(shared + word * kWordBytes + kChunksOfWord * kChunkBytes) +
           lane_of_warp() / 4 * kGroups;
  }
};

// `shared`: expert_halves_bytes for each warp, or for all at warp 0.
template <int kGroup, int kParts, class XAt>
NODEWRIGHT_DEVICE auto expert_x(const ExpertRows<kGroup, kParts>&, XAt x_at, unsigned char* shared, int warp) {
  if constexpr (kFormat != 0) {
    using X = HalfX<XAt, kGroup, kParts>;
    return X{x_at, shared + warp * X::kBytes};
  } else {
    return FloatX<XAt, kGroup, kParts>{x_at};
  }
}
#else
template <int kGroup, int kParts, class XAt>
auto expert_x(const ExpertRows<kGroup, kParts>&, XAt x_at, unsigned char*, int) {
  return FloatX<XAt, kGroup, kParts>{x_at};
}
#endif

}  // namespace nodewright
