// project_add, and project, which does not add, against a double-precision reference.
#include <gtest/gtest.h>

#include "tests/kernels/projection/matvec.h"

namespace nodewright::test::project_add_test {
namespace {

constexpr int64_t kWidths[] = {100, 1000, 2049, 8200};
constexpr int64_t kBuckets[] = {1, 4};

class ProjectAddValues : public ::testing::Test {
 protected:
  // Nothing is rounded but the sums: the dot product's, and one more when it is added to the residual.
  template <class Run = RunProjectAdd>
  static void compare(const MatvecShape& shape, const MatvecData& data) {
    const std::vector<float> y = Run::run(shape, data, static_cast<int32_t>(shape.rows));
    for (int64_t m = 0; m < shape.rows; ++m) {
      std::vector<double> row;
      for (int64_t k = 0; k < data.cols; ++k) row.push_back(value_of(data.packed_x[data.count(m * data.stride + k)]));
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const Dot sum = dot(shape, data, row, n);
        const double before = std::is_same_v<Run, RunProjectAdd> ? data.residual[data.count(m * data.y_stride + n)] : 0;
        const double product = data.family.scale * (sum.value + bias_of(data, n)), expected = before + product;
        ASSERT_NEAR(y[data.count(m * data.y_stride + n)], expected,
                    1.01 * sum.bound + 0x1p-24 * (std::abs(expected) + std::abs(product)))
            << "row " << m << ", output " << n << ", cols " << shape.cols;
      }
    }
  }
};

TEST_F(ProjectAddValues, AgreeWithTheReferenceAtOddSizes) {
  std::vector<MatvecShape> shapes;
  for (const int64_t cols : kWidths)
    for (const int64_t rows : kBuckets) shapes.push_back(matvec_shape(rows, cols, 1, 1));
  prepare_matvec("project_add", shapes);
  for (const int64_t rows : kBuckets)
    for (const int64_t cols : kWidths)
      for (const int64_t outputs : {1, 7, 131}) {
        const MatvecShape shape = matvec_shape(rows, cols, outputs, 1);
        compare(shape, MatvecData(shape));
      }
}

// In blocks of 320, 192 and 384 threads, the last two with x as it came in.
TEST_F(ProjectAddValues, AgreeWithTheReferenceOfLongRows) {
  std::vector<MatvecShape> shapes;
  for (const int64_t cols : {5120, 25600, 27648}) shapes.push_back(matvec_shape(1, cols, 7, 1));
  prepare_matvec("project_add", shapes);
  std::vector<int64_t> threads;
  for (const MatvecShape& shape : shapes) {
    threads.push_back(shape.threads());
    compare(shape, MatvecData(shape));
  }
  EXPECT_EQ(threads, (std::vector<int64_t>{320, 192, 384}));
}

TEST_F(ProjectAddValues, AgreeWithTheReferenceOverManySegments) {
  const MatvecShape shape = matvec_shape(4, 100, 1003, 1);
  compare(shape, MatvecData(shape));
}

TEST_F(ProjectAddValues, AgreeWithTheReferenceWithABiasAndWithoutAdding) {
  const std::vector<MatvecShape> few = {matvec_shape(1, 100, 1, 1), matvec_shape(4, 100, 1, 1)};
  prepare_matvec("project_add", few, {{}, {.biases = true}, {.scale = 0.22f}, {.biases = true, .scale = 0.22f}});
  prepare_matvec("project", few, {{}, {.biases = true}});
  for (const int64_t rows : kBuckets)
    for (const bool biases : {false, true}) {
      const MatvecShape shape = matvec_shape(rows, 100, 131, 1);
      MatvecData data(shape);
      data.family.biases = biases;
      compare<RunProject>(shape, data);
      compare<RunProjectAdd>(shape, data);
      data.family.scale = 0.22f;
      compare<RunProjectAdd>(shape, data);
    }
}

TEST_F(ProjectAddValues, AddUpOverTwoLaunches) {
  const MatvecShape shape = matvec_shape(1, 100, 7, 1);
  MatvecData data(shape);
  const std::vector<float> once = RunProjectAdd::run(shape, data, 1);
  data.residual = once;
  const std::vector<float> twice = RunProjectAdd::run(shape, data, 1);
  data.residual.assign(data.residual.size(), 0.0f);
  const std::vector<float> sum = RunProjectAdd::run(shape, data, 1);
  for (int64_t n = 0; n < shape.outputs; ++n) EXPECT_EQ(twice[data.count(n)], once[data.count(n)] + sum[data.count(n)]);
}

}  // namespace
}  // namespace nodewright::test::project_add_test
