// Kernels that norm and add what the block before has projected: the sum against a double-precision reference, what
// they make of it against their own form without a post norm, which rows they store.
#include <gtest/gtest.h>

#include "tests/kernels/projection/matvec.h"

namespace nodewright::test::post_norm_test {
namespace {

constexpr int64_t kOutputs = 38;

// On vectors, and on tensor cores.
template <class Projection, class ShapeOfRun>
struct PostNormRun : Projection {
  using Shape = ShapeOfRun;

  static constexpr bool kTiled = std::is_same_v<Shape, TileShape>;
  // Both forms of a thread's second look at what joins x; rows that end within 16 bytes; a row a tile, and two tiles.
  static constexpr int64_t kSizes[5][2] = {{kTiled ? 4 : 1, 100}, {2, 2049}, {3, 100}, {8, 1163}, {16, 192}};

  static Shape shape(int64_t rows, int64_t cols, bool post_norm = true) {
    Shape s{rows, cols, (cols + 7) / 8 * 8, kOutputs, Projection::kUnit, true};
    if constexpr (kTiled) s.post_normed = post_norm;
    return s;
  }
};

template <class Run>
class PostNorm : public ::testing::Test {
 protected:
  using Element = typename Run::Element;
  struct Result {
    std::vector<Element> y;
    std::vector<float> x_next;
  };

  static MatvecData data_of(const typename Run::Shape& shape, const std::vector<uint64_t>& numbers, Norm norm) {
    MatvecData data(shape, numbers);
    data.family = {.norm = norm, .post_norm = true};
    return data;
  }
  static MatvecData data_of(const typename Run::Shape& shape, Norm norm = Norm::rms_one_plus) {
    return data_of(shape, MatvecData::first_numbers(shape.rows), norm);
  }
  static Result run(const typename Run::Shape& shape, const MatvecData& data, int64_t n_live, unsigned blocks = 0) {
    Result result;
    result.y = Run::run(shape, data, static_cast<int32_t>(n_live), blocks, &result.x_next);
    return result;
  }
  static auto row(const std::vector<Element>& y, int64_t m) {
    return row_of(y, m, kOutputs / Run::kUnit + MatvecData::kPadding, kOutputs / Run::kUnit);
  }

  // The sum of squares is off by some 2^-20 of itself, and a handful of roundings follow.
  static void expect_sums(const MatvecData& d, const std::vector<float>& x_next, int64_t n_live) {
    const float poison = poisoned<float>(1)[0];  // not the NaN of a padded row
    for (int64_t m = 0; m < d.rows; ++m) {
      const auto at = [&](const std::vector<float>& v, int64_t k) { return v[d.count(m * d.stride + k)]; };
      double squares = 0;
      for (int64_t k = 0; k < d.cols; ++k) squares += std::pow(static_cast<double>(at(d.projected, k)), 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(d.cols) + d.eps);
      for (int64_t k = 0; k < d.stride; ++k) {
        const float found = at(x_next, k);
        if (m >= n_live) {
          ASSERT_EQ(std::memcmp(&found, &poison, sizeof(found)), 0) << "row " << m << ", padding, element " << k;
        } else if (k >= d.cols) {
          ASSERT_EQ(found, 0.0f) << "row " << m << ", padding " << k;
        } else {
          const double x = at(d.x, k), gain = value_of(d.post_gain[d.count(k)]) + (d.family.norm == Norm::rms ? 0 : 1),
                       added = at(d.projected, k) * scale * gain;
          ASSERT_NEAR(found, x + added, 0x1p-20 * (std::abs(x) + std::abs(added)))
              << "row " << m << " of " << d.rows << ", element " << k << " of " << d.cols;
        }
      }
    }
  }

  // What the form without a post norm, whose values have tests of their own, makes of the sums.
  static std::vector<Element> of_sums(const MatvecData& data, const std::vector<float>& x_next, int64_t n_live) {
    MatvecData plain = data;
    plain.x = x_next;
    plain.family.post_norm = false;
    return Run::run(Run::shape(data.rows, data.cols, false), plain, static_cast<int32_t>(n_live));
  }
};

struct NameOfPostNormRun {
  template <class Run>
  static std::string GetName(int) {
    return (Run::kTiled ? "tile_" : "") + std::string(Run::kName);
  }
};
using PostNormRuns = ::testing::Types<PostNormRun<RunNormProject, MatvecShape>, PostNormRun<RunNormGateUp, MatvecShape>,
                                      PostNormRun<RunNormProject, TileShape>, PostNormRun<RunNormGateUp, TileShape>>;
TYPED_TEST_SUITE(PostNorm, PostNormRuns, NameOfPostNormRun);

TYPED_TEST(PostNorm, AddsWhatTheReferenceAddsAndProjectsTheSum) {
  std::vector<typename TypeParam::Shape> shapes, plain;
  for (const auto& [rows, cols] : TypeParam::kSizes) {
    shapes.push_back(TypeParam::shape(rows, cols));
    plain.push_back(TypeParam::shape(rows, cols, false));
  }
  prepare_matvec(TypeParam::kName, shapes, {{.norm = Norm::rms_one_plus, .post_norm = true}});
  prepare_matvec(TypeParam::kName, plain, {{.norm = Norm::rms_one_plus}});
  for (const auto& shape : shapes) {
    const MatvecData data = this->data_of(shape);
    const auto found = this->run(shape, data, shape.rows);
    this->expect_sums(data, found.x_next, shape.rows);
    if (this->HasFatalFailure()) return;
    EXPECT_TRUE(same_bits(found.y, this->of_sums(data, found.x_next, shape.rows)))
        << shape.rows << " rows of " << shape.cols;
  }
}

TYPED_TEST(PostNorm, AddsByTheGainAloneWhereTheFamilyHasNoOne) {
  const auto shape = TypeParam::shape(4, 100);
  const MatvecData data = this->data_of(shape, Norm::rms);
  const auto found = this->run(shape, data, 4);
  this->expect_sums(data, found.x_next, 4);
  EXPECT_TRUE(same_bits(found.y, this->of_sums(data, found.x_next, 4)));
}

TYPED_TEST(PostNorm, StoresTheLiveRowsAndNothingElse) {
  for (const int64_t rows : {4, 11}) {
    const auto shape = TypeParam::shape(rows, 100);
    const MatvecData data = this->data_of(shape);
    const auto full = this->run(shape, data, rows);
    for (const int64_t n_live : {1, 3, 9}) {
      if (n_live > rows) continue;
      MatvecData partial = data;  // what padded rows hold is NaN
      for (std::vector<float>* v : {&partial.x, &partial.projected})
        std::fill(v->begin() + n_live * data.stride, v->end(), kNaN);
      const auto found = this->run(shape, partial, n_live);
      this->expect_sums(partial, found.x_next, n_live);
      if (this->HasFatalFailure()) return;
      const auto before = TypeParam::initial(data);
      for (int64_t m = 0; m < rows; ++m)
        ASSERT_TRUE(same_bits(this->row(found.y, m), this->row(m < n_live ? full.y : before, m))) << "row " << m;
    }
  }
}

TYPED_TEST(PostNorm, GivesARowTheSameBitsInEveryBucketAndPlaceAndOnAnyGrid) {
  constexpr uint64_t kNumber = 7;
  const auto alone =
      this->run(TypeParam::shape(TypeParam::kTiled ? 4 : 1, 100),
                this->data_of(TypeParam::shape(TypeParam::kTiled ? 4 : 1, 100),
                              std::vector<uint64_t>(TypeParam::kTiled ? 4 : 1, kNumber), Norm::rms_one_plus),
                1);
  for (const int64_t rows : {2, 3, 8, 16})
    for (const int64_t place : {int64_t{0}, rows - 1}) {
      std::vector<uint64_t> numbers = MatvecData::first_numbers(rows);
      for (uint64_t& number : numbers) number += 20;
      numbers[static_cast<size_t>(place)] = kNumber;
      const auto shape = TypeParam::shape(rows, 100);
      for (const unsigned blocks : {0u, 1u, 7u}) {
        const auto found = this->run(shape, this->data_of(shape, numbers, Norm::rms_one_plus), rows, blocks);
        EXPECT_TRUE(same_bits(row_of(found.x_next, place, shape.stride, shape.stride),
                              row_of(alone.x_next, 0, shape.stride, shape.stride)))
            << "place " << place << " of " << rows << ", " << blocks << " blocks";
        EXPECT_TRUE(same_bits(this->row(found.y, place), this->row(alone.y, 0)))
            << "place " << place << " of " << rows << ", " << blocks << " blocks";
      }
    }
}

TYPED_TEST(PostNorm, NeedsNowhereToLeaveTheSum) {
  const auto shape = TypeParam::shape(4, 100);
  const MatvecData data = this->data_of(shape);
  EXPECT_TRUE(same_bits(TypeParam::run(shape, data, 4), this->run(shape, data, 4).y));
}

}  // namespace
}  // namespace nodewright::test::post_norm_test
