// Tiles past rows of x that stay in registers, for invariant numerics: one order of sums for any number of rows, in
// groups or not, and for any number of blocks of a cluster that share the columns; in bf16 and in FP8.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/kernels/tile/expected.h"

namespace nodewright::test::tile_orders_test {
namespace {

constexpr int64_t kMultiprocessors = 22;          // which ranges are dealt to
constexpr int64_t kRowsOfSteps[] = {2, 32, 100};  // in one group of eight, in one of all, in several

// Blocks that share the columns, and whether their sums meet tile by tile.
struct Case {
  const char* name;
  int64_t splits;
  bool meets;
  int64_t cols;
  WeightLayout weights;
};

TileShape held_shape(int64_t rows, const Case& of, bool gained, int64_t unit = 1) {
  TileShape shape{rows, of.cols, of.cols, 300, unit, gained, false, gained, true};
  shape.tuning.splits = of.splits;
  shape.meets = of.meets;
  shape.weights = of.weights;
  return shape;
}

template <class A>
Kernel<A> kernel_of(const char* name, const TileShape& s, bool leaves_gained) {
  const int64_t ring = s.ring(kMultiprocessors, machine().device.properties().shared_optin_bytes);
  KernelRequest request = matvec_request(name, s, {.biases = true, .leaves_gained = leaves_gained});
  for (const ShapeConstant& c : s.constants(ring, kMultiprocessors).of)
    for (Constant& own : request.constants)
      if (own.name == c.name) own.value = int64_t{c.value};
  return machine().kernels.kernel<A>(request, s.launch_shape(kMultiprocessors, ring));
}

struct Left {
  std::vector<float> sums, squares;  // [rows, y_stride], [parts, padded rows]
  std::vector<bf16> gained;          // [rows, outputs]
};
// project_add of rows with these numbers, of which n_live count.
Left added(const TileShape& s, const std::vector<uint64_t>& numbers, int32_t n_live) {
  MatvecData data(s, numbers);
  std::vector<bf16> next_gain;
  for (uint64_t n = 0; n < data.count(s.outputs); ++n) next_gain.push_back(to_bf16(1.0 + 0.5 * noise(9, n)));
  const uint64_t parts = data.count(s.ranges(kMultiprocessors) * (s.meets ? 1 : s.splits()));
  const Guarded<bf16> x("x", data.packed_x), weight("weight", data.weight), bias("bias", data.bias),
      gain("next_gain", next_gain), gained("gained", data.count(s.rows * s.outputs));
  const Guarded<float> residual("residual", data.residual),
      squares("squares", parts * data.count(TileShape::padded_rows(s.rows)));
  const Guarded<int32_t> live("n_live", std::vector<int32_t>{n_live});
  run_node(kernel_of<ProjectAdd>("project_add", s, true),
           {.from = {x, data.stride},
            .w = {weight, bias, s.outputs},
            .to = {residual, data.y_stride, {.gain = gain, .gained = gained, .squares = squares}},
            .n_live = live});
  return {residual.read(), squares.read(), gained.read()};
}

class TileOrders : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (GetParam().splits > 1 && !machine().device.properties().has_clusters())
      GTEST_SKIP() << "the device has no clusters";
  }
  // A step of `rows` rows, the last of which do not count, has in row m number 7 m + rows.
  static std::vector<uint64_t> numbers(int64_t rows) {
    std::vector<uint64_t> numbers;
    for (int64_t m = 0; m < rows; ++m) numbers.push_back(static_cast<uint64_t>(7 * m + rows));
    return numbers;
  }
  static std::vector<int64_t> looked_at(int64_t rows) { return {0, (rows - 1) / 2, rows - 2}; }
};

TEST_P(TileOrders, GiveARowTheSameSumsSquaresAndGainedValuesInAnyStep) {
  for (const int64_t rows : kRowsOfSteps) {
    const TileShape one = held_shape(1, GetParam(), false), many = held_shape(rows, GetParam(), false);
    const auto n = static_cast<size_t>(many.outputs), padded = static_cast<size_t>(TileShape::padded_rows(rows));
    const Left all = added(many, numbers(rows), static_cast<int32_t>(rows - 1));
    ASSERT_EQ(many.ranges(kMultiprocessors), one.ranges(kMultiprocessors));
    for (const int64_t m : looked_at(rows)) {
      const auto row = static_cast<size_t>(m);
      const Left alone = added(one, {numbers(rows)[row]}, 1);
      const size_t y_stride = alone.sums.size();
      EXPECT_TRUE(same_bits(std::span(all.sums).subspan(row * y_stride, n), std::span(alone.sums).first(n)))
          << "row " << m << " of " << rows;
      EXPECT_TRUE(same_bits(std::span(all.gained).subspan(row * n, n), std::span(alone.gained).first(n)))
          << "row " << m << " of " << rows;
      for (size_t part = 0; part < alone.squares.size() / 8; ++part)
        ASSERT_EQ(all.squares[part * padded + row], alone.squares[part * 8]) << "row " << m << " of " << rows;
    }
  }
}

TEST_P(TileOrders, LeaveNothingInGroupsWithoutLiveRows) {
  const TileShape one = held_shape(1, GetParam(), false), many = held_shape(100, GetParam(), false);
  const auto n = static_cast<size_t>(many.outputs);
  const Left all = added(many, numbers(100), 20);
  const MatvecData data(many, numbers(100));
  const size_t y_stride = all.sums.size() / 100;
  for (const size_t row : {0u, 19u}) {
    const Left alone = added(one, {numbers(100)[row]}, 1);
    EXPECT_TRUE(same_bits(std::span(all.sums).subspan(row * y_stride, n), std::span(alone.sums).first(n)))
        << "row " << row;
  }
  EXPECT_TRUE(same_bits(std::span(all.sums).subspan(20 * y_stride), std::span(data.residual).subspan(20 * y_stride)));
}

TEST_P(TileOrders, GiveGainedRowsTheSameProductsInAnyStep) {
  const auto logits = [](const TileShape& s, const std::vector<uint64_t>& numbers, int32_t n_live) {
    MatvecData data(s, numbers);
    data.family.biases = true;
    const Gained gained(s, data);
    const Guarded<float> x("x", data.x), y("y", data.residual.size());
    const Joining joining(data);
    const Guarded<bf16> gain("gain", data.gain), shift("shift", data.shift), weight("weight", data.weight),
        bias("bias", data.bias);
    const Guarded<int32_t> live("n_live", std::vector<int32_t>{n_live});
    const uint64_t parts = data.count(s.ranges(kMultiprocessors) * (s.meets ? 1 : s.splits()));
    const Guarded<ScoredToken> best("best", data.count(s.rows) * parts);
    run_node(kernel_of<NormProject>("norm_project", s, false),
             {.from = residual_in(data, x, gain, shift, gained, joining, false),
              .w = {weight, bias, s.outputs},
              .to = {y, data.y_stride},
              .best = best,
              .n_live = live});
    const std::vector<ScoredToken> found = best.read();
    const std::vector<float> all = y.read();
    for (const int64_t m : looked_at(s.rows)) {
      if (m < 0 || m >= n_live) continue;
      const auto row = row_of(all, m, data.y_stride, s.outputs);
      const auto largest = std::ranges::max_element(row);
      const auto of_row = std::span(found).subspan(data.count(m) * parts, parts);
      const auto chosen = std::ranges::max_element(of_row, {}, &ScoredToken::score);
      EXPECT_EQ(chosen->token, largest - row.begin()) << "row " << m << " of " << s.rows;
      EXPECT_EQ(chosen->score, *largest) << "row " << m << " of " << s.rows;
      for (int64_t i = 0; i < s.outputs; i += 7) {
        const Dot expected = expected_of(RunNormProject(), s, data, m, i);
        EXPECT_NEAR(row[data.count(i)], expected.value, expected.bound) << "row " << m << ", output " << i;
      }
    }
    return all;
  };
  for (const int64_t rows : kRowsOfSteps) {
    const TileShape one = held_shape(1, GetParam(), true), many = held_shape(rows, GetParam(), true);
    const auto n = static_cast<size_t>(many.outputs);
    const std::vector<float> all = logits(many, numbers(rows), static_cast<int32_t>(rows - 1));
    for (const int64_t m : looked_at(rows)) {
      const auto row = static_cast<size_t>(m);
      const std::vector<float> alone = logits(one, {numbers(rows)[row]}, 1);
      EXPECT_TRUE(same_bits(std::span(all).subspan(row * alone.size(), n), std::span(alone).first(n)))
          << "row " << m << " of " << rows;
    }
  }
}

TEST_P(TileOrders, GiveGatedRowsTheSameActivationsInAnyStep) {
  const auto activations = [](const TileShape& s, const std::vector<uint64_t>& numbers, int32_t n_live) {
    const MatvecData data(s, numbers);
    const Gained gained(s, data);
    const Guarded<float> x("x", data.x);
    const Joining joining(data);
    const Guarded<bf16> gain("gain", data.gain), shift("shift", data.shift), weight("weight", data.weight),
        bias("bias", data.bias), y("y", data.residual.size());
    const Guarded<int32_t> live("n_live", std::vector<int32_t>{n_live});
    run_node(kernel_of<NormGateUp>("norm_gate_up", s, false),
             {.from = residual_in(data, x, gain, shift, gained, joining, false),
              .w = {weight, bias, s.outputs},
              .to = {y, data.y_stride},
              .n_live = live});
    return y.read();
  };
  for (const int64_t rows : kRowsOfSteps) {
    const TileShape one = held_shape(1, GetParam(), true, 2), many = held_shape(rows, GetParam(), true, 2);
    const auto n = static_cast<size_t>(many.outputs / 2);
    const std::vector<bf16> all = activations(many, numbers(rows), static_cast<int32_t>(rows - 1));
    for (const int64_t m : looked_at(rows)) {
      const auto row = static_cast<size_t>(m);
      const std::vector<bf16> alone = activations(one, {numbers(rows)[row]}, 1);
      EXPECT_TRUE(same_bits(std::span(all).subspan(row * alone.size(), n), std::span(alone).first(n)))
          << "row " << m << " of " << rows;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Splits, TileOrders,
                         testing::Values(Case{"1", 1, false, 1088, {}}, Case{"4", 4, true, 1088, {}},
                                         Case{"1_fp8_rows", 1, false, 1088, fp8_layout(false, 1)},
                                         Case{"4_fp8_blocks_kept", 4, false, 1280, fp8_layout(true, 1)}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nodewright::test::tile_orders_test
