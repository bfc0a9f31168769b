// embed: where a row's token comes from, what it copies, and what it leaves alone.
#include "kernels_src/residual/embed.h"

#include <gtest/gtest.h>

#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::embed_test {
namespace {

struct EmbedCase {
  std::vector<int32_t> tokens, sequences, last_token;
  int32_t n_live;
  int64_t stride, vocab;
  float scale = 1;
  std::vector<int32_t> positions = {};  // empty: not learned

  static constexpr int64_t kContext = 9;
  static bf16 position_table(int64_t position, int64_t i) {
    return to_bf16(noise(8, static_cast<uint64_t>(position * 10000 + i)));
  }

  // Every bit pattern will do: the kernel copies bits.
  bf16 embedding(int64_t token, int64_t i) const {
    return {static_cast<uint16_t>(random_bits(7, static_cast<uint64_t>(token * stride + i)))};
  }
  float expected(int64_t token, int64_t i) const { return value_of(embedding(token, i)); }

  std::vector<float> run() const {
    std::vector<bf16> table;
    for (int64_t token = 0; token < vocab; ++token)
      for (int64_t i = 0; i < stride; ++i) table.push_back(embedding(token, i));
    const auto rows = tokens.size();
    const Guarded<int32_t> token_ids("tokens", tokens), sequence_ids("sequences", sequences),
        last("last_token", last_token), live("n_live", std::vector{n_live});
    const Guarded<bf16> weights("embedding", table);
    const Guarded<float> x("x", rows * static_cast<size_t>(stride));
    const auto kernel = machine().kernels.kernel<Embed>(
        {"embed", {{"kScaled", scale == 1 ? 0 : 1}, {"kPositions", positions.empty() ? 0 : 1}, {"kLeavesGained", 0}}},
        embed_shape(static_cast<unsigned>(rows), false));
    std::vector<bf16> position_rows;
    for (int64_t i = 0; i < kContext * stride; ++i) position_rows.push_back(position_table(i / stride, i % stride));
    const Guarded<int32_t> position_list("positions", positions);
    const Guarded<bf16> position_weights("position_table", position_rows);
    Embed args{.in = {token_ids, sequence_ids, last, live, vocab},
               .embedding = weights,
               .to = {.x = x, .stride = stride, .scale = scale}};
    if (!positions.empty()) args.to.positions = position_list, args.to.position_table = position_weights;
    run_node(kernel, args);
    return x.read();
  }

  // `token`: the table's row that row `m` of x must equal; -1: untouched.
  void expect_row(const std::vector<float>& x, int64_t m, int64_t token) const {
    std::vector<float> row = poisoned<float>(static_cast<size_t>(stride));
    if (token >= 0)
      for (int64_t i = 0; i < stride; ++i) row[static_cast<size_t>(i)] = expected(token, i);
    EXPECT_TRUE(same_bits(row_of(x, m, stride, stride), std::span<const float>(row))) << "row " << m;
  }
};

TEST(Embed, CopiesEveryElementAtOddWidths) {
  for (const int64_t stride : {8, 104, 1000, 2048, 2056, 8200}) {
    const EmbedCase c{{2, 0, 4}, {0, 1, 2}, {-1, -1, -1}, 3, stride, 5};
    const std::vector<float> x = c.run();
    for (int64_t m = 0; m < 3; ++m) c.expect_row(x, m, c.tokens[static_cast<size_t>(m)]);
  }
}

TEST(Embed, TakesTheTokenOfTheStepBeforeWhereTheHostGivesNone) {
  const EmbedCase c{{-1, 3, -1, -1}, {5, 0, 2, 5}, {1, -1, 6, -1, -1, 4}, 4, 104, 7};
  const std::vector<float> x = c.run();
  c.expect_row(x, 0, 4);
  c.expect_row(x, 1, 3);
  c.expect_row(x, 2, 6);
  c.expect_row(x, 3, 4);
}

TEST(Embed, LeavesPaddedRowsAloneAndFollowsNothingOfTheirs) {
  for (int32_t n_live = 1; n_live <= 5; ++n_live) {
    EmbedCase c{{1, 2, 3, 1, 2}, {0, 0, 0, 0, 0}, {0}, n_live, 104, 4};
    for (int32_t m = n_live; m < 5; ++m)
      c.tokens[static_cast<size_t>(m)] = -1, c.sequences[static_cast<size_t>(m)] = 1 << 30;
    const std::vector<float> x = c.run();
    for (int64_t m = 0; m < 5; ++m) c.expect_row(x, m, m < n_live ? c.tokens[static_cast<size_t>(m)] : -1);
  }
}

// One rounding each: the product's and the sum's.
TEST(Embed, ScalesTheEmbeddingAndAddsThePositions) {
  for (const bool learned : {false, true})
    for (const float scale : {1.0f, 34.0f, 9.8125f}) {
      EmbedCase c{{2, 0, -1, 1}, {0, 1, 2, 3}, {-1, -1, 3, 0}, 3, 104, 5, scale};
      if (learned) c.positions = {8, 0, 3, 1 << 30};  // the last row does not count
      const std::vector<float> x = c.run();
      for (int64_t m = 0; m < 3; ++m)
        for (int64_t i = 0; i < c.stride; ++i) {
          const auto at = static_cast<size_t>(m);
          const double token = c.expected(m == 2 ? 3 : c.tokens[at], i), product = token * scale;
          const double position = learned ? value_of(EmbedCase::position_table(c.positions[at], i)) : 0.0;
          const float found = x[static_cast<size_t>(m * c.stride + i)];
          if (std::isnan(token) || std::abs(product) > 1e38) continue;
          ASSERT_NEAR(found, product + position, 0x1p-23 * (std::abs(product) + std::abs(position)) + 0x1p-149)
              << "scale " << scale << ", row " << m << ", element " << i;
        }
      c.expect_row(x, 3, -1);
    }
}

// A failed row leaves -1 as its last token; the host reports it, and the step after must not read out of bounds.
TEST(Embed, ReadsTokenZeroInPlaceOfOneThatIsNone) {
  const EmbedCase c{{-1, 7, 1 << 30, -1}, {0, 0, 0, 1}, {-1, 7}, 4, 104, 7};
  const std::vector<float> x = c.run();
  for (int64_t m = 0; m < 4; ++m) c.expect_row(x, m, 0);
}

}  // namespace
}  // namespace nodewright::test::embed_test
