// The weight-streaming kernels on tensor cores: their values against a double-precision reference, which rows and
// elements they store, and that a row's bits depend on that row only.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/kernels/tile/expected.h"

namespace nodewright::test::tile_test {
namespace {

// The same of rows that the kernel before has multiplied by the gain.
struct RunGainedNormProject : RunNormProject {};
struct RunGainedNormGateUp : RunNormGateUp {};

// The same, and project_add, of rows that stay in registers, of one block or of two that share the columns.
struct RunHeldNormProject : RunGainedNormProject {};
struct RunHeldNormGateUp : RunGainedNormGateUp {};
struct RunHeldProjectAdd : RunProjectAdd {};

template <class Projection>
class TileKernel : public ::testing::Test {
 protected:
  static constexpr bool kHeld = std::is_same_v<Projection, RunHeldNormProject> ||
                                std::is_same_v<Projection, RunHeldNormGateUp> ||
                                std::is_same_v<Projection, RunHeldProjectAdd>;
  static constexpr int64_t kOutputs = 70;  // on one block: four tiles and a part of a fifth

  static TileShape shape(int64_t rows, int64_t cols) {
    const bool normed = std::is_base_of_v<RunNormProject, Projection> || std::is_base_of_v<RunNormGateUp, Projection>;
    const bool gained =
        std::is_base_of_v<RunGainedNormProject, Projection> || std::is_base_of_v<RunGainedNormGateUp, Projection>;
    if (gained) cols = cols / 8 * 8;
    if (kHeld) cols = cols / 16 * 16;
    return {rows, cols, (cols + 7) / 8 * 8, kOutputs, Projection::kUnit, normed, false, gained, kHeld};
  }
  static int64_t elements() { return kOutputs / Projection::kUnit; }
  static void expect_reference(const TileShape& shape, const MatvecData& data,
                               const std::vector<typename Projection::Element>& y) {
    for (int64_t m = 0; m < shape.rows; ++m)
      for (int64_t i = 0; i < elements(); ++i) {
        const Dot expected = expected_of(Projection(), shape, data, m, i);
        ASSERT_NEAR(float_of(row(y, m)[data.count(i)]), expected.value, expected.bound)
            << "row " << m << " of " << shape.rows << ", element " << i << ", cols " << shape.cols;
      }
  }
  static auto row(const std::vector<typename Projection::Element>& y, int64_t m) {
    return row_of(y, m, elements() + MatvecData::kPadding, elements());
  }
};

struct NameOfTileRun {
  template <class Run>
  static std::string GetName(int) {
    const bool gained = std::is_same_v<Run, RunGainedNormProject> || std::is_same_v<Run, RunGainedNormGateUp>;
    const bool held = std::is_same_v<Run, RunHeldNormProject> || std::is_same_v<Run, RunHeldNormGateUp> ||
                      std::is_same_v<Run, RunHeldProjectAdd>;
    return (gained ? "gained_" : held ? "held_" : "") + std::string(Run::kName);
  }
};
using LogitsRuns = ::testing::Types<RunNormProject, RunGainedNormProject, RunHeldNormProject>;
using HeldRuns = ::testing::Types<RunHeldNormProject, RunHeldNormGateUp, RunHeldProjectAdd>;
using TileRuns = ::testing::Types<RunNormProject, RunNormGateUp, RunGainedNormProject, RunGainedNormGateUp,
                                  RunProjectAdd, RunProject, RunHeldNormProject, RunHeldNormGateUp, RunHeldProjectAdd>;
TYPED_TEST_SUITE(TileKernel, TileRuns, NameOfTileRun);

// One and two tiles of tokens; spans that no number of warps divides, and a row that ends within 16 bytes.
constexpr int64_t kSizes[][2] = {{5, 200}, {11, 200}, {8, 1163}};

TYPED_TEST(TileKernel, AgreesWithTheReferenceAtOddSizes) {
  std::vector<TileShape> shapes;
  for (const auto& [rows, cols] : kSizes) shapes.push_back(this->shape(rows, cols));
  prepare_matvec(TypeParam::kName, shapes);
  for (const TileShape& shape : shapes) {
    const MatvecData data(shape);
    this->expect_reference(shape, data, TypeParam::run(shape, data, static_cast<int32_t>(shape.rows)));
  }
}

// Five spans of a warp in pieces of five, two and one, of which the last ends within a span; one stage is on its way or
// more than a block has.
TYPED_TEST(TileKernel, HasTheSameBitsHoweverAMatrixIsCutAndHoweverMuchIsOnItsWay) {
  for (const int64_t tile_rows : {8, 16}) {
    std::vector<TileShape> shapes;
    for (const auto& [piece, ring] : {std::pair{5, 2}, {2, 1}, {2, 3}, {1, 8}}) {
      if (tile_rows == 16 && ring % 2 != 0) continue;
      shapes.push_back(this->shape(8, 1163));
      shapes.back().tuning = {.warps = 4, .rows = tile_rows, .piece = piece, .ring = ring};
    }
    prepare_matvec(TypeParam::kName, shapes);
    const MatvecData data(shapes.front());
    const auto expected = TypeParam::run(shapes.front(), data, 8, 1);
    this->expect_reference(shapes.front(), data, expected);
    for (const TileShape& shape : shapes) {
      const auto y = TypeParam::run(shape, data, 8, 1);
      for (int64_t m = 0; m < 8; ++m)
        EXPECT_TRUE(same_bits(this->row(y, m), this->row(expected, m)))
            << "row " << m << ", tiles of " << tile_rows << " rows, pieces of " << shape.piece_spans() << " spans, "
            << shape.tuning.ring << " stages";
    }
  }
}

TYPED_TEST(TileKernel, StoresTheLiveRowsAndNothingElse) {
  for (const int64_t rows : {5, 11}) {
    const TileShape shape = this->shape(rows, 200);
    const MatvecData data(shape);
    const auto before = TypeParam::initial(data);
    const auto full = TypeParam::run(shape, data, static_cast<int32_t>(rows));
    for (const int32_t n_live : {1, 4, 9}) {
      if (n_live > rows) continue;
      MatvecData partial = data;  // what padded rows hold is NaN
      std::fill(partial.x.begin() + n_live * data.stride, partial.x.end(), kNaN);
      std::fill(partial.packed_x.begin() + n_live * data.stride, partial.packed_x.end(), to_bf16(kNaN));
      const auto y = TypeParam::run(shape, partial, n_live);
      for (int64_t m = 0; m < rows; ++m) {
        ASSERT_TRUE(same_bits(this->row(y, m), this->row(m < n_live ? full : before, m))) << "row " << m;
        const int64_t padding = m * data.y_stride + this->elements();
        ASSERT_TRUE(
            same_bits(row_of(y, padding, 1, MatvecData::kPadding), row_of(before, padding, 1, MatvecData::kPadding)));
      }
    }
  }
}

TYPED_TEST(TileKernel, GivesARowTheSameBitsInEveryBucketAndPlaceAndOnAnyGrid) {
  constexpr uint64_t kNumber = 7;
  std::vector<typename TypeParam::Element> expected;
  for (const int64_t rows : {2, 8, 11})
    for (const int64_t place : {int64_t{0}, rows - 1}) {
      std::vector<uint64_t> numbers = MatvecData::first_numbers(rows);
      for (uint64_t& number : numbers) number += 20;
      numbers[static_cast<size_t>(place)] = kNumber;
      const TileShape shape = this->shape(rows, 200);
      for (const unsigned blocks : {0u, 1u, 7u}) {
        const auto y = TypeParam::run(shape, MatvecData(shape, numbers), static_cast<int32_t>(rows), blocks);
        const auto found = this->row(y, place);
        if (expected.empty()) expected.assign(found.begin(), found.end());
        EXPECT_TRUE(same_bits(found, std::span<const typename TypeParam::Element>(expected)))
            << "place " << place << " of " << rows << ", " << blocks << " blocks";
      }
    }
}

TYPED_TEST(TileKernel, KeepsNaNAndInfinityInTheirRows) {
  const TileShape shape = this->shape(5, 200);
  const MatvecData clean(shape);
  MatvecData data = clean;
  data.x[static_cast<size_t>(1 * data.stride + 3)] = kNaN;
  data.packed_x[static_cast<size_t>(1 * data.stride + 3)] = to_bf16(kNaN);
  data.x[static_cast<size_t>(3 * data.stride + shape.cols - 1)] = kInfinity;
  data.packed_x[static_cast<size_t>(3 * data.stride + shape.cols - 1)] = to_bf16(kInfinity);
  const auto expected = TypeParam::run(shape, clean, 5), y = TypeParam::run(shape, data, 5);
  for (const int64_t m : {0, 2, 4}) EXPECT_TRUE(same_bits(this->row(y, m), this->row(expected, m))) << m;
  for (const int64_t m : {1, 3})
    for (const auto& element : this->row(y, m)) ASSERT_FALSE(std::isfinite(float_of(element))) << m;
}

// Up to 32 rows, columns shared by as many blocks, and odd ranges of outputs: of several tiles, or less than one.
template <class Projection>
class HeldTiles : public TileKernel<Projection> {
 protected:
  static TileShape shape(int64_t rows, int64_t splits, int64_t tile_rows, bool meets) {
    TileShape s = TileKernel<Projection>::shape(rows, 1216);
    s.tuning = {.rows = tile_rows, .splits = splits};
    s.meets = meets;
    return s;
  }
};
TYPED_TEST_SUITE(HeldTiles, HeldRuns, NameOfTileRun);

TYPED_TEST(HeldTiles, AgreeWithTheReferenceHoweverManyBlocksShareTheColumns) {
  if (!machine().device.properties().has_clusters()) GTEST_SKIP() << "no clusters";
  std::vector<TileShape> shapes;
  for (const auto& [rows, splits, tile_rows, meets] :
       {std::tuple{24, 2, 16, false}, {24, 2, 16, true}, {32, 4, 16, true}, {17, 8, 16, false}, {17, 8, 8, true}})
    shapes.push_back(this->shape(rows, splits, tile_rows, meets));
  prepare_matvec(TypeParam::kName, shapes);
  for (const TileShape& shape : shapes) {
    ASSERT_TRUE(shape.holds());
    const MatvecData data(shape);
    const auto y = TypeParam::run(shape, data, static_cast<int32_t>(shape.rows));
    this->expect_reference(shape, data, y);
    for (const unsigned clusters : {1u, 3u, 16u}) {
      const auto others = TypeParam::run(shape, data, static_cast<int32_t>(shape.rows), clusters);
      EXPECT_TRUE(same_bits(std::span(y), std::span(others))) << clusters << " clusters of " << shape.splits();
    }
  }
}

TileShape held_shape(int64_t rows, int64_t cols, int64_t outputs, int64_t unit = 1) {
  return {rows, cols, cols, outputs, unit, false, false, false, true};
}

// Each number of blocks that can hold what they share, the fewest that can.
TEST(HeldShapes, AreSharedByAsFewBlocksAsCanHoldThem) {
  const auto splits = [](int64_t cols, int64_t outputs = 4096) { return held_shape(32, cols, outputs).splits(); };
  EXPECT_EQ(splits(2048), 1);
  EXPECT_EQ(splits(3072), 1);
  EXPECT_EQ(splits(3072, 1024), 2);
  EXPECT_EQ(splits(4096), 2);
  EXPECT_EQ(splits(8192), 4);
  EXPECT_EQ(splits(9728), 8);
  EXPECT_EQ(splits(14336), 8);
  EXPECT_EQ(splits(18432), 0);
  EXPECT_EQ(splits(2056, 1024), 0);  // in halves it is no whole number of 16 bytes
  TileShape biased = held_shape(32, 3072, 4096);
  biased.ends_in_registers = true;
  EXPECT_EQ(biased.splits(), 2);
  EXPECT_EQ(held_shape(32, 2048, 2048).groups(), 1);  // of rows: registers hold 32
  EXPECT_EQ(held_shape(33, 2048, 2048).groups(), 2);
  EXPECT_FALSE((TileShape{32, 100, 104, 2048, 1, false, false, false, true}.holds()));
}

// Tiles of up to 64 KiB, and 160 KiB of them on their way.
TEST(HeldShapes, HaveTilesThatLeaveRoomForARing) {
  for (const auto& [cols, rows, ring] : {std::tuple{2048, 16, 2}, {2560, 8, 4}, {3072, 8, 3}}) {
    const TileShape shape = held_shape(32, cols, 128256);
    EXPECT_EQ(shape.tile_rows(), rows) << cols;
    EXPECT_EQ(shape.ring(132, 227 << 10), ring) << cols;
  }
}

// Gate and up of Llama-3.1-8B and of Qwen3-8B: the sums of all tiles of a cluster are too many, or just fit.
TEST(HeldShapes, LetSumsMeetTileByTileWhereTheyAreTooManyToKeep) {
  TileShape many = held_shape(32, 4096, 28672, 2), few = held_shape(32, 4096, 24576, 2);
  EXPECT_EQ(many.ring(132, 227 << 10), 0);
  many = many.fitting(132, 227 << 10), few = few.fitting(132, 227 << 10);
  EXPECT_TRUE(many.meets);
  EXPECT_FALSE(few.meets);
  EXPECT_EQ(many.ring(132, 227 << 10), 2);
  EXPECT_FALSE(held_shape(32, 5120, 28672, 2).fitting(132, 227 << 10).meets);  // of four blocks
  EXPECT_EQ(few.ring(132, 227 << 10), 2);
}

// Rows that are normed already come without squares, and with 1 in the place of eps.
TEST(HeldTilesOfNormedRows, AreNotScaled) {
  for (const auto& [rows, splits] : {std::pair{20, 1}, {32, 4}}) {
    if (splits > 1 && !machine().device.properties().has_clusters()) continue;
    TileShape shape{rows, 608, 608, 70, 1, true, false, true, true};
    shape.tuning.splits = splits;
    const MatvecData data(shape);
    const Guarded<bf16> x("x", data.packed_x), weight("weight", data.weight);
    const Guarded<float> y("y", RunProject::initial(data));
    const Guarded<int32_t> live("n_live", std::vector<int32_t>{rows - 1});
    run_node(
        matvec_kernel<NormProject>("norm_project", shape, {.norm = Norm::none}, 2),
        {.from = {.gained = x, .eps = 1}, .w = {weight, {}, shape.outputs}, .to = {y, data.y_stride}, .n_live = live});
    expect_tiles<RunProject>(shape, data, y.read(), rows - 1);
  }
}

// Shared memory of a block of compute capability 9.0, 8.0 and 8.6 (CUDA programming guide, technical specifications).
TEST(TileRing, IsAsLongAsTheSharedMemoryOfABlockAllows) {
  const TileShape narrow{8, 2048, 2048, 16384, 2, true}, wide{16, 3072, 3072, 16384, 2, true};
  EXPECT_EQ(narrow.ring(132, 227 << 10), 3);
  EXPECT_EQ(narrow.ring(132, 163 << 10), 3);
  EXPECT_EQ(narrow.ring(132, 99 << 10), 0);
  EXPECT_EQ(wide.ring(132, 227 << 10), 2);
  EXPECT_LE(wide.shared_bytes(132, 2), 227 << 10);
  EXPECT_GT(wide.shared_bytes(132, 3), 227 << 10);
}

TEST(TileRing, IsNoLongerThanWhatABlockReads) {
  const TileShape one_tile{8, 2048, 2048, 2048, 1, false};
  EXPECT_EQ(one_tile.stages(132), 2);  // 16 rows in two pieces
  EXPECT_EQ(one_tile.ring(132, 227 << 10), 2);
  TileShape whole = one_tile;
  whole.tuning.piece = 4;
  EXPECT_EQ(whole.ring(132, 227 << 10), 1);
}

TEST(TilePieces, GetSmallerUntilABlocksSharedMemoryHoldsTwo) {
  const TileShape narrow{8, 2048, 2048, 16384, 2, true}, wide{16, 3072, 3072, 16384, 2, true};
  EXPECT_EQ(narrow.fitting(132, 227 << 10).piece_spans(), 4);
  const TileShape smaller = narrow.fitting(132, 99 << 10);
  EXPECT_EQ(smaller.piece_spans(), 2);
  EXPECT_LE(smaller.shared_bytes(132, smaller.ring(132, 99 << 10)), 99 << 10);
  EXPECT_EQ(wide.fitting(132, 64 << 10).ring(132, 64 << 10), 0);  // rows of x alone are more
}

// A greedy choice reads the best of each part alone; a drawn one all, from the least temperature on.
template <class Run>
class LogitsInTiles : public TileKernel<Run> {};
TYPED_TEST_SUITE(LogitsInTiles, LogitsRuns, NameOfTileRun);

TYPED_TEST(LogitsInTiles, AreLeftOutWhereNoChoiceReadsThem) {
  const TileShape shape = this->shape(11, 200);
  const MatvecData data(shape);
  const std::vector<float> nothing = TypeParam::initial(data), all = TypeParam::run(shape, data, 9, 2);
  LeftOut left_out{.temperature = {0, 0.7f, -1, 1e-5f, 0.9e-5f, kNaN, 2, 0, 1, 1, 0}};
  const std::set<int64_t> drawn = {1, 3, 6, 8};
  for (const int32_t keeps_all : {0, 1}) {
    left_out.keeps_all = keeps_all;
    const std::vector<float> y = TypeParam::run(shape, data, 9, 2, nullptr, &left_out);
    const size_t parts = left_out.best.size() / 11;
    for (int64_t m = 0; m < 11; ++m) {
      const bool stored = m < 9 && (keeps_all == 1 || drawn.contains(m));
      EXPECT_TRUE(same_bits(this->row(y, m), this->row(stored ? all : nothing, m))) << "row " << m << ", " << keeps_all;
      if (m < 9)
        TypeParam::expect_best(std::span(left_out.best).subspan(static_cast<size_t>(m) * parts, parts),
                               this->row(all, m), shape.outputs);
    }
  }
}

// What project_add leaves beside the sums: of every live row, and of every block.
TEST(TileProjectAdd, LeavesTheSumsTimesTheNextGainAndTheirSquares) {
  // held: blocks that hold rows of x; 0: none
  for (const auto& [rows, n_live, tile_rows, held, biases] : {std::tuple{8, 8, 16, 0, false},
                                                              {5, 3, 8, 0, true},
                                                              {11, 11, 8, 0, false},
                                                              {11, 4, 16, 0, true},
                                                              {32, 30, 16, 1, false},
                                                              {32, 31, 16, 1, true},
                                                              {21, 20, 16, 2, true}}) {
    if (held > 1 && !machine().device.properties().has_clusters()) continue;
    TileShape shape{rows, 208, 208, 72, 1, false, false, false, held > 0};
    shape.tuning = {.rows = tile_rows, .splits = held};
    MatvecData data(shape);
    data.family = {.biases = biases};
    const std::vector<float> expected = RunProjectAdd::run(shape, data, n_live, 7);
    expect_tiles<RunProjectAdd>(shape, data, expected, n_live);

    constexpr uint64_t kRanges = 7;
    const uint64_t blocks = kRanges * data.count(shape.splits()), tokens = data.count((rows + 7) / 8 * 8),
                   outputs = data.count(shape.outputs);
    std::vector<bf16> next_gain;
    for (uint64_t n = 0; n < outputs; ++n) next_gain.push_back(to_bf16(1.0 + 0.5 * noise(9, n)));
    const Guarded<bf16> x("x", data.packed_x), weight("weight", data.weight), bias("bias", data.bias),
        gain("next_gain", next_gain), gained("gained", data.count(rows) * outputs);
    const Guarded<float> residual("residual", data.residual), squares("squares", blocks * tokens);
    const Guarded<int32_t> live("n_live", std::vector<int32_t>{n_live});
    run_node(matvec_kernel<ProjectAdd>("project_add", shape, {.biases = biases, .leaves_gained = true}, kRanges),
             {.from = {x, data.stride},
              .w = {weight, given(biases, bias), shape.outputs},
              .to = {residual, data.y_stride, {.gain = gain, .gained = gained, .squares = squares}},
              .n_live = live});
    const std::vector<float> sums = residual.read(), parts = squares.read();
    const std::vector<bf16> rows_left = gained.read();
    EXPECT_TRUE(same_bits(std::span(sums), std::span(expected)));
    for (int64_t m = 0; m < n_live; ++m) {
      for (uint64_t range = 0; range < kRanges; ++range) {
        double wanted = 0, found = 0;
        for (uint64_t n = outputs * range / kRanges; n < outputs * (range + 1) / kRanges; ++n) {
          const float sum = sums[data.count(m * data.y_stride) + n];
          wanted += static_cast<double>(sum) * sum;
          ASSERT_EQ(rows_left[data.count(m) * outputs + n].bits,
                    to_bf16(sum * static_cast<float>(value_of(next_gain[n]))).bits)
              << "row " << m << ", output " << n;
        }
        for (uint64_t b = blocks / kRanges * range; b < blocks / kRanges * (range + 1); ++b)
          found += parts[b * tokens + data.count(m)];
        ASSERT_NEAR(found, wanted, 12 * 0x1p-24 * wanted) << "row " << m;
      }
    }
    for (size_t i = data.count(n_live) * outputs; i < rows_left.size(); ++i)
      ASSERT_TRUE(std::isnan(value_of(rows_left[i]))) << "element " << i << " is of no live row";
  }
}

// Gemma's norm, whose gain counts from 1, OLMo-2's, which is none, and Gemma-2's logits.
TEST(TileNorms, AgreeWithTheReferenceInEveryFamily) {
  const TileShape shape{4, 100, 104, 38, 1, true};
  const std::vector<MatvecFamily> families = {
      {.norm = Norm::rms_one_plus}, {.norm = Norm::none}, {.scale = 0.3f, .cap = 2.0f}};
  prepare_matvec("norm_project", std::vector{shape}, families);
  for (const MatvecFamily& family : families) {
    MatvecData data(shape);
    data.family = family;
    const std::vector<float> y = RunNormProject::run(shape, data, 4);
    for (int64_t m = 0; m < 4; ++m)
      for (int64_t n = 0; n < shape.outputs; ++n) {
        const Dot expected = shaped(data, normed_dot(shape, data, normed_row(data, m), n));
        ASSERT_NEAR(y[data.count(m * data.y_stride + n)], expected.value, expected.bound) << m << ", " << n;
      }
  }
}

// Granite's residual, left for the next norm, too.
TEST(TileNorms, AddAPartOfTheProduct) {
  const TileShape shape{8, 100, 104, 38, 1, false};
  MatvecData data(shape);
  data.family = {.scale = 0.22f};
  const std::vector<float> y = RunProjectAdd::run(shape, data, 8);
  for (int64_t m = 0; m < 8; ++m)
    for (int64_t n = 0; n < shape.outputs; ++n) {
      const Dot product = expected_of(RunProject(), shape, data, m, n);
      const double expected = data.residual[data.count(m * data.y_stride + n)] + 0.22f * product.value;
      ASSERT_NEAR(y[data.count(m * data.y_stride + n)], expected, product.bound + 0x1p-23 * std::abs(expected));
    }
}

}  // namespace
}  // namespace nodewright::test::tile_test
