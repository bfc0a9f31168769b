// embed_positions: which token and which position a row gets, their sum, and what is left alone.
#include "examples/nanogpt/kernels/embed_positions.h"

#include <gtest/gtest.h>

#include "tests/examples/nanogpt/kernels/nanogpt_kernels.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::embed_positions_test {
namespace {

constexpr int64_t kVocab = 7, kContext = 5;

template <class W>
W table_element(uint64_t table, int64_t row, int64_t i) {
  const double v = noise(table, static_cast<uint64_t>(row * 1000 + i));
  if constexpr (sizeof(W) == 2)
    return to_bf16(v);
  else
    return static_cast<float>(v);
}
float in_float(bf16 v) { return value_of(v); }
float in_float(float v) { return v; }

template <class W>
struct EmbedCase {
  std::vector<int32_t> tokens, positions;
  int32_t advance = 0, n_live = -1;  // -1: all
  int64_t cols = 100;
  std::vector<int32_t> sequences = {0, 1, 0}, last_token = {3, 6};

  struct Result {
    std::vector<float> x;
    std::vector<int32_t> positions;
  };

  int64_t x_stride() const { return cols + 3; }

  Result run() const {
    std::vector<W> token_table, position_table;
    for (int64_t r = 0; r < kVocab; ++r)
      for (int64_t i = 0; i < cols; ++i) token_table.push_back(table_element<W>(1, r, i));
    for (int64_t r = 0; r < kContext; ++r)
      for (int64_t i = 0; i < cols; ++i) position_table.push_back(table_element<W>(2, r, i));
    const size_t rows = tokens.size();
    const Guarded<int32_t> ids("tokens", tokens), sequence_ids("sequences", sequences), last("last_token", last_token),
        at("positions", positions), live("n_live", std::vector{n_live < 0 ? static_cast<int32_t>(rows) : n_live});
    const Guarded<W> words("token_table", token_table), places("position_table", position_table);
    const Guarded<float> x("x", rows * static_cast<size_t>(x_stride()));
    run_node(nanogpt_kernel_cache().kernel<EmbedPositions<W>>({"embed_positions", {{"kWeightBytes", sizeof(W)}}},
                                                              embed_positions_shape(static_cast<unsigned>(rows))),
             {.tokens = ids,
              .sequences = sequence_ids,
              .last_token = last,
              .n_live = live,
              .positions = at,
              .token_table = words,
              .position_table = places,
              .x = x,
              .cols = cols,
              .vocab = kVocab,
              .context = kContext,
              .x_stride = x_stride(),
              .advance = advance});
    return {x.read(), at.read()};
  }

  // Row m is the sum of those two rows of the tables; token -1: untouched.
  void expect_row(const Result& result, int64_t m, int64_t token, int64_t position) const {
    std::vector<float> row = poisoned<float>(static_cast<size_t>(x_stride()));
    if (token >= 0)
      for (int64_t i = 0; i < cols; ++i)
        row[static_cast<size_t>(i)] =
            in_float(table_element<W>(1, token, i)) + in_float(table_element<W>(2, position, i));
    EXPECT_TRUE(same_bits(row_of(result.x, m, x_stride(), x_stride()), std::span<const float>(row))) << "row " << m;
  }
};

template <class W>
class EmbedPositionsRows : public ::testing::Test {};
using Elements = ::testing::Types<float, bf16>;
TYPED_TEST_SUITE(EmbedPositionsRows, Elements);

TYPED_TEST(EmbedPositionsRows, AreTheSumsOfBothTablesAtOddWidths) {
  for (const int64_t cols : {1, 32, 127, 129, 1600}) {
    const EmbedCase<TypeParam> c{.tokens = {2, 0, 6}, .positions = {0, 4, 3}, .cols = cols};
    const auto result = c.run();
    for (int64_t m = 0; m < 3; ++m)
      c.expect_row(result, m, c.tokens[static_cast<size_t>(m)], c.positions[static_cast<size_t>(m)]);
    EXPECT_EQ(result.positions, c.positions);
  }
}

TYPED_TEST(EmbedPositionsRows, TakeTheTokenOfTheStepBeforeAndMoveOn) {
  const EmbedCase<TypeParam> c{.tokens = {-1, 5, -1}, .positions = {0, 1, 3}, .advance = 1};
  const auto result = c.run();
  c.expect_row(result, 0, 3, 1);
  c.expect_row(result, 1, 5, 2);
  c.expect_row(result, 2, 3, 4);
  EXPECT_EQ(result.positions, (std::vector<int32_t>{1, 2, 4}));
}

TYPED_TEST(EmbedPositionsRows, StayAsTheyAreAtTheEndOfTheContext) {
  const EmbedCase<TypeParam> c{.tokens = {1, 1, 1}, .positions = {4, 3, -2}, .advance = 1};
  const auto result = c.run();
  c.expect_row(result, 0, -1, 0);
  c.expect_row(result, 1, 1, 4);
  c.expect_row(result, 2, -1, 0);
  EXPECT_EQ(result.positions, (std::vector<int32_t>{4, 4, -2}));
}

TYPED_TEST(EmbedPositionsRows, OfPaddingStayAsTheyAreAndFollowNothing) {
  EmbedCase<TypeParam> c{.tokens = {1, -1, -1}, .positions = {0, 2, 1 << 30}, .advance = 1, .n_live = 1};
  c.sequences = {0, 1 << 30, 1 << 30};
  const auto result = c.run();
  c.expect_row(result, 0, 1, 1);
  c.expect_row(result, 1, -1, 0);
  c.expect_row(result, 2, -1, 0);
  EXPECT_EQ(result.positions, (std::vector<int32_t>{1, 2, 1 << 30}));
}

// A failed row leaves -1 as its last token; the host reports it, and the step after must not read out of bounds.
TYPED_TEST(EmbedPositionsRows, ReadTokenZeroInPlaceOfOneThatIsNone) {
  EmbedCase<TypeParam> c{.tokens = {-1, static_cast<int32_t>(kVocab), 1 << 30}, .positions = {0, 0, 0}};
  c.last_token = {-1, 0};
  const auto result = c.run();
  for (int64_t m = 0; m < 3; ++m) c.expect_row(result, m, 0, 0);
}

}  // namespace
}  // namespace nodewright::test::embed_positions_test
