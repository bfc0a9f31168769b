// What the four weight-streaming kernels promise alike: which rows and elements they store, and that a row's bits
// depend on that row only. Their values are compared in a file of each.
#include "tests/kernels/projection/matvec.h"

#include <gtest/gtest.h>

namespace nodewright::test::matvec_test {
namespace {

constexpr int64_t kCols = 192, kOutputs = 38;
constexpr int64_t kBuckets[] = {1, 2, 3, 4, 5, 8, 12, 16};

template <class Run>
class MatvecKernel : public ::testing::Test {
 protected:
  static MatvecShape shape(int64_t rows) { return matvec_shape(rows, kCols, kOutputs, Run::kUnit); }
  static int64_t row_elements() { return kOutputs / Run::kUnit; }

  static void SetUpTestSuite() {
    std::vector<MatvecShape> shapes;
    for (int64_t rows : kBuckets) shapes.push_back(shape(rows));
    prepare_matvec(Run::kName, shapes);
  }

  // Row `m` of a result, without its padding.
  static auto row(const std::vector<typename Run::Element>& y, int64_t m) {
    return row_of(y, m, row_elements() + MatvecData::kPadding, row_elements());
  }
};

struct NameOfRun {
  template <class Run>
  static std::string GetName(int) {
    return Run::kName;
  }
};
using Runs = ::testing::Types<RunNormProject, RunNormGateUp, RunProjectAdd, RunProject>;
TYPED_TEST_SUITE(MatvecKernel, Runs, NameOfRun);

TYPED_TEST(MatvecKernel, StoresTheLiveRowsAndNothingElse) {
  for (const int64_t rows : kBuckets) {
    const MatvecShape shape = this->shape(rows);
    const MatvecData data(shape);
    const auto before = TypeParam::initial(data);
    const auto full = TypeParam::run(shape, data, static_cast<int32_t>(rows));
    for (int32_t n_live = 1; n_live <= rows; ++n_live) {
      MatvecData partial = data;  // what padded rows hold is NaN
      std::fill(partial.x.begin() + n_live * data.stride, partial.x.end(), kNaN);
      std::fill(partial.packed_x.begin() + n_live * data.stride, partial.packed_x.end(), to_bf16(kNaN));
      const auto y = TypeParam::run(shape, partial, n_live);
      for (int64_t m = 0; m < rows; ++m) {
        SCOPED_TRACE("rows " + std::to_string(rows) + ", n_live " + std::to_string(n_live) + ", row " +
                     std::to_string(m));
        ASSERT_TRUE(same_bits(this->row(y, m), this->row(m < n_live ? full : before, m)));
        const int64_t padding = m * data.y_stride + this->row_elements();
        ASSERT_TRUE(
            same_bits(row_of(y, padding, 1, MatvecData::kPadding), row_of(before, padding, 1, MatvecData::kPadding)));
      }
    }
  }
}

TYPED_TEST(MatvecKernel, GivesARowTheSameBitsInEveryBucketAndPlace) {
  constexpr uint64_t kNumber = 7;
  const MatvecData alone(this->shape(1), {kNumber});
  const auto expected = TypeParam::run(this->shape(1), alone, 1);
  for (const int64_t rows : kBuckets) {
    for (int64_t place = 0; place < rows; ++place) {
      std::vector<uint64_t> numbers = MatvecData::first_numbers(rows);
      for (uint64_t& number : numbers) number += 20;
      numbers[static_cast<size_t>(place)] = kNumber;
      const auto y =
          TypeParam::run(this->shape(rows), MatvecData(this->shape(rows), numbers), static_cast<int32_t>(rows));
      EXPECT_TRUE(same_bits(this->row(y, place), this->row(expected, 0))) << "place " << place << " of " << rows;
    }
  }
}

TYPED_TEST(MatvecKernel, GivesTheSameBitsOnAnyGrid) {
  const MatvecShape shape = this->shape(4);
  const MatvecData data(shape);
  const auto expected = TypeParam::run(shape, data, 3);
  for (const unsigned blocks : {1u, 2u, 3u, 5u, 7u, static_cast<unsigned>(kOutputs / TypeParam::kUnit)})
    EXPECT_TRUE(same_bits(TypeParam::run(shape, data, 3, blocks), expected)) << blocks << " blocks";
}

TYPED_TEST(MatvecKernel, GivesTheSameBitsWithPartialSumsOfABlocksOwnRows) {
  constexpr int64_t kSms = 2;
  for (const int64_t rows : {1, 4}) {
    const MatvecShape shape = this->shape(rows);
    MatvecShape fitted = shape;
    fitted.fit_segment(kSms);
    const unsigned blocks = shape.launch_shape(kSms).grid[0];
    EXPECT_GE(fitted.segment() * blocks, shape.outputs);
    EXPECT_LT(fitted.segment(), shape.segment());
    EXPECT_LT(fitted.shared_bytes(), shape.shared_bytes());
    const MatvecData data(shape);
    EXPECT_TRUE(same_bits(TypeParam::run(fitted, data, 1, blocks), TypeParam::run(shape, data, 1, blocks))) << rows;
  }
}

TYPED_TEST(MatvecKernel, DoesNotReadTheLiveCountAtBucketOne) {
  const MatvecData data(this->shape(1));
  EXPECT_TRUE(same_bits(TypeParam::run(this->shape(1), data, 0), TypeParam::run(this->shape(1), data, 1)));
}

TYPED_TEST(MatvecKernel, KeepsNaNAndInfinityInTheirRows) {
  const MatvecShape shape = this->shape(4);
  const MatvecData clean(shape);
  MatvecData data = clean;
  data.x[static_cast<size_t>(1 * data.stride + 3)] = kNaN;
  data.packed_x[static_cast<size_t>(1 * data.stride + 3)] = to_bf16(kNaN);
  data.x[static_cast<size_t>(3 * data.stride + kCols - 1)] = kInfinity;
  data.packed_x[static_cast<size_t>(3 * data.stride + kCols - 1)] = to_bf16(kInfinity);
  const auto expected = TypeParam::run(shape, clean, 4), y = TypeParam::run(shape, data, 4);
  for (const int64_t m : {0, 2}) EXPECT_TRUE(same_bits(this->row(y, m), this->row(expected, m))) << m;
  for (const int64_t m : {1, 3})
    for (const auto& element : this->row(y, m)) {
      float value;
      if constexpr (std::is_same_v<typename TypeParam::Element, bf16>)
        value = value_of(element);
      else
        value = element;
      ASSERT_FALSE(std::isfinite(value)) << m;
    }
}

}  // namespace
}  // namespace nodewright::test::matvec_test
