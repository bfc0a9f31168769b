// project_bias_add against a double-precision reference.
#include <gtest/gtest.h>

#include "tests/examples/nanogpt/kernels/projection.h"

namespace nodewright::test::project_bias_add_test {
namespace {

// As in layer_norm_project_test, and one wider than any that is held in registers.
constexpr int64_t kWidths[] = {3, 32, 100, 768, 6401};

template <class W>
class ProjectBiasAddValues : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    std::vector<KernelRequest> requests;
    for (int64_t cols : kWidths) requests.push_back(projection_request("project_bias_add", shape(1, cols, 1)));
    nanogpt_kernel_cache().prepare(requests);
  }

  static ProjectionShape shape(int64_t rows, int64_t cols, int64_t outputs) {
    return projection_shape<W>(rows, cols, outputs);
  }

  static void compare(const ProjectionData<W>& d, int32_t n_live) {
    const std::vector<float> y = run_project_bias_add(d, n_live);
    for (int64_t m = 0; m < d.shape.rows; ++m) {
      const int64_t outputs = m < n_live ? d.shape.outputs : 0;
      std::vector<double> x;
      for (int64_t k = 0; k < d.shape.cols; ++k) x.push_back(d.x[count_of(m * d.x_stride + k)]);
      for (int64_t n = 0; n < outputs; ++n) {
        const Bounded sum = dot(d, x, std::vector<double>(x.size(), 0.0), n);
        const double expected = d.residual[count_of(m * d.y_stride + n)] + sum.value;
        ASSERT_NEAR(y[count_of(m * d.y_stride + n)], expected, 1.01 * sum.bound + kUnit * std::abs(expected))
            << "row " << m << ", output " << n << ", cols " << d.shape.cols << ", outputs " << d.shape.outputs;
      }
      EXPECT_TRUE(same_bits(row_of(y, m, d.y_stride, d.y_stride).subspan(count_of(outputs)),
                            row_of(d.residual, m, d.y_stride, d.y_stride).subspan(count_of(outputs))))
          << "row " << m;
    }
  }
};

using Elements = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(ProjectBiasAddValues, Elements);

TYPED_TEST(ProjectBiasAddValues, AgreeWithTheReferenceAtOddSizes) {
  for (const int64_t cols : kWidths)
    for (const int64_t outputs : {1, 7, 131})
      this->compare(ProjectionData<TypeParam>(this->shape(3, cols, outputs)), 3);
}

TYPED_TEST(ProjectBiasAddValues, NeedNoBias) {
  ProjectionData<TypeParam> data(this->shape(1, 100, 7));
  data.bias.clear();
  this->compare(data, 1);
}

TYPED_TEST(ProjectBiasAddValues, OfPaddedRowsAreNotWritten) {
  for (int32_t n_live = 0; n_live <= 3; ++n_live)
    this->compare(ProjectionData<TypeParam>(this->shape(3, 100, 7)), n_live);
}

TYPED_TEST(ProjectBiasAddValues, AreTheSameBitsHoweverOutputsAreDealtToBlocks) {
  const ProjectionData<TypeParam> data(this->shape(2, 100, 131));
  const std::vector<float> one = run_project_bias_add(data, 2, 1);
  for (unsigned blocks : {2u, 5u, 64u, 131u}) EXPECT_TRUE(same_bits(run_project_bias_add(data, 2, blocks), one));
}

}  // namespace
}  // namespace nodewright::test::project_bias_add_test
