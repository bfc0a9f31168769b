// Products with weights in FP8, by rows and in tiles: their values against a double-precision reference, with one scale
// a row of W and with one for each block of 128 rows and columns.
#include <tuple>

#include "tests/kernels/projection/quantized_products.h"

namespace nodewright::test::fp8_weights_test {
namespace {

// Three groups of rows with scales, the last not whole, and as many more of ups.
constexpr int64_t kResults = 290;

template <class Run>
class Fp8Rows : public ::testing::Test {};
TYPED_TEST_SUITE(Fp8Rows, RowsRuns, NameOfRun);

// One chunk of columns and several, all threads' and a part of them.
TYPED_TEST(Fp8Rows, AgreeWithTheReference) {
  std::vector<MatvecShape> shapes;
  for (const auto& [in_blocks, rows, cols] : {std::tuple{false, 1, 208},
                                              {true, 1, 2048},
                                              {false, 2, 1216},
                                              {true, 4, 208},
                                              {false, 1, 8208},
                                              {true, 1, 8208}})
    shapes.push_back(rows_shape<TypeParam>(rows, cols, kResults, fp8_layout(in_blocks, TypeParam::kUnit)));
  expect_agreement<TypeParam>(shapes);
}

TYPED_TEST(Fp8Rows, HaveTheSameBitsInEverySegment) {
  expect_same_bits_in_every_segment<TypeParam>(
      rows_shape<TypeParam>(1, 208, kResults, fp8_layout(false, TypeParam::kUnit)));
}

struct TileSize {
  bool in_blocks;  // the scales
  int64_t rows, cols, tile_rows;
};
template <class Run>
void expect_tiles_agree(const std::vector<TileSize>& sizes) {
  std::vector<TileShape> shapes;
  for (const auto& [in_blocks, rows, cols, tile_rows] : sizes)
    shapes.push_back(tile_shape<Run>(rows, cols, kResults, fp8_layout(in_blocks, Run::kUnit), {.rows = tile_rows}));
  expect_agreement<Run>(shapes);
}

template <class Run>
class Fp8StreamedTiles : public ::testing::Test {};
TYPED_TEST_SUITE(Fp8StreamedTiles, StreamedRuns, NameOfRun);
template <class Run>
class Fp8HeldTiles : public ::testing::Test {};
TYPED_TEST_SUITE(Fp8HeldTiles, HeldRuns, NameOfRun);

// Spans that no number of warps divides, a last one that is not whole; tiles of 8 rows and of 16.
TYPED_TEST(Fp8StreamedTiles, AgreeWithTheReference) {
  expect_tiles_agree<TypeParam>(
      {{false, 3, 208, 0}, {true, 5, 1216, 8}, {true, 8, 2048, 0}, {false, 16, 1216, 0}, {true, 16, 208, 0}});
}
TYPED_TEST(Fp8HeldTiles, AgreeWithTheReference) {
  expect_tiles_agree<TypeParam>(
      {{true, 8, 1216, 8}, {false, 9, 576, 0}, {true, 17, 576, 0}, {false, 32, 1216, 0}, {true, 32, 1216, 0}});
}

// Gained rows with scales of blocks, others with scales of rows.
TYPED_TEST(Fp8StreamedTiles, HaveTheSameBitsHoweverAMatrixIsCut) {
  expect_same_bits_in_pieces<TypeParam>(1168, kResults, fp8_layout(kIsGained<TypeParam>, TypeParam::kUnit));
}

template <class Run>
class Fp8TilesInClusters : public TilesInClusters<Run> {};
TYPED_TEST_SUITE(Fp8TilesInClusters, HeldRuns, NameOfRun);

// Sums that meet at the end and tile by tile.
TYPED_TEST(Fp8TilesInClusters, AgreeWithTheReference) {
  std::vector<TileShape> shapes;
  for (const auto& [in_blocks, rows, splits, meets] :
       {std::tuple{false, 24, 2, false}, {true, 32, 2, true}, {true, 17, 4, false}, {false, 17, 4, true}}) {
    shapes.push_back(
        tile_shape<TypeParam>(rows, 1280, kResults, fp8_layout(in_blocks, TypeParam::kUnit), {.splits = splits}));
    shapes.back().meets = meets;
  }
  expect_agreement<TypeParam>(shapes);
}

}  // namespace
}  // namespace nodewright::test::fp8_weights_test
