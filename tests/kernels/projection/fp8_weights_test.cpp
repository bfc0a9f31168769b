// Products with weights in FP8, by rows and in tiles: their values against a double-precision reference, with one scale
// a row of W and with one for each block of 128 rows and columns.
#include <gtest/gtest.h>

#include <array>

#include "tests/kernels/tile/expected.h"

namespace nodewright::test::fp8_weights_test {
namespace {

// Three groups of rows with scales, the last not whole, and as many more of ups.
constexpr int64_t kOutputs = 290;

template <class Run>
int64_t outputs_of() {
  return kOutputs * Run::kUnit;
}

template <class Run>
MatvecShape rows_shape(int64_t rows, int64_t cols, bool in_blocks) {
  MatvecShape shape{rows, cols, cols, outputs_of<Run>(), Run::kUnit};
  shape.normed = std::is_same_v<Run, RunNormProject> || std::is_same_v<Run, RunNormGateUp>;
  shape.weights = fp8_layout(in_blocks, Run::kUnit);
  return shape;
}

template <class Shape>
MatvecData data_of(const Shape& shape, bool biases) {
  MatvecData data(shape);
  data.family.biases = biases;
  return data;
}

template <class Run>
class Fp8Rows : public ::testing::Test {};
struct NameOfRun {
  template <class Run>
  static std::string GetName(int) {
    return Run::kName;
  }
};
using Runs = ::testing::Types<RunNormProject, RunNormGateUp, RunProjectAdd, RunProject>;
TYPED_TEST_SUITE(Fp8Rows, Runs, NameOfRun);

// One chunk of columns and several, all threads' and a part of them; blocks with all rows and with a few.
TYPED_TEST(Fp8Rows, AgreeWithTheReference) {
  for (const bool in_blocks : {false, true}) {
    std::vector<MatvecShape> shapes;
    for (const auto& [rows, cols] : {std::pair{1, 208}, {1, 2048}, {2, 1216}, {4, 208}, {1, 8208}})
      shapes.push_back(rows_shape<TypeParam>(rows, cols, in_blocks));
    prepare_matvec(TypeParam::kName, shapes);
    for (const MatvecShape& shape : shapes) {
      const MatvecData data = data_of(shape, shape.cols == 1216);
      const auto y = TypeParam::run(shape, data, static_cast<int32_t>(shape.rows));
      expect_tiles<TypeParam>(shape, data, y, shape.rows);
      for (const unsigned blocks : {1u, 3u})
        EXPECT_TRUE(same_bits(TypeParam::run(shape, data, static_cast<int32_t>(shape.rows), blocks), y))
            << blocks << " blocks, " << shape.rows << " rows of " << shape.cols << (in_blocks ? ", blocks" : "");
    }
  }
}

// A thread that ends outputs of several segments.
TYPED_TEST(Fp8Rows, AgreeWithTheReferenceInEverySegment) {
  MatvecShape shape = rows_shape<TypeParam>(1, 208, false), cut = shape;
  cut.of_block = 16;
  const MatvecData data = data_of(shape, false);
  EXPECT_LT(cut.segment(), shape.segment());
  EXPECT_TRUE(same_bits(TypeParam::run(cut, data, 1, 1), TypeParam::run(shape, data, 1, 1)));
}

// Rows of x that a kernel norms, that come gained, and that are held.
struct RunGainedNormProject : RunNormProject {};
struct RunGainedNormGateUp : RunNormGateUp {};
struct RunHeldNormProject : RunNormProject {};
struct RunHeldNormGateUp : RunNormGateUp {};
struct RunHeldProjectAdd : RunProjectAdd {};
struct RunHeldProjectGateUp : RunProjectGateUp {};

template <class Projection>
class Fp8Tiles : public ::testing::Test {
 protected:
  template <class... Of>
  static constexpr bool kIsOf = (std::is_base_of_v<Of, Projection> || ...);
  static constexpr bool kHeld = kIsOf<RunHeldNormProject, RunHeldNormGateUp, RunHeldProjectAdd, RunHeldProjectGateUp>;
  static constexpr bool kNormed = kIsOf<RunNormProject, RunNormGateUp>,
                        kGained = kHeld ? kNormed : kIsOf<RunGainedNormProject, RunGainedNormGateUp>;

  static TileShape shape(int64_t rows, int64_t cols, bool in_blocks) {
    TileShape shape{rows, cols, cols, outputs_of<Projection>(), Projection::kUnit, kNormed, false, kGained, kHeld};
    shape.weights = fp8_layout(in_blocks, Projection::kUnit);
    return shape;
  }
  // Rows, columns and rows of a tile each, with either form of scales.
  static void expect_sizes_agree(const std::vector<std::array<int64_t, 3>>& sizes) {
    std::vector<TileShape> shapes;
    for (const bool in_blocks : {false, true})
      for (const auto& [rows, cols, tile_rows] : sizes) {
        shapes.push_back(shape(rows, cols, in_blocks));
        shapes.back().tuning.rows = tile_rows;
      }
    expect_agreement(shapes);
  }
  static void expect_agreement(const std::vector<TileShape>& shapes) {
    prepare_matvec(Projection::kName, shapes);
    for (const TileShape& shape : shapes) {
      const MatvecData data = data_of(shape, shape.cols % 256 == 192);
      const auto y = Projection::run(shape, data, static_cast<int32_t>(shape.rows));
      expect_tiles<Projection>(shape, data, y, shape.rows);
      const auto others = Projection::run(shape, data, static_cast<int32_t>(shape.rows), 3);
      EXPECT_TRUE(same_bits(std::span(y), std::span(others)))
          << shape.rows << " rows of " << shape.cols << (shape.weights.in_blocks ? ", blocks" : "");
    }
  }
};
struct NameOfTiles {
  template <class Run>
  static std::string GetName(int) {
    constexpr bool kGained = std::is_same_v<Run, RunGainedNormProject> || std::is_same_v<Run, RunGainedNormGateUp>,
                   kHeld = std::is_same_v<Run, RunHeldNormProject> || std::is_same_v<Run, RunHeldNormGateUp> ||
                           std::is_same_v<Run, RunHeldProjectAdd> || std::is_same_v<Run, RunHeldProjectGateUp>;
    return (kGained ? "gained_" : kHeld ? "held_" : "") + std::string(Run::kName);
  }
};
template <class Projection>
class Fp8StreamedTiles : public Fp8Tiles<Projection> {};
using StreamedRuns = ::testing::Types<RunNormProject, RunNormGateUp, RunGainedNormProject, RunGainedNormGateUp,
                                      RunProjectAdd, RunProject>;
TYPED_TEST_SUITE(Fp8StreamedTiles, StreamedRuns, NameOfTiles);
template <class Projection>
class Fp8HeldTiles : public Fp8Tiles<Projection> {};
using HeldRuns = ::testing::Types<RunHeldNormProject, RunHeldNormGateUp, RunHeldProjectAdd, RunHeldProjectGateUp>;
TYPED_TEST_SUITE(Fp8HeldTiles, HeldRuns, NameOfTiles);

// Spans that no number of warps divides, a last one that is not whole; tiles of 8 rows and of 16.
TYPED_TEST(Fp8StreamedTiles, AgreeWithTheReference) {
  this->expect_sizes_agree({{3, 208, 0}, {5, 1216, 8}, {8, 2048, 0}, {16, 208, 0}});
}
TYPED_TEST(Fp8HeldTiles, AgreeWithTheReference) {
  this->expect_sizes_agree({{8, 1216, 8}, {9, 576, 0}, {17, 576, 0}, {32, 1216, 0}});
}

// Pieces of a row, of which the last is shorter.
TYPED_TEST(Fp8StreamedTiles, HaveTheSameBitsHoweverAMatrixIsCut) {
  for (const bool in_blocks : {false, true}) {
    TileShape whole = this->shape(8, 1168, in_blocks), cut = whole;
    whole.tuning = {.warps = 4, .rows = 16, .piece = 5, .ring = 2};
    cut.tuning = {.warps = 4, .rows = 16, .piece = 2, .ring = 3};
    const MatvecData data = data_of(whole, false);
    EXPECT_TRUE(same_bits(TypeParam::run(whole, data, 8), TypeParam::run(cut, data, 8))) << in_blocks;
  }
}

// Blocks of a cluster that share the columns; sums that meet at the end and tile by tile.
TYPED_TEST(Fp8HeldTiles, AgreeWithTheReferenceHoweverManyBlocksShareTheColumns) {
  if (!machine().device.properties().has_clusters()) GTEST_SKIP() << "no clusters";
  std::vector<TileShape> shapes;
  for (const bool in_blocks : {false, true})
    for (const auto& [rows, splits, meets] : {std::tuple{24, 2, false}, {32, 2, true}, {17, 4, false}}) {
      shapes.push_back(this->shape(rows, 1280, in_blocks));
      shapes.back().tuning.splits = splits;
      shapes.back().meets = meets;
    }
  this->expect_agreement(shapes);
}

}  // namespace
}  // namespace nodewright::test::fp8_weights_test
