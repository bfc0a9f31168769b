// tile_expert_gate_up, tile_expert_down and add_experts against doubles, after group_by_expert, in jobs of all sizes;
// whether a row's bits depend on its neighbours.
#include "kernels_src/experts/expert_tiles.h"

#include <gtest/gtest.h>

#include "kernels_src/experts/add_experts.h"
#include "tests/kernels/experts/experts_case.h"

namespace nodewright::test::expert_tiles_test {
namespace {

// What weights lose that become bf16 before they are multiplied, of their magnitude.
double rounding_of(const WeightLayout& layout) { return layout.is_grouped() && !layout.is_int4() ? 0x1p-8 : 0; }

struct Grouped {
  Guarded<int32_t> pairs, n_jobs;
  Guarded<ExpertJob> jobs;
};

Grouped group(const ExpertsCase& c, const ExpertTileShape& shape) {
  Grouped grouped{{"pairs", at(shape.pairs())}, {"n_jobs", 1}, {"jobs", at(shape.most_jobs())}};
  const Guarded<int32_t> experts("experts", c.of_rows), n_live("n_live", std::vector{c.n_live});
  run_node(
      machine().kernels.kernel<GroupByExpert>({"group_by_expert",
                                               {{"kExperts", c.experts},
                                                {"kChosen", c.chosen},
                                                {"kJobRows", shape.job_rows()},
                                                {"kThreads", int64_t{shape.group_threads()}}}},
                                              shape.group_launch()),
      {.experts = experts, .n_live = n_live, .pairs = grouped.pairs, .jobs = grouped.jobs, .n_jobs = grouped.n_jobs});
  return grouped;
}

// Elements of a pair's row of y, `y_stride` apart.
template <class Args, class Element>
std::vector<Element> multiply(const ExpertsCase& c, const char* name, int64_t y_stride) {
  const ExpertTileShape shape{c.shape()};
  const Grouped grouped = group(c, shape);
  const Guarded<bf16> x("x", c.x), weight("weight", c.weight);
  const Guarded<Element> y("y", at(shape.pairs() * y_stride));
  std::vector<Constant> constants = c.constants(constants_of(shape.tile_constants(), {}));
  if (std::is_same_v<Args, ExpertGateUp>) constants.push_back({"kActivation", static_cast<int64_t>(Activation::silu)});
  run_node(machine().kernels.kernel<Args>({name, constants}, shape.launch_shape(4)), {.from = {x, c.stride()},
                                                                                      .pairs = grouped.pairs,
                                                                                      .jobs = grouped.jobs,
                                                                                      .n_jobs = grouped.n_jobs,
                                                                                      .w = {.weight = weight},
                                                                                      .to = {y, y_stride}});
  return y.read();
}

// Rows, of them live, experts, chosen, columns, outputs of an expert: jobs of 16, 32 and 64 rows; columns in several
// pieces.
struct Sizes {
  int64_t rows, live, experts, chosen, cols, outputs;
  WeightLayout layout = {};
};
std::vector<Sizes> all_sizes(int64_t unit) {
  std::vector<Sizes> sizes = {{3, 3, 7, 3, 60, 72},    {17, 15, 5, 2, 100, 60}, {4, 4, 3, 2, 2100, 22},
                              {50, 47, 4, 2, 136, 30}, {90, 90, 3, 2, 200, 50}, {70, 66, 2, 1, 1100, 20}};
  const WeightLayout rows = fp8_layout(false, unit), blocks = fp8_layout(true, unit);
  sizes.insert(sizes.end(), {{5, 3, 5, 3, 272, 46, rows},
                             {70, 66, 2, 1, 1104, 20, rows},
                             {4, 4, 3, 2, 2192, 128 * unit, blocks},
                             {50, 47, 4, 2, 144, 128 * unit, blocks},
                             {5, 3, 5, 3, 384, 46, int4_layout(64)},
                             {50, 47, 4, 2, 128, 30, int4_layout(32)},
                             {70, 66, 2, 1, 1152, 20, int4_layout(128)},
                             {5, 3, 5, 3, 384, 46, group_layout(WeightCode::q4)},
                             {70, 66, 2, 1, 1152, 20, group_layout(WeightCode::q4_offset)},
                             {50, 47, 4, 2, 128, 30, group_layout(WeightCode::q8, 16)},
                             {4, 4, 3, 2, 2176, 22, group_layout(WeightCode::q8_offset)}});
  return sizes;
}

TEST(ExpertTiles, GateUpAgreesWithTheReference) {
  for (const Sizes& s : all_sizes(2)) {
    ExpertsCase c(s.rows, s.live, s.experts, s.chosen, s.cols, s.outputs, s.layout);
    c.draw_x(c.rows);
    const int64_t inner = c.outputs / 2, y_stride = round_up_to_8(inner);
    const auto y = multiply<ExpertGateUp, bf16>(c, "tile_expert_gate_up", y_stride);
    for (int64_t pair = 0; pair < c.rows * c.chosen; ++pair)
      for (int64_t i = 0; i < y_stride; ++i) {
        const bf16 found = y[at(pair * y_stride + i)];
        if (pair / c.chosen >= c.n_live || i >= inner) {
          ASSERT_EQ(found.bits, 0xffff) << "pair " << pair << ", element " << i;
          continue;
        }
        double size, other_size;
        const double gate = c.dot(pair, pair / c.chosen, 2 * i, size),
                     up = c.dot(pair, pair / c.chosen, 2 * i + 1, other_size);
        const double expected = silu(gate) * up;
        ASSERT_NEAR(value_of(found), expected,
                    0x1p-8 * std::abs(expected) +
                        (1e-5 + rounding_of(c.layout)) * (size + other_size) * (1 + std::abs(up) + std::abs(gate)))
            << "pair " << pair << ", element " << i << ", " << c.cols << " columns";
      }
  }
}

TEST(ExpertTiles, DownAgreesWithTheReference) {
  for (const Sizes& s : all_sizes(1)) {
    const int64_t odd = s.outputs - (s.layout.in_blocks ? 0 : 1);
    ExpertsCase c(s.rows, s.live, s.experts, s.chosen, s.cols, odd, s.layout);
    c.draw_x(c.rows * c.chosen);
    const int64_t y_stride = round_up_to_8(c.outputs);
    const auto y = multiply<ExpertDown, float>(c, "tile_expert_down", y_stride);
    for (int64_t pair = 0; pair < c.rows * c.chosen; ++pair)
      for (int64_t n = 0; n < y_stride; ++n) {
        const float found = y[at(pair * y_stride + n)];
        if (pair / c.chosen >= c.n_live || n >= c.outputs) {
          ASSERT_TRUE(std::isnan(found)) << "pair " << pair << ", output " << n;
          continue;
        }
        double size;
        const double expected = c.dot(pair, pair, n, size);
        ASSERT_NEAR(found, expected, (0x1p-18 + rounding_of(c.layout)) * size) << "pair " << pair << ", output " << n;
      }
  }
}

// What a checker of formats must see: another code, and another scale, of the last expert's last row.
TEST(ExpertTiles, EveryCodeAndScaleCounts) {
  for (const WeightLayout& layout :
       {fp8_layout(false, 1), fp8_layout(true, 1), int4_layout(64), group_layout(WeightCode::q8)}) {
    ExpertsCase c(17, 17, 2, 2, 512, 128, layout);
    c.draw_x(c.rows * c.chosen);
    const auto all = multiply<ExpertDown, float>(c, "tile_expert_down", 128);
    const int64_t padding =  // words after the last row's groups
        layout.is_grouped() ? layout.group_stride(c.stride()) - layout.group_words(c.stride()) : 0;
    const size_t codes = at(layout.row_bytes(c.stride()) * c.experts * c.outputs) / 2,
                 end = c.weight.size() - at(2 * padding);
    for (const size_t i : {codes - 1, end - 1}) {
      ExpertsCase other = c;
      other.weight[i].bits ^= 0x0101;
      EXPECT_FALSE(same_bits(multiply<ExpertDown, float>(other, "tile_expert_down", 128), all)) << i << " of " << end;
    }
  }
}

TEST(ExpertTiles, ARowsBitsDoNotDependOnItsNeighbours) {
  for (const auto& [cols, layout] : {std::pair{100, WeightLayout{}}, {128, int4_layout(64)}}) {
    ExpertsCase c(17, 17, 5, 2, cols, 60, layout);
    c.draw_x(c.rows * c.chosen);
    const auto all = multiply<ExpertDown, float>(c, "tile_expert_down", 64);
    for (const int64_t row : {int64_t{0}, int64_t{9}, int64_t{16}}) {
      ExpertsCase other = c;  // that row stands first, among others
      for (int64_t j = 0; j < 2; ++j) {
        other.of_rows[at(j)] = c.of_rows[at(2 * row + j)];
        std::copy_n(c.x.begin() + (2 * row + j) * c.stride(), c.stride(), other.x.begin() + j * c.stride());
      }
      for (int64_t i = 2; i < 34; ++i) other.of_rows[at(i)] = static_cast<int32_t>(random_bits(5, at(i)) % 5);
      const auto moved = multiply<ExpertDown, float>(other, "tile_expert_down", 64);
      for (int64_t j = 0; j < 2; ++j)
        EXPECT_TRUE(same_bits(row_of(moved, j, 64, 60), row_of(all, 2 * row + j, 64, 60))) << "row " << row;
    }
  }
}

TEST(AddExperts, AddsTheWeightedSum) {
  const ExpertsCase c(3, 2, 9, 8, 1, 1);
  constexpr int64_t kCols = 1029, kStride = 1032;
  std::vector<float> given(at(c.rows * c.chosen * kStride)), before(at(c.rows * kStride), 1.0f);
  for (size_t i = 0; i < given.size(); ++i) given[i] = static_cast<float>(noise(1, i));
  const Guarded<float> y("y", given), weights("weights", c.weights), residual("residual", before);
  const Guarded<int32_t> n_live("n_live", std::vector{c.n_live});
  run_node(machine().kernels.kernel<AddExperts>({"add_experts", {{"kChosen", c.chosen}, {"kScale", 0}}},
                                                add_experts_shape(c.rows, kCols)),
           {.y = y, .weights = weights, .residual = residual, .n_live = n_live, .cols = kCols, .stride = kStride});
  const std::vector<float> found = residual.read();
  for (int64_t m = 0; m < c.rows; ++m)
    for (int64_t n = 0; n < kStride; ++n) {
      double expected = 1;
      for (int64_t j = 0; j < c.chosen && m < c.n_live && n < kCols; ++j)
        expected += c.weights[at(m * c.chosen + j)] * given[at((m * c.chosen + j) * kStride + n)];
      ASSERT_NEAR(found[at(m * kStride + n)], expected, 1e-5) << "row " << m << ", column " << n;
    }
}

}  // namespace
}  // namespace nodewright::test::expert_tiles_test
