// norm_project against a double-precision reference.
#include <gtest/gtest.h>

#include <span>

#include "tests/kernels/projection/matvec.h"

namespace nodewright::test::norm_project_test {
namespace {

// Widths below, at and above a warp's and a block's reach, with and without a ragged end.
constexpr int64_t kWidths[] = {100, 1000, 2048, 2049, 8200};
constexpr int64_t kBuckets[] = {1, 4};
// Beside Llama's. A row of 32 or 100 leaves threads of the warp without a column, which no mean may count.
const std::vector<MatvecFamily> kFamilies = {{.norm = Norm::rms_one_plus},
                                             {.norm = Norm::layer},
                                             {.norm = Norm::layer, .biases = true},
                                             {.norm = Norm::none, .biases = true},
                                             {.biases = true, .scale = 0.3f, .cap = 2.0f}};
constexpr int64_t kWidthsOfFamilies[] = {32, 100, 768, 2049};

class NormProjectValues : public ::testing::Test {
 protected:
  // At once, and no more than the test needs: ctest runs each in a process of its own.
  static void prepare(std::span<const int64_t> widths, const std::vector<MatvecFamily>& families = {{}}) {
    std::vector<MatvecShape> shapes;
    for (const int64_t cols : widths)
      for (const int64_t rows : kBuckets) shapes.push_back(matvec_shape(rows, cols, 1, 1));
    prepare_matvec("norm_project", shapes, families);
  }

  static void compare(const MatvecShape& shape, const MatvecData& data) {
    const std::vector<float> y = RunNormProject::run(shape, data, static_cast<int32_t>(shape.rows));
    for (int64_t m = 0; m < shape.rows; ++m) {
      const std::vector<double> row = normed_row(data, m);
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const Dot product = normed_dot(shape, data, row, n);
        const double value = product.value + bias_of(data, n);
        const Dot expected = shaped(data, {value, product.bound + 0x1p-24 * std::abs(value)});
        ASSERT_NEAR(y[data.count(m * data.y_stride + n)], expected.value, expected.bound)
            << "row " << m << ", output " << n << ", cols " << shape.cols << ", outputs " << shape.outputs;
      }
    }
  }
};

TEST_F(NormProjectValues, AgreeWithTheReferenceAtOddSizes) {
  prepare(kWidths);
  for (const int64_t rows : kBuckets)
    for (const int64_t cols : kWidths)
      for (const int64_t outputs : {1, 7, 131}) {
        const MatvecShape shape = matvec_shape(rows, cols, outputs, 1);
        compare(shape, MatvecData(shape));
      }
}

// What run() expects of the best of each part holds in both: one has a NaN, and larger numbers after it.
TEST_F(NormProjectValues, APartWithANaNHasNoBest) {
  const MatvecShape shape = matvec_shape(1, 100, 131, 1);
  MatvecData data(shape);
  data.weight[data.count(3 * data.stride)] = bf16{0x7fc0};
  const std::vector<float> y = RunNormProject::run(shape, data, 1, 2);
  EXPECT_TRUE(std::isnan(y[3]));
  EXPECT_FALSE(std::isnan(y[131 - 1]));
}

using NormProjectSweep = NormProjectValues;

TEST_F(NormProjectSweep, AgreeWithTheReferenceForEveryNormAndBias) {
  prepare(kWidthsOfFamilies, kFamilies);
  for (const MatvecFamily& family : kFamilies)
    for (const int64_t rows : kBuckets)
      for (const int64_t cols : kWidthsOfFamilies)
        for (const int64_t outputs : {7, 131}) {
          const MatvecShape shape = matvec_shape(rows, cols, outputs, 1);
          MatvecData data(shape);
          data.family = family;
          SCOPED_TRACE("norm " + std::to_string(static_cast<int>(family.norm)));
          compare(shape, data);
        }
}

// The mean is 1000 times the deviation: squares minus the square of the mean would lose it.
TEST_F(NormProjectValues, OfALayerNormSurviveALargeMean) {
  const MatvecShape shape = matvec_shape(1, 768, 7, 1);
  MatvecData data(shape);
  data.family = {.norm = Norm::layer};
  for (int64_t k = 0; k < 768; ++k)
    data.x[data.count(k)] = static_cast<float>(1000 + std::ldexp(std::round(8 * noise(9, data.count(k))), -3));
  const std::vector<float> y = RunNormProject::run(shape, data, 1);
  const std::vector<double> row = normed_row(data, 0);
  for (int64_t n = 0; n < shape.outputs; ++n)
    EXPECT_NEAR(y[data.count(n)], normed_dot(shape, data, row, n).value, 2e-3);
}

TEST_F(NormProjectValues, AgreeWithTheReferenceOverManySegments) {
  const MatvecShape shape = matvec_shape(4, 100, 1003, 1);
  compare(shape, MatvecData(shape));
}

TEST_F(NormProjectValues, AreTheSameBitsWhenRunAgain) {
  const MatvecShape shape = matvec_shape(4, 1000, 131, 1);
  const MatvecData data(shape);
  EXPECT_TRUE(same_bits(RunNormProject::run(shape, data, 4), RunNormProject::run(shape, data, 4)));
}

TEST_F(NormProjectValues, OfAZeroRowAreZero) {
  const MatvecShape shape = matvec_shape(1, 100, 7, 1);
  MatvecData data(shape);
  std::fill(data.x.begin(), data.x.end(), 0.0f);
  const std::vector<float> y = RunNormProject::run(shape, data, 1);
  for (int64_t n = 0; n < shape.outputs; ++n) EXPECT_EQ(y[data.count(n)], 0.0f);
}

TEST_F(NormProjectValues, OfASmallRowAreRuledByEps) {
  const MatvecShape shape = matvec_shape(1, 100, 7, 1);
  MatvecData data(shape);
  for (float& x : data.x) x *= 1e-4f;
  data.eps = 1e-2f;
  compare(shape, data);
}

}  // namespace
}  // namespace nodewright::test::norm_project_test
