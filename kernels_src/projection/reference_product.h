// y = alpha * op(a) . op(b) + beta * c + bias, one output a thread, in the plainest way: what products are compared
// with, and what stands for cuBLASLt on the CPU driver.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// Element types, as the constants kInput (of a and b) and kOutput (of c, bias and y) number them.
enum class Element : uint8_t { f32 = 0, fp16 = 1, bf16 = 2 };

// Memory in bytes, because the element types are constants. Strides and leading dimensions in elements.
struct ReferenceProduct {
  In<uint8_t> a;                    // op(a)[i, p] at i * a_row + p * a_column
  In<uint8_t> b;                    // op(b)[p, j] at p * b_row + j * b_column
  Optional<In<uint8_t>> c = {};     // [m, n], rows c_row apart; empty: y is added to, if beta is not 0
  Optional<In<uint8_t>> bias = {};  // [n]; empty: none
  InOut<uint8_t> y;                 // [m, n], rows y_row apart; not read if c is there or beta is 0
  int64_t m, n, k;                  // op(a) is [m, k], op(b) is [k, n]
  int64_t a_row, a_column;
  int64_t b_row, b_column;
  int64_t c_row, y_row;
  float alpha, beta;
};

inline constexpr unsigned kReferenceProductThreads = 128;

// A block takes 128 outputs of y in row-major order, and then those kMaxBlocks * 128 further on.
constexpr LaunchShape reference_product_shape(int64_t m, int64_t n) {
  constexpr int64_t kMaxBlocks = 65536;  // enough to fill any device; the rest is the loop's
  const int64_t blocks = (m * n + kReferenceProductThreads - 1) / kReferenceProductThreads;
  return launch_shape_1d(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks), kReferenceProductThreads);
}

}  // namespace nodewright
