// What the kernels of products should give, in double precision, and by how much they may differ: with the norm, the
// bias and the gate that the data's family has.
#pragma once

#include <cmath>
#include <vector>

#include "tests/kernels/projection/matvec.h"

namespace nodewright::test {

inline float float_of(float v) { return v; }
inline float float_of(bf16 v) { return value_of(v); }

// The same kernel without a gate.
struct RunNormUp : RunNormGateUp {
  static constexpr int64_t kUnit = 1;
};

// The sum with the bias of output n.
inline Dot with_bias(const MatvecData& d, Dot sum, int64_t n) {
  sum.value += bias_of(d, n);
  sum.bound += 0x1p-24 * std::abs(sum.value);
  return sum;
}

// silu's slope is at most 1.1 and |silu(v)| at most |v|; expf and a few operations add 2^-20, the store 2^-8.
inline Dot gated(const Dot& gate, const Dot& up) {
  const double f = gate.value / (1 + std::exp(-gate.value));
  const double before_rounding = 1.1 * gate.bound * (std::abs(up.value) + up.bound) + std::abs(f) * up.bound +
                                 0x1p-20 * std::abs(gate.value * up.value);
  return {f * up.value, before_rounding + 0x1p-8 * (std::abs(f * up.value) + before_rounding)};
}

// The result for row m's element i, and how far the kernel's may be from it.
template <class Shape>
Dot expected_of(RunNormProject, const Shape& s, const MatvecData& d, int64_t m, int64_t i) {
  return with_bias(d, normed_dot(s, d, normed_row(d, m), i), i);
}
template <class Shape>
Dot expected_of(RunNormGateUp, const Shape& s, const MatvecData& d, int64_t m, int64_t i) {
  const std::vector<double> row = normed_row(d, m);
  const auto product = [&](int64_t n) { return with_bias(d, normed_dot(s, d, row, n), n); };
  return s.unit == 1 ? gated(product(i), {1, 0}) : gated(product(2 * i), product(2 * i + 1));
}
template <class Shape>
Dot expected_of(RunProject, const Shape& s, const MatvecData& d, int64_t m, int64_t i) {
  std::vector<double> row;
  for (int64_t k = 0; k < s.cols; ++k) row.push_back(value_of(d.packed_x[d.count(m * d.stride + k)]));
  return with_bias(d, dot(s, d, row, i), i);
}
template <class Shape>
Dot expected_of(RunProjectGateUp, const Shape& s, const MatvecData& d, int64_t m, int64_t i) {
  return gated(expected_of(RunProject(), s, d, m, 2 * i), expected_of(RunProject(), s, d, m, 2 * i + 1));
}
template <class Shape>
Dot expected_of(RunProjectAdd, const Shape& s, const MatvecData& d, int64_t m, int64_t i) {
  Dot result = expected_of(RunProject(), s, d, m, i);
  result.value += d.residual[d.count(m * d.y_stride + i)];
  result.bound += 0x1p-24 * std::abs(result.value);
  return result;
}

// The first live rows are as expected, and nothing else has been stored.
template <class Run, class Shape>
void expect_tiles(const Shape& shape, const MatvecData& data, const std::vector<typename Run::Element>& y,
                  int64_t n_live) {
  const auto before = Run::initial(data);
  const int64_t elements = shape.outputs / shape.unit;
  for (int64_t m = 0; m < shape.rows; ++m)
    for (int64_t i = 0; i < data.y_stride; ++i) {
      const size_t at = data.count(m * data.y_stride + i);
      if (m >= n_live || i >= elements) {
        ASSERT_TRUE(same_bits(std::span(y).subspan(at, 1), std::span(before).subspan(at, 1)))
            << "row " << m << ", element " << i << " is not to be stored";
        continue;
      }
      const Dot expected = expected_of(Run(), shape, data, m, i);
      ASSERT_NEAR(float_of(y[at]), expected.value, expected.bound)
          << "row " << m << " of " << shape.rows << ", element " << i << ", cols " << shape.cols;
    }
}

}  // namespace nodewright::test
