// norm_gate_up against a double-precision reference.
#include <gtest/gtest.h>

#include "tests/kernels/matvec.h"

namespace nodewright::test {
namespace {

constexpr int64_t kWidths[] = {100, 1000, 2048};
constexpr int64_t kBuckets[] = {1, 8};

double sigmoid(double v) { return 1.0 / (1.0 + std::exp(-v)); }

class NormGateUpValues : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<MatvecShape> shapes;
    for (int64_t cols : kWidths)
      for (int64_t rows : kBuckets) shapes.push_back(matvec_shape(rows, cols, 2, 2));
    prepare_matvec("norm_gate_up", shapes);
  }

  // The gate's slope is at most 1.1 and its value at most |g|; expf and three operations add 2^-20 of the result, and
  // the store rounds to bf16, by at most 2^-8 of it.
  static void compare(const MatvecShape& shape, const MatvecData& data) {
    const std::vector<bf16> y = RunNormGateUp::run(shape, data, static_cast<int32_t>(shape.rows));
    for (int64_t m = 0; m < shape.rows; ++m) {
      const std::vector<double> row = normed_row(data, m);
      for (int64_t i = 0; i < shape.outputs / 2; ++i) {
        const Dot gate = normed_dot(shape, data, row, 2 * i), up = normed_dot(shape, data, row, 2 * i + 1);
        const double silu = gate.value * sigmoid(gate.value), expected = silu * up.value;
        const double before_rounding = 1.1 * gate.bound * (std::abs(up.value) + up.bound) + std::abs(silu) * up.bound +
                                       0x1p-20 * std::abs(expected);
        const double bound = before_rounding + 0x1p-8 * (std::abs(expected) + before_rounding);
        ASSERT_NEAR(value_of(y[data.count(m * data.y_stride + i)]), expected, bound)
            << "row " << m << ", element " << i << ", cols " << shape.cols;
      }
    }
  }
};

TEST_F(NormGateUpValues, AgreeWithTheReferenceAtOddSizes) {
  for (const int64_t rows : kBuckets)
    for (const int64_t cols : kWidths)
      for (const int64_t pairs : {1, 7, 131}) {
        const MatvecShape shape = matvec_shape(rows, cols, 2 * pairs, 2);
        compare(shape, MatvecData(shape));
      }
}

TEST_F(NormGateUpValues, AgreeWithTheReferenceOverManySegments) {
  const MatvecShape shape = matvec_shape(8, 100, 2 * 1003, 2);
  compare(shape, MatvecData(shape));
}

// Gates of +-1000: exp overflows to infinity on one side and vanishes on the other.
TEST_F(NormGateUpValues, OfHugeGatesAreTheUpValueOrZero) {
  const MatvecShape shape = matvec_shape(1, 100, 4, 2);
  MatvecData data(shape);
  for (int64_t k = 0; k < data.cols; ++k) {
    data.x[data.count(k)] = 1.0f;
    data.gain[data.count(k)] = to_bf16(1.0);
    data.weight[data.count(0 * data.stride + k)] = to_bf16(10.0);   // gate 0: 1000
    data.weight[data.count(1 * data.stride + k)] = to_bf16(0.125);  // up 0: 12.5
    data.weight[data.count(2 * data.stride + k)] = to_bf16(-10.0);  // gate 1: -1000
    data.weight[data.count(3 * data.stride + k)] = to_bf16(0.125);
  }
  data.eps = 0.0f;
  const std::vector<bf16> y = RunNormGateUp::run(shape, data, 1);
  EXPECT_EQ(value_of(y[0]), rounded_to_bf16(12500.0));
  EXPECT_EQ(value_of(y[1]), 0.0f);
}

}  // namespace
}  // namespace nodewright::test
