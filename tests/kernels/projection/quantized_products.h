// What the tests of products with quantized weights share: the kernels, their shapes, and that they agree with the
// reference on any number of blocks.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <type_traits>
#include <vector>

#include "tests/kernels/tile/expected.h"

namespace nodewright::test {

// Rows of x that come gained, and that are held.
struct RunGainedNormProject : RunNormProject {};
struct RunGainedNormGateUp : RunNormGateUp {};
struct RunHeldNormProject : RunNormProject {};
struct RunHeldNormGateUp : RunNormGateUp {};
struct RunHeldProjectAdd : RunProjectAdd {};
struct RunHeldProjectGateUp : RunProjectGateUp {};

template <class Run, class... Of>
inline constexpr bool kIsOneOf = (std::is_base_of_v<Of, Run> || ...);
template <class Run>
inline constexpr bool kIsNormed = kIsOneOf<Run, RunNormProject, RunNormGateUp>;
template <class Run>
inline constexpr bool kIsHeld =
    kIsOneOf<Run, RunHeldNormProject, RunHeldNormGateUp, RunHeldProjectAdd, RunHeldProjectGateUp>;
template <class Run>
inline constexpr bool kIsGained =
    kIsHeld<Run> ? kIsNormed<Run> : kIsOneOf<Run, RunGainedNormProject, RunGainedNormGateUp>;

using RowsRuns = ::testing::Types<RunNormProject, RunNormGateUp, RunProjectAdd, RunProject>;
using StreamedRuns = ::testing::Types<RunNormProject, RunNormGateUp, RunGainedNormProject, RunGainedNormGateUp,
                                      RunProjectAdd, RunProject>;
using HeldRuns = ::testing::Types<RunHeldNormProject, RunHeldNormGateUp, RunHeldProjectAdd, RunHeldProjectGateUp>;
struct NameOfRun {
  template <class Run>
  static std::string GetName(int) {
    return (kIsHeld<Run> ? "held_" : kIsGained<Run> ? "gained_" : "") + std::string(Run::kName);
  }
};

// `results`: of a row.
template <class Run>
MatvecShape rows_shape(int64_t rows, int64_t cols, int64_t results, const WeightLayout& weights) {
  MatvecShape shape{rows, cols, cols, results * Run::kUnit, Run::kUnit, kIsNormed<Run>};
  shape.weights = weights;
  return shape;
}
template <class Run>
TileShape tile_shape(int64_t rows, int64_t cols, int64_t results, const WeightLayout& weights,
                     const TileTuning& tuning = {}) {
  TileShape shape{rows,           cols,  cols,           results * Run::kUnit, Run::kUnit,
                  kIsNormed<Run>, false, kIsGained<Run>, kIsHeld<Run>};
  shape.weights = weights, shape.tuning = tuning;
  return shape;
}

// Every second one has biases.
template <class Run, class Shape>
void expect_agreement(const std::vector<Shape>& shapes) {
  std::vector<KernelRequest> requests;
  const auto family = [](size_t i) { return MatvecFamily{.biases = i % 2 != 0}; };
  for (size_t i = 0; i < shapes.size(); ++i) requests.push_back(matvec_request(Run::kName, shapes[i], family(i)));
  machine().kernels.prepare(requests);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Shape& shape = shapes[i];
    SCOPED_TRACE("shape " + std::to_string(i));
    MatvecData data(shape);
    data.family = family(i);
    const auto n_live = static_cast<int32_t>(shape.rows);
    const auto y = Run::run(shape, data, n_live);
    expect_tiles<Run>(shape, data, y, shape.rows);
    for (const unsigned blocks : {1u, 3u})
      EXPECT_TRUE(same_bits(Run::run(shape, data, n_live, blocks), y))
          << blocks << " blocks, " << shape.rows << " rows of " << shape.cols;
  }
}

// Two shapes of one product.
template <class Run, class Shape>
void expect_same_bits(const Shape& first, const Shape& second, unsigned blocks) {
  const MatvecData data(first);
  const auto n_live = static_cast<int32_t>(first.rows);
  EXPECT_TRUE(same_bits(Run::run(first, data, n_live, blocks), Run::run(second, data, n_live, blocks)));
}

// A thread that ends outputs of several segments.
template <class Run>
void expect_same_bits_in_every_segment(const MatvecShape& shape) {
  MatvecShape cut = shape;
  cut.of_block = 16;
  EXPECT_LT(cut.segment(), shape.segment());
  expect_same_bits<Run>(cut, shape, 1);
}

// Pieces of a row, of which the last is shorter.
template <class Run>
void expect_same_bits_in_pieces(int64_t cols, int64_t results, const WeightLayout& weights) {
  const TileTuning whole{.warps = 4, .rows = 16, .piece = 5, .ring = 2},
      cut{.warps = 4, .rows = 16, .piece = 2, .ring = 3};
  expect_same_bits<Run>(tile_shape<Run>(8, cols, results, weights, whole),
                        tile_shape<Run>(8, cols, results, weights, cut), 0);
}

// Blocks of a cluster that share the columns.
template <class Run>
class TilesInClusters : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!machine().device.properties().has_clusters()) GTEST_SKIP() << "no clusters";
  }
};

}  // namespace nodewright::test
