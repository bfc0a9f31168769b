// Products with weights in 4 and 8 bits with fp16 scales of groups, as GGUF has them, by rows and in tiles: their
// values against a double-precision reference.
#include <array>
#include <tuple>

#include "tests/kernels/projection/quantized_products.h"

namespace nodewright::test::grouped_weights_test {
namespace {

constexpr int64_t kResults = 70;  // on one block: four tiles and a part of a fifth
const WeightLayout kQ4 = group_layout(WeightCode::q4), kQ4Offset = group_layout(WeightCode::q4_offset),
                   kQ8 = group_layout(WeightCode::q8), kQ8Of16 = group_layout(WeightCode::q8, 16),
                   kQ8Offset = group_layout(WeightCode::q8_offset),
                   kQ8OffsetOf16 = group_layout(WeightCode::q8_offset, 16);

template <class Run>
class GroupedRows : public ::testing::Test {};
TYPED_TEST_SUITE(GroupedRows, RowsRuns, NameOfRun);

// One word of columns and several, all threads' and a part of them.
TYPED_TEST(GroupedRows, AgreeWithTheReference) {
  std::vector<MatvecShape> shapes;
  for (const auto& [layout, rows, cols] : {std::tuple{kQ4, 1, 256},
                                           {kQ4, 2, 8320},
                                           {kQ4Offset, 1, 640},
                                           {kQ4Offset, 4, 256},
                                           {kQ4Offset, 1, 16384},
                                           {kQ8, 1, 640},
                                           {kQ8, 2, 2048},
                                           {kQ8Of16, 1, 8320},
                                           {kQ8Of16, 4, 256},
                                           {kQ8Offset, 2, 640},
                                           {kQ8OffsetOf16, 1, 2048}})
    shapes.push_back(rows_shape<TypeParam>(rows, cols, kResults, layout));
  expect_agreement<TypeParam>(shapes);
}

// Rows, columns and rows of a tile each.
template <class Run>
void expect_tiles_agree(const std::vector<std::tuple<WeightLayout, int64_t, int64_t, int64_t>>& sizes) {
  std::vector<TileShape> shapes;
  for (const auto& [layout, rows, cols, tile_rows] : sizes)
    shapes.push_back(tile_shape<Run>(rows, cols, kResults, layout, {.rows = tile_rows}));
  expect_agreement<Run>(shapes);
}

template <class Run>
class GroupedStreamedTiles : public ::testing::Test {};
TYPED_TEST_SUITE(GroupedStreamedTiles, StreamedRuns, NameOfRun);
template <class Run>
class GroupedHeldTiles : public ::testing::Test {};
TYPED_TEST_SUITE(GroupedHeldTiles, HeldRuns, NameOfRun);

// Spans that the warps divide and others; tiles of 8 rows and of 16.
TYPED_TEST(GroupedStreamedTiles, AgreeWithTheReference) {
  expect_tiles_agree<TypeParam>({{kQ4, 3, 256, 0},
                                 {kQ4Offset, 8, 1408, 8},
                                 {kQ8, 16, 640, 0},
                                 {kQ8Of16, 8, 2560, 0},
                                 {kQ8OffsetOf16, 3, 384, 8}});
}
// A group of rows of x and two.
TYPED_TEST(GroupedHeldTiles, AgreeWithTheReference) {
  expect_tiles_agree<TypeParam>({{kQ4, 40, 640, 0},
                                 {kQ4Offset, 3, 256, 0},
                                 {kQ4Offset, 24, 1408, 0},
                                 {kQ8, 8, 1408, 8},
                                 {kQ8Of16, 8, 640, 0},
                                 {kQ8Of16, 40, 1280, 0},
                                 {kQ8Offset, 16, 640, 0}});
}

TYPED_TEST(GroupedStreamedTiles, HaveTheSameBitsHoweverAMatrixIsCut) {
  for (const WeightLayout& layout : {kQ4Offset, kQ8Of16}) expect_same_bits_in_pieces<TypeParam>(1280, kResults, layout);
}

template <class Run>
class GroupedTilesInClusters : public TilesInClusters<Run> {};
TYPED_TEST_SUITE(GroupedTilesInClusters, HeldRuns, NameOfRun);

// Sums that meet at the end and tile by tile.
TYPED_TEST(GroupedTilesInClusters, AgreeWithTheReference) {
  std::vector<TileShape> shapes;
  for (const auto& [layout, rows, splits, meets] :
       {std::tuple{kQ4Offset, 3, 4, false}, {kQ8Of16, 8, 2, true}, {kQ8, 40, 2, true}, {kQ4, 24, 2, false}}) {
    shapes.push_back(tile_shape<TypeParam>(rows, 1536, kResults, layout, {.splits = splits}));
    shapes.back().meets = meets;
  }
  expect_agreement<TypeParam>(shapes);
}

}  // namespace
}  // namespace nodewright::test::grouped_weights_test
