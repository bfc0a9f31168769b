// norm_project against a double-precision reference.
#include <gtest/gtest.h>

#include "tests/kernels/matvec.h"

namespace nodewright::test {
namespace {

// Widths below, at and above a warp's and a block's reach, with and without a ragged end.
constexpr int64_t kWidths[] = {100, 1000, 2048, 2049, 8200};
constexpr int64_t kBuckets[] = {1, 4};

class NormProjectValues : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<MatvecShape> shapes;
    for (int64_t cols : kWidths)
      for (int64_t rows : kBuckets) shapes.push_back(matvec_shape(rows, cols, 1, 1));
    prepare_matvec("norm_project", shapes);
  }

  static void compare(const MatvecShape& shape, const MatvecData& data) {
    const std::vector<float> y = RunNormProject::run(shape, data, static_cast<int32_t>(shape.rows));
    for (int64_t m = 0; m < shape.rows; ++m) {
      const std::vector<double> row = normed_row(data, m);
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const Dot expected = normed_dot(shape, data, row, n);
        ASSERT_NEAR(y[data.count(m * data.y_stride + n)], expected.value, expected.bound)
            << "row " << m << ", output " << n << ", cols " << shape.cols << ", outputs " << shape.outputs;
      }
    }
  }
};

TEST_F(NormProjectValues, AgreeWithTheReferenceAtOddSizes) {
  for (const int64_t rows : kBuckets)
    for (const int64_t cols : kWidths)
      for (const int64_t outputs : {1, 7, 131}) {
        const MatvecShape shape = matvec_shape(rows, cols, outputs, 1);
        compare(shape, MatvecData(shape));
      }
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
}  // namespace nodewright::test
