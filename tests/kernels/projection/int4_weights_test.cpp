// Products with weights in int4, by rows and in tiles: their values against a double-precision reference, with a scale
// and a zero for each group of a row's columns.
#include <array>
#include <tuple>

#include "tests/kernels/projection/quantized_products.h"

namespace nodewright::test::int4_weights_test {
namespace {

constexpr int64_t kResults = 70;  // on one block: four tiles and a part of a fifth

template <class Run>
class Int4Rows : public ::testing::Test {};
TYPED_TEST_SUITE(Int4Rows, RowsRuns, NameOfRun);

// One word of columns and several (of a norm too, at 16384), all threads' and a part of them.
TYPED_TEST(Int4Rows, AgreeWithTheReference) {
  std::vector<MatvecShape> shapes;
  for (const auto& [group, rows, cols] : {std::array{32, 1, 256},
                                          {32, 2, 640},
                                          {32, 1, 16384},
                                          {64, 1, 640},
                                          {64, 2, 2048},
                                          {64, 4, 256},
                                          {64, 1, 8320},
                                          {128, 1, 2048},
                                          {128, 2, 256},
                                          {128, 4, 640},
                                          {128, 1, 8320}})
    shapes.push_back(rows_shape<TypeParam>(rows, cols, kResults, int4_layout(group)));
  expect_agreement<TypeParam>(shapes);
}

TYPED_TEST(Int4Rows, HaveTheSameBitsInEverySegment) {
  expect_same_bits_in_every_segment<TypeParam>(rows_shape<TypeParam>(1, 256, kResults, int4_layout(64)));
}

// Groups, rows, columns and rows of a tile each.
template <class Run>
void expect_tiles_agree(const std::vector<std::array<int64_t, 4>>& sizes) {
  std::vector<TileShape> shapes;
  for (const auto& [group, rows, cols, tile_rows] : sizes)
    shapes.push_back(tile_shape<Run>(rows, cols, kResults, int4_layout(group), {.rows = tile_rows}));
  expect_agreement<Run>(shapes);
}

template <class Run>
class Int4StreamedTiles : public ::testing::Test {};
TYPED_TEST_SUITE(Int4StreamedTiles, StreamedRuns, NameOfRun);
template <class Run>
class Int4HeldTiles : public ::testing::Test {};
TYPED_TEST_SUITE(Int4HeldTiles, HeldRuns, NameOfRun);

// Spans that the warps divide and others; tiles of 8 rows and of 16.
TYPED_TEST(Int4StreamedTiles, AgreeWithTheReference) {
  expect_tiles_agree<TypeParam>(
      {{128, 3, 256, 0}, {64, 8, 1408, 8}, {64, 16, 640, 0}, {128, 8, 2560, 0}, {32, 8, 640, 0}});
}
// A group of rows of x and two.
TYPED_TEST(Int4HeldTiles, AgreeWithTheReference) {
  expect_tiles_agree<TypeParam>({{64, 3, 256, 0},
                                 {128, 8, 1408, 8},
                                 {32, 8, 640, 0},
                                 {32, 40, 640, 0},
                                 {128, 8, 640, 0},
                                 {64, 16, 1408, 0},
                                 {128, 24, 640, 0},
                                 {64, 40, 1280, 0}});
}

TYPED_TEST(Int4StreamedTiles, HaveTheSameBitsHoweverAMatrixIsCut) {
  expect_same_bits_in_pieces<TypeParam>(1280, kResults, int4_layout(64));
}

template <class Run>
class Int4TilesInClusters : public TilesInClusters<Run> {};
TYPED_TEST_SUITE(Int4TilesInClusters, HeldRuns, NameOfRun);

// Sums that meet at the end and tile by tile.
TYPED_TEST(Int4TilesInClusters, AgreeWithTheReference) {
  std::vector<TileShape> shapes;
  for (const auto& [group, rows, splits, meets] : {std::tuple{64, 3, 4, false},
                                                   {128, 8, 2, true},
                                                   {32, 16, 2, false},
                                                   {64, 24, 2, true},
                                                   {128, 40, 2, true},
                                                   {64, 40, 4, false}}) {
    shapes.push_back(tile_shape<TypeParam>(rows, 1536, kResults, int4_layout(group), {.splits = splits}));
    shapes.back().meets = meets;
  }
  expect_agreement<TypeParam>(shapes);
}

}  // namespace
}  // namespace nodewright::test::int4_weights_test
