// norm_gate_up against a double-precision reference.
#include <gtest/gtest.h>

#include "tests/kernels/projection/matvec.h"

namespace nodewright::test::norm_gate_up_test {
namespace {

constexpr int64_t kWidths[] = {100, 1000, 2048};
constexpr int64_t kBuckets[] = {1, 8};

double sigmoid(double v) { return 1.0 / (1.0 + std::exp(-v)); }

// transformers, activations.py: gelu, gelu_new and gelu_pytorch_tanh, silu.
double activated(Activation f, double v) {
  switch (f) {
    case Activation::gelu_erf:
      return 0.5 * v * (1 + std::erf(v / std::sqrt(2.0)));
    case Activation::gelu_tanh:
      return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    case Activation::silu:
      return v * sigmoid(v);
    case Activation::none:
      break;
  }
  return v;
}

// Gemma's, GPT-2's and nanoGPT's; without a gate outputs are dealt one by one.
struct Half {
  MatvecFamily family;
  int64_t unit;
};
const std::vector<Half> kHalves = {{{.norm = Norm::rms_one_plus, .activation = Activation::gelu_tanh}, 2},
                                   {{.norm = Norm::layer, .biases = true, .activation = Activation::gelu_tanh}, 1},
                                   {{.norm = Norm::layer, .biases = true, .activation = Activation::gelu_erf}, 1}};

class NormGateUpValues : public ::testing::Test {
 protected:
  // The slope of f is at most 1.13 and its value at most |g|; expf, erff or tanhf and a few operations add 2^-20 of |g|
  // times the rest (the gelus subtract nearly equal numbers where g is negative), and the store rounds to bf16, by at
  // most 2^-8 of the result.
  static void compare(const MatvecShape& shape, const MatvecData& data) {
    const std::vector<bf16> y = RunNormGateUp::run(shape, data, static_cast<int32_t>(shape.rows));
    for (int64_t m = 0; m < shape.rows; ++m) {
      const std::vector<double> row = normed_row(data, m);
      for (int64_t i = 0; i < shape.outputs / shape.unit; ++i) {
        const auto product = [&](int64_t n) {
          Dot d = normed_dot(shape, data, row, n);
          d.value += bias_of(data, n);
          return d;
        };
        const Dot gate = product(shape.unit * i), up = shape.unit == 2 ? product(2 * i + 1) : Dot{1.0, 0.0};
        const double f = activated(data.family.activation, gate.value), expected = f * up.value;
        const double before_rounding = 1.13 * gate.bound * (std::abs(up.value) + up.bound) + std::abs(f) * up.bound +
                                       0x1p-20 * std::abs(gate.value * up.value);
        const double bound = before_rounding + 0x1p-8 * (std::abs(expected) + before_rounding);
        ASSERT_NEAR(value_of(y[data.count(m * data.y_stride + i)]), expected, bound)
            << "row " << m << ", element " << i << ", cols " << shape.cols;
      }
    }
  }
};

TEST_F(NormGateUpValues, AgreeWithTheReferenceAtOddSizes) {
  std::vector<MatvecShape> shapes;
  for (const int64_t cols : kWidths)
    for (const int64_t rows : kBuckets) shapes.push_back(matvec_shape(rows, cols, 2, 2));
  prepare_matvec("norm_gate_up", shapes);
  for (const int64_t rows : kBuckets)
    for (const int64_t cols : kWidths)
      for (const int64_t pairs : {1, 7, 131}) {
        const MatvecShape shape = matvec_shape(rows, cols, 2 * pairs, 2);
        compare(shape, MatvecData(shape));
      }
}

TEST_F(NormGateUpValues, AgreeWithTheReferenceForEveryActivationWithAndWithoutAGate) {
  for (const Half& half : kHalves) {
    std::vector<MatvecShape> shapes;
    for (const int64_t rows : kBuckets) shapes.push_back(matvec_shape(rows, 100, half.unit, half.unit));
    prepare_matvec("norm_gate_up", shapes, {half.family});
  }
  for (const Half& half : kHalves)
    for (const int64_t rows : kBuckets)
      for (const int64_t elements : {1, 7, 131}) {
        const MatvecShape shape = matvec_shape(rows, 100, half.unit * elements, half.unit);
        MatvecData data(shape);
        data.family = half.family;
        SCOPED_TRACE("activation " + std::to_string(static_cast<int>(half.family.activation)));
        compare(shape, data);
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
}  // namespace nodewright::test::norm_gate_up_test
