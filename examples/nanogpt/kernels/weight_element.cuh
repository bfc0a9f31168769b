// The type of a weight, by the constant kWeightBytes: 2 is bf16, 4 is float.
#pragma once

#include "kernels_src/device/numeric.cuh"

namespace nodewright {

template <int64_t Bytes>
struct ElementOf;
template <>
struct ElementOf<2> {
  using type = bf16;
};
template <>
struct ElementOf<4> {
  using type = float;
};
using WeightElement = ElementOf<kWeightBytes>::type;

NODEWRIGHT_DEVICE float as_float(bf16 v) { return to_float(v); }
NODEWRIGHT_DEVICE float as_float(float v) { return v; }

}  // namespace nodewright
