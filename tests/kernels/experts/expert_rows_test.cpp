// norm_expert_gate_up and expert_down_add against doubles, at odd sizes; what padded rows leave alone. And
// expert_down_sum, which a rank of a team has in place of the latter.
#include <gtest/gtest.h>

#include "kernels_src/experts/expert_down_rows.h"
#include "kernels_src/experts/norm_expert_gate_up.h"
#include "tests/kernels/experts/experts_case.h"

namespace nodewright::test::expert_rows_test {
namespace {

constexpr float kEps = 1e-2f;

// Rows, of them live, experts, chosen, columns, outputs of an expert. Of FP8 and int4 rows of less than a word of each
// lane, of a word, of several, and of more than are on their way at once.
struct Sizes {
  int64_t rows, live, experts, chosen, cols, outputs;
  WeightLayout layout = {};
};
std::vector<Sizes> all_sizes(int64_t unit) {
  std::vector<Sizes> sizes = {{1, 1, 7, 3, 60, 72},   {2, 2, 5, 2, 100, 60},  {3, 2, 4, 4, 2056, 10},
                              {1, 1, 9, 8, 300, 500}, {4, 3, 3, 1, 4100, 14}, {1, 1, 12, 10, 36, 62}};
  const WeightLayout rows = fp8_layout(false, unit), blocks = fp8_layout(true, unit);
  sizes.insert(sizes.end(), {{1, 1, 5, 2, 400, 62, rows},
                             {1, 1, 2, 1, 8208, 62, rows},
                             {3, 2, 3, 3, 2064, 128 * unit, blocks},
                             {1, 1, 2, 1, 8208, 128 * unit, blocks},
                             {1, 1, 9, 8, 384, 62, int4_layout(128)},
                             {3, 2, 3, 2, 2176, 26, int4_layout(64)},
                             {1, 1, 2, 1, 8320, 18, int4_layout(32)},
                             {1, 1, 9, 8, 384, 62, group_layout(WeightCode::q4)},
                             {3, 2, 3, 2, 2176, 26, group_layout(WeightCode::q4_offset)},
                             {1, 1, 2, 1, 640, 18, group_layout(WeightCode::q8, 16)},
                             {3, 2, 3, 2, 2176, 26, group_layout(WeightCode::q8_offset)}});
  return sizes;
}
// What normed x loses where codes are multiplied in fp16, and what codes of 8 bits with groups lose.
double rounding_of(const WeightLayout& layout) { return layout.is_quantized() ? 0x1p-10 : 1e-5; }
double rounding_of_codes(const WeightLayout& layout) {
  return layout.is_grouped() && !layout.has_nibbles() ? 0x1p-10 : 0x1p-18;
}

TEST(NormExpertGateUp, AgreesWithTheReference) {
  for (const Sizes& s : all_sizes(2)) {
    const ExpertsCase c(s.rows, s.live, s.experts, s.chosen, s.cols, s.outputs, s.layout);
    const int64_t inner = c.outputs / 2, y_stride = round_up_to_8(inner);
    std::vector<float> x(at(c.rows * c.stride()), 0.0f);
    std::vector<bf16> gain;
    for (int64_t k = 0; k < c.cols; ++k) gain.push_back(to_bf16(1 + 0.5 * noise(9, at(k))));
    for (int64_t m = 0; m < c.rows; ++m)
      for (int64_t k = 0; k < c.cols; ++k) x[at(m * c.stride() + k)] = static_cast<float>(noise(at(m), at(k)));
    const Guarded<float> residual("x", x);
    const Guarded<bf16> gains("gain", gain), weight("weight", c.weight), y("y", at(c.rows * c.chosen * y_stride));
    const Guarded<int32_t> experts("experts", c.of_rows), n_live("n_live", std::vector{c.n_live});
    const ExpertRowsShape shape{c.shape()};
    run_node(machine().kernels.kernel<NormExpertGateUp>(
                 {"norm_expert_gate_up", c.constants({{"kSingleRow", c.rows == 1},
                                                      {"kNorm", static_cast<int64_t>(Norm::rms)},
                                                      {"kActivation", static_cast<int64_t>(Activation::silu)}})},
                 shape.gate_up_launch(4)),
             {.x = residual,
              .gain = gains,
              .experts = experts,
              .w = {.weight = weight},
              .to = {y, y_stride},
              .n_live = n_live,
              .eps = kEps});
    const std::vector<bf16> found = y.read();
    for (int64_t pair = 0; pair < c.rows * c.chosen; ++pair) {
      const int64_t m = pair / c.chosen;
      double squares = 0;
      for (int64_t k = 0; k < c.cols; ++k) squares += std::pow(x[at(m * c.stride() + k)], 2);
      const double scale = 1 / std::sqrt(squares / static_cast<double>(c.cols) + kEps);
      for (int64_t i = 0; i < y_stride; ++i) {
        const float value = value_of(found[at(pair * y_stride + i)]);
        if (m >= c.n_live || i >= inner) {
          ASSERT_EQ(found[at(pair * y_stride + i)].bits, 0xffff) << "pair " << pair << ", element " << i;
          continue;
        }
        double sums[2] = {}, sizes = 0;
        for (const int64_t k2 : {0, 1})
          for (int64_t k = 0; k < c.cols; ++k) {
            const double of_x = x[at(m * c.stride() + k)] * scale * value_of(gain[at(k)]);
            sums[k2] += of_x * c.value(pair, 2 * i + k2, k);
            sizes += std::abs(of_x) * c.magnitude(pair, 2 * i + k2, k);
          }
        ASSERT_NEAR(value, silu(sums[0]) * sums[1],
                    0x1p-8 * std::abs(silu(sums[0]) * sums[1]) + rounding_of(c.layout) * sizes)
            << "pair " << pair << ", element " << i << " of " << inner << ", " << c.cols << " columns";
      }
    }
  }
}

TEST(ExpertDownAdd, AgreesWithTheReference) {
  for (const Sizes& s : all_sizes(1)) {
    ExpertsCase c(s.rows, s.live, s.experts, s.chosen, s.cols, s.outputs, s.layout);
    c.draw_x(c.rows * c.chosen);
    const int64_t stride = round_up_to_8(c.outputs);
    std::vector<float> before = poisoned<float>(at(c.rows * stride));
    for (int64_t m = 0; m < c.rows; ++m)
      for (int64_t n = 0; n < c.outputs; ++n) before[at(m * stride + n)] = static_cast<float>(noise(at(40 + m), at(n)));
    const Guarded<bf16> x("x", c.x), weight("weight", c.weight);
    const Guarded<float> residual("residual", before), weights("weights", c.weights);
    const Guarded<int32_t> experts("experts", c.of_rows), n_live("n_live", std::vector{c.n_live});
    const ExpertRowsShape shape{c.shape()};
    run_node(machine().kernels.kernel<ExpertDownAdd>(
                 {"expert_down_add",
                  c.constants(constants_of(shape.down_constants(4), {{"kSingleRow", c.rows == 1}, {"kScale", 0}}))},
                 shape.down_launch(4)),
             {.from = {x, c.stride()},
              .experts = experts,
              .weights = weights,
              .w = {.weight = weight},
              .to = {.residual = residual, .stride = stride},
              .n_live = n_live});
    const std::vector<float> found = residual.read();
    for (int64_t m = 0; m < c.rows; ++m)
      for (int64_t n = 0; n < stride; ++n) {
        const float value = found[at(m * stride + n)], was = before[at(m * stride + n)];
        if (m >= c.n_live || n >= c.outputs) {
          ASSERT_EQ(std::memcmp(&value, &was, sizeof(float)), 0) << "row " << m << ", output " << n;
          continue;
        }
        double sum = was, sizes = std::abs(was);
        for (int64_t j = 0; j < c.chosen; ++j) {
          double size;
          const int64_t pair = m * c.chosen + j;
          sum += c.weights[at(pair)] * c.dot(pair, pair, n, size);
          sizes += size;
        }
        ASSERT_NEAR(value, sum, rounding_of_codes(c.layout) * sizes)
            << "row " << m << ", output " << n << ", " << c.cols << " columns";
      }
  }
}

// By the reference of expert_down_add: what that adds to a residual of zeros.
TEST(ExpertDownSum, GivesWhatExpertDownAddAdds) {
  for (const Sizes& s : all_sizes(1)) {
    if (s.layout.is_quantized() && s.rows == 1) continue;
    ExpertsCase c(s.rows, s.live, s.experts, s.chosen, s.cols, s.outputs, s.layout);
    c.draw_x(c.rows * c.chosen);
    const int64_t stride = round_up_to_8(c.outputs);
    const Guarded<bf16> x("x", c.x), weight("weight", c.weight);
    const Guarded<float> residual("residual", std::vector(at(c.rows * stride), 0.0f)), y("y", at(c.rows * stride));
    const Guarded<float> weights("weights", c.weights);
    const Guarded<int32_t> experts("experts", c.of_rows), n_live("n_live", std::vector{c.n_live});
    const ExpertRowsShape shape{c.shape()};
    const auto constants =
        c.constants(constants_of(shape.down_constants(4), {{"kSingleRow", c.rows == 1}, {"kScale", 0}}));
    run_node(machine().kernels.kernel<ExpertDownAdd>({"expert_down_add", constants}, shape.down_launch(4)),
             {.from = {x, c.stride()},
              .experts = experts,
              .weights = weights,
              .w = {.weight = weight},
              .to = {.residual = residual, .stride = stride},
              .n_live = n_live});
    run_node(machine().kernels.kernel<ExpertDownSum>({"expert_down_sum", constants}, shape.down_launch(4)),
             {.from = {x, c.stride()},
              .experts = experts,
              .weights = weights,
              .w = {.weight = weight},
              .to = {y, stride},
              .n_live = n_live});
    const std::vector<float> expected = residual.read(), found = y.read();
    for (int64_t m = 0; m < c.rows; ++m)
      for (int64_t n = 0; n < stride; ++n)
        if (m < c.n_live && n < c.outputs)
          ASSERT_EQ(found[at(m * stride + n)], expected[at(m * stride + n)]) << "row " << m << ", output " << n;
        else
          ASSERT_TRUE(std::isnan(found[at(m * stride + n)])) << "row " << m << ", output " << n;
  }
}

}  // namespace
}  // namespace nodewright::test::expert_rows_test
