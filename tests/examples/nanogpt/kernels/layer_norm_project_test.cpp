// layer_norm_project against a double-precision reference.
#include <gtest/gtest.h>

#include "tests/examples/nanogpt/kernels/projection.h"

namespace nodewright::test::layer_norm_project_test {
namespace {

// Below, at and above what a group of lanes, a lane's one load, and what is requested ahead hold; with ragged ends.
constexpr int64_t kWidths[] = {3, 32, 100, 768, 1601};

// Phi from the complementary error function, whose relative error stays small for large negative v.
double activated(Activation activation, double v) {
  if (activation == Activation::gelu_erf) return v * 0.5 * std::erfc(-v * M_SQRT1_2);
  if (activation == Activation::gelu_tanh)
    return 0.5 * v * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (v + 0.044715 * v * v * v)));
  return v;
}

template <class W>
class LayerNormProjectValues : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<KernelRequest> requests;
    for (int64_t cols : kWidths) requests.push_back(projection_request("layer_norm_project", shape(1, cols, 1)));
    for (Activation f : {Activation::gelu_erf, Activation::gelu_tanh})
      requests.push_back(projection_request("layer_norm_project", shape(1, 100, 1), f));
    nanogpt_kernel_cache().prepare(requests);
  }

  static ProjectionShape shape(int64_t rows, int64_t cols, int64_t outputs) {
    return projection_shape<W>(rows, cols, outputs);
  }

  // Rows past n_live and everything after a row's outputs must stay as they were.
  static void compare(const ProjectionData<W>& d, Activation activation, int32_t n_live, unsigned grid_x = 0) {
    const std::vector<float> y = run_layer_norm_project(d, activation, n_live, grid_x);
    const std::vector<float> untouched = poisoned<float>(count_of(d.y_stride));
    for (int64_t m = 0; m < d.shape.rows; ++m) {
      const int64_t outputs = m < n_live ? d.shape.outputs : 0;
      std::vector<double> x, off;
      normed_row(d, m, x, off);
      for (int64_t n = 0; n < outputs; ++n) {
        const Bounded sum = dot(d, x, off, n);
        // GELU is steeper than 1 by at most an eighth; erff and tanhf add two units of the result's size (CUDA
        // programming guide, mathematical functions), of which 1 + erf may be a small difference.
        const double bound = 1.13 * sum.bound + 4 * kUnit * std::abs(sum.value);
        ASSERT_NEAR(y[count_of(m * d.y_stride + n)], activated(activation, sum.value), bound)
            << "row " << m << ", output " << n << ", cols " << d.shape.cols << ", outputs " << d.shape.outputs;
      }
      EXPECT_TRUE(same_bits(row_of(y, m, d.y_stride, d.y_stride).subspan(count_of(outputs)),
                            std::span<const float>(untouched).subspan(count_of(outputs))))
          << "row " << m;
    }
  }
};

using Elements = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(LayerNormProjectValues, Elements);

TYPED_TEST(LayerNormProjectValues, AgreeWithTheReferenceAtOddSizes) {
  for (const int64_t cols : kWidths)
    for (const int64_t outputs : {1, 7, 131})
      this->compare(ProjectionData<TypeParam>(this->shape(3, cols, outputs)), Activation::none, 3);
}

TYPED_TEST(LayerNormProjectValues, AgreeThroughBothFormsOfGelu) {
  for (Activation f : {Activation::gelu_erf, Activation::gelu_tanh})
    this->compare(ProjectionData<TypeParam>(this->shape(2, 100, 131)), f, 2);
}

TYPED_TEST(LayerNormProjectValues, NeedNoBias) {
  ProjectionData<TypeParam> data(this->shape(1, 100, 7));
  data.bias.clear();
  this->compare(data, Activation::none, 1);
}

TYPED_TEST(LayerNormProjectValues, OfPaddedRowsAreNotWritten) {
  for (int32_t n_live = 0; n_live <= 3; ++n_live)
    this->compare(ProjectionData<TypeParam>(this->shape(3, 100, 7)), Activation::none, n_live);
}

TYPED_TEST(LayerNormProjectValues, AreTheSameBitsHoweverOutputsAreDealtToBlocks) {
  const ProjectionData<TypeParam> data(this->shape(2, 100, 131));
  const std::vector<float> one = run_layer_norm_project(data, Activation::none, 2, 1);
  for (unsigned blocks : {2u, 5u, 64u, 131u})
    EXPECT_TRUE(same_bits(run_layer_norm_project(data, Activation::none, 2, blocks), one)) << blocks;
}

// A constant row has no variance: what is left is the shift.
TYPED_TEST(LayerNormProjectValues, OfAConstantRowAreRuledByTheShift) {
  ProjectionData<TypeParam> data(this->shape(1, 100, 7));
  std::fill(data.x.begin(), data.x.begin() + 100, 0.25f);
  this->compare(data, Activation::none, 1);
}

TYPED_TEST(LayerNormProjectValues, OfASmallRowAreRuledByEps) {
  ProjectionData<TypeParam> data(this->shape(1, 100, 7));
  for (int64_t k = 0; k < 100; ++k) data.x[count_of(k)] *= 1e-3f;
  data.eps = 1e-2f;
  this->compare(data, Activation::none, 1);
}

TYPED_TEST(LayerNormProjectValues, OfARowWithANaNAreNaN) {
  ProjectionData<TypeParam> data(this->shape(2, 100, 7));
  data.x[3] = kNaN;
  const std::vector<float> y = run_layer_norm_project(data, Activation::none, 2);
  for (int64_t n = 0; n < 7; ++n) {
    EXPECT_TRUE(std::isnan(y[count_of(n)]));
    EXPECT_FALSE(std::isnan(y[count_of(data.y_stride + n)]));
  }
}

}  // namespace
}  // namespace nodewright::test::layer_norm_project_test
