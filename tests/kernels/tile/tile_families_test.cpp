// The kernels of tiles in families with biases, with LayerNorms and without a gate, against a double-precision
// reference; which rows and elements they store, and that a row's bits depend on that row only.
#include <gtest/gtest.h>

#include <functional>

#include "tests/kernels/tile/expected.h"

namespace nodewright::test::tile_families_test {
namespace {

enum class Rows : uint8_t { as_they_are, gained, held };

template <class R, Rows kRows>
struct TileRun : R {
  using Run = R;
  static constexpr bool kNormed = std::is_base_of_v<RunNormProject, R> || std::is_base_of_v<RunNormGateUp, R>;

  static TileShape shape(int64_t rows, int64_t cols, const MatvecFamily& family) {
    const bool held = kRows == Rows::held, gained = kNormed && kRows != Rows::as_they_are;
    if (gained || held) cols = cols / 16 * 16;
    return {rows,
            cols,
            (cols + 7) / 8 * 8,
            70,
            R::kUnit,
            kNormed,
            false,
            gained,
            held,
            kNormed && family.norm == Norm::layer};
  }
  // A LayerNorm's rows never come gained; what is not normed has no norm.
  static std::vector<MatvecFamily> families() {
    if (!kNormed || kRows != Rows::as_they_are) return {{.biases = true}};
    return {{.norm = Norm::layer}, {.norm = Norm::layer, .biases = true}, {.biases = true}};
  }
};

struct NameOfRun {
  template <class T>
  static std::string GetName(int) {
    const std::string rows = std::is_same_v<T, TileRun<typename T::Run, Rows::held>>     ? "held_"
                             : std::is_same_v<T, TileRun<typename T::Run, Rows::gained>> ? "gained_"
                                                                                         : "";
    return rows + (std::is_same_v<typename T::Run, RunNormUp> ? "norm_up" : T::kName);
  }
};
using Runs = ::testing::Types<
    TileRun<RunNormProject, Rows::as_they_are>, TileRun<RunNormGateUp, Rows::as_they_are>,
    TileRun<RunNormUp, Rows::as_they_are>, TileRun<RunProjectAdd, Rows::as_they_are>,
    TileRun<RunProject, Rows::as_they_are>, TileRun<RunNormProject, Rows::gained>, TileRun<RunNormGateUp, Rows::gained>,
    TileRun<RunNormUp, Rows::gained>, TileRun<RunNormProject, Rows::held>, TileRun<RunNormUp, Rows::held>,
    TileRun<RunProjectAdd, Rows::held>, TileRun<RunProject, Rows::held>, TileRun<RunProjectGateUp, Rows::held>>;

template <class T>
class TileFamilies : public ::testing::Test {};
TYPED_TEST_SUITE(TileFamilies, Runs, NameOfRun);

MatvecData data_of(const TileShape& shape, const MatvecFamily& family) {
  MatvecData data(shape);
  data.family = family;
  return data;
}

// One and two tiles of tokens; warps that lack columns, and a row that ends within 16 bytes.
TYPED_TEST(TileFamilies, AgreeWithTheReferenceAtOddSizes) {
  for (const MatvecFamily& family : TypeParam::families()) {
    std::vector<TileShape> shapes;
    for (const auto& [rows, cols] : {std::pair{5, 200}, {11, 204}, {3, 36}, {8, 1163}})
      shapes.push_back(TypeParam::shape(rows, cols, family));
    prepare_matvec(TypeParam::kName, shapes, {family});
    for (const TileShape& shape : shapes) {
      SCOPED_TRACE("norm " + std::to_string(static_cast<int>(family.norm)));
      const MatvecData data = data_of(shape, family);
      expect_tiles<typename TypeParam::Run>(
          shape, data, TypeParam::run(shape, data, static_cast<int32_t>(shape.rows), 2), shape.rows);
    }
  }
}

TYPED_TEST(TileFamilies, StoreTheLiveRowsAndNothingElse) {
  const MatvecFamily family = TypeParam::families().front();
  for (const auto& [rows, n_live] : {std::pair{5, 3}, {11, 1}, {11, 9}}) {
    const TileShape shape = TypeParam::shape(rows, 204, family);
    MatvecData data = data_of(shape, family);  // what padded rows hold is NaN
    std::fill(data.x.begin() + n_live * data.stride, data.x.end(), kNaN);
    std::fill(data.packed_x.begin() + n_live * data.stride, data.packed_x.end(), to_bf16(kNaN));
    expect_tiles<typename TypeParam::Run>(shape, data, TypeParam::run(shape, data, n_live), n_live);
  }
}

TYPED_TEST(TileFamilies, GiveARowTheSameBitsInEveryBucketAndPlaceAndOnAnyGrid) {
  constexpr uint64_t kNumber = 7;
  const MatvecFamily family = TypeParam::families().back();
  std::vector<typename TypeParam::Element> expected;
  for (const int64_t rows : {2, 8, 11})
    for (const int64_t place : {int64_t{0}, rows - 1}) {
      std::vector<uint64_t> numbers = MatvecData::first_numbers(rows);
      for (uint64_t& number : numbers) number += 20;
      numbers[static_cast<size_t>(place)] = kNumber;
      const TileShape shape = TypeParam::shape(rows, 204, family);
      MatvecData data(shape, numbers);
      data.family = family;
      for (const unsigned blocks : {0u, 1u, 7u}) {
        const auto y = TypeParam::run(shape, data, static_cast<int32_t>(rows), blocks);
        const auto found = row_of(y, place, data.y_stride, shape.outputs / shape.unit);
        if (expected.empty()) expected.assign(found.begin(), found.end());
        EXPECT_TRUE(same_bits(found, std::span<const typename TypeParam::Element>(expected)))
            << "place " << place << " of " << rows << ", " << blocks << " blocks";
      }
    }
}

// Five spans of a warp, in two halves of a register file or more: what is read anew is what was read before.
TEST(TileLayerNorm, HasTheSameBitsHoweverAMatrixIsCut) {
  const MatvecFamily family{.norm = Norm::layer, .biases = true};
  std::vector<float> expected;
  for (const auto& [piece, ring] : {std::pair{5, 2}, {2, 3}, {1, 8}}) {
    TileShape shape = TileRun<RunNormProject, Rows::as_they_are>::shape(8, 1163, family);
    shape.tuning = {.warps = 4, .piece = piece, .ring = ring};
    const MatvecData data = data_of(shape, family);
    const std::vector<float> y = RunNormProject::run(shape, data, 8);
    expect_tiles<RunNormProject>(shape, data, y, 8);
    if (expected.empty()) expected = y;
    EXPECT_TRUE(same_bits(y, expected)) << piece << " spans a piece";
  }
}

// Clusters share the columns: the bias joins once.
TEST(HeldTilesWithABias, AgreeWithTheReferenceHoweverManyBlocksShareTheColumns) {
  if (!machine().device.properties().has_clusters()) GTEST_SKIP() << "no clusters";
  const auto expect = [&]<class T>(T) {
    for (const auto& [rows, n_live, splits] : {std::tuple{24, 23, 2}, {32, 32, 4}, {17, 1, 8}}) {
      TileShape shape = T::shape(rows, 1216, {});
      shape.tuning.splits = splits;
      ASSERT_TRUE(shape.holds());
      const MatvecData data = data_of(shape, {.biases = true});
      expect_tiles<typename T::Run>(shape, data, T::run(shape, data, n_live), n_live);
    }
  };
  expect(TileRun<RunNormProject, Rows::held>());
  expect(TileRun<RunNormUp, Rows::held>());
  expect(TileRun<RunProjectAdd, Rows::held>());
  expect(TileRun<RunProject, Rows::held>());
  expect(TileRun<RunProjectGateUp, Rows::held>());
}

// LayerNorms of rows of x(k / columns), and noise.
void expect_layer_norm_of(std::initializer_list<int64_t> widths, const std::function<double(double of_1)>& x) {
  const MatvecFamily family{.norm = Norm::layer};
  for (const int64_t cols : widths) {
    const TileShape shape = TileRun<RunNormProject, Rows::as_they_are>::shape(11, cols, family);
    MatvecData data = data_of(shape, family);
    for (int64_t m = 0; m < data.rows; ++m)
      for (int64_t k = 0; k < cols; ++k)
        data.x[data.count(m * data.stride + k)] = static_cast<float>(
            x(static_cast<double>(k) / static_cast<double>(cols)) + noise(100 + data.count(m), data.count(k)));
    expect_tiles<RunNormProject>(shape, data, RunNormProject::run(shape, data, 11), 11);
  }
}

// The mean is 1000 times the deviation: rounded before it is taken off, or as squares minus the square of the mean,
// nothing would be left. A row of 1000 + noise is off by 2^-15 in fp32, 2^-5 of bf16's half unit.
TEST(TileLayerNorm, SurvivesALargeMean) {
  expect_layer_norm_of({200, 768}, [](double) { return 1000; });
}

// A warp has 64 columns in a row, and the last ones fewer: where the means of warps differ, they are the variance.
TEST(TileLayerNorm, SeesTheWholeRowWhereTheMeansOfWarpsDiffer) {
  expect_layer_norm_of({100, 204, 1163}, [](double of_1) { return 40 * of_1 * of_1; });
}

}  // namespace
}  // namespace nodewright::test::tile_families_test
