// shape_logits and record_choice against the same in double: odd widths, masks of every column, NaN and nothing left.
#include "kernels_src/sampling/shape_logits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels_src/sampling/record_choice.h"
#include "tests/kernels/numbers.h"
#include "tests/kernels/one_node.h"
#include "tests/support/host_shaping.h"

namespace nodewright::test::shape_logits_test {
namespace {

struct ShapedRow {
  std::vector<float> logits;
  HostShaping asked;
  int32_t step_row = 0;
};

struct ShapeLaunch {
  std::vector<ShapedRow> rows;
  int32_t n_live = -1;  // -1: all

  size_t vocab() const { return rows[0].logits.size(); }
  size_t stride() const { return (vocab() + 3 + 7) / 8 * 8; }  // at least 3 elements after a row's logits

  struct Result {
    std::vector<float> shaped;
    std::vector<ScoredToken> best;  // [rows, kParts]
  };
  static constexpr size_t kParts = 3;

  // The best of a row's parts, as `sample` takes it; -1: it has a NaN.
  static ScoredToken best_of(const Result& result, size_t row) {
    ScoredToken best{-kInfinity, -1};
    for (size_t p = 0; p < kParts; ++p) {
      const ScoredToken part = result.best[row * kParts + p];
      if (part.token < 0) return {part.score, -1};
      if (best.token < 0 || part.score > best.score) best = part;
    }
    return best;
  }

  // Row m of the launch reads row step_row of the step, and the counts of sequence rows - 1 - m.
  Result run() const {
    const size_t count = rows.size(), words = (vocab() + 31) / 32;
    std::vector<float> logits = poisoned<float>(count * stride()), values = poisoned<float>(count * kMostBiases);
    std::vector<float> repetition, presence, frequency;
    std::vector<int32_t> step_rows, sequences, constrained, biases, tokens(count * kMostBiases, 1 << 30),
        counts(count * stride(), 0);
    std::vector<uint32_t> masks(count * words, 0);
    for (size_t m = 0; m < count; ++m) {
      const auto& [row, asked, step_row] = rows[m];
      std::copy(row.begin(), row.end(), logits.begin() + step_row * static_cast<int64_t>(stride()));
      step_rows.push_back(step_row);
      sequences.push_back(static_cast<int32_t>(count - 1 - m));
      constrained.push_back(!asked.allowed.empty());
      for (size_t i = 0; i < asked.allowed.size(); ++i)
        if (asked.allowed[i]) masks[m * words + i / 32] |= 1u << (i % 32);
      biases.push_back(static_cast<int32_t>(asked.biases.size()));
      size_t next = m * kMostBiases;
      for (const auto& [token, bias] : asked.biases) {
        tokens[next] = token;
        values[next++] = static_cast<float>(bias);
      }
      int32_t* own = counts.data() + (count - 1 - m) * stride();
      for (const int32_t token : asked.prompt) own[token] = kInPrompt;
      for (const int32_t token : asked.outputs) ++own[token];
      repetition.push_back(static_cast<float>(asked.repetition));
      presence.push_back(static_cast<float>(asked.presence));
      frequency.push_back(static_cast<float>(asked.frequency));
    }
    const Guarded<float> logit_rows("logits", logits), bias_values("bias_values", values),
        repetitions("repetition_penalty", repetition), presences("presence_penalty", presence),
        frequencies("frequency_penalty", frequency), shaped("shaped", count * stride());
    const Guarded<int32_t> row_ids("rows", step_rows), sequence_ids("sequences", sequences),
        constraints("constrained", constrained), forced("forced", std::vector<int32_t>(count, -1)),
        bias_counts("biases", biases), bias_tokens("bias_tokens", tokens), all_counts("counts", counts),
        live("n_live", std::vector{n_live < 0 ? static_cast<int32_t>(count) : n_live});
    const Guarded<ScoredToken> best("best", count * kParts);
    const Guarded<uint32_t> all_masks("masks", masks);
    const auto kernel =
        machine().kernels.kernel<ShapeLogits>("shape_logits", shape_logits_shape(static_cast<unsigned>(count), kParts));
    run_node(kernel, {.logits = logit_rows,
                      .rows = row_ids,
                      .sequences = sequence_ids,
                      .forced = forced,
                      .constrained = constraints,
                      .masks = all_masks,
                      .biases = bias_counts,
                      .bias_tokens = bias_tokens,
                      .bias_values = bias_values,
                      .repetition_penalty = repetitions,
                      .presence_penalty = presences,
                      .frequency_penalty = frequencies,
                      .counts = all_counts,
                      .n_live = live,
                      .shaped = shaped,
                      .best = best,
                      .vocab = static_cast<int64_t>(vocab()),
                      .stride = static_cast<int64_t>(stride()),
                      .mask_words = static_cast<int64_t>(words)});
    return {shaped.read(), best.read()};
  }
};

ShapedRow random_row(uint64_t number, size_t vocab, int32_t step_row) {
  ShapedRow row{.logits = {}, .asked = {}, .step_row = step_row};
  for (uint64_t i = 0; i < vocab; ++i) row.logits.push_back(static_cast<float>(8 * noise(number, i)));
  const auto token = [&](uint64_t i) { return static_cast<int32_t>(random_bits(number + 100, i) % vocab); };
  HostShaping& asked = row.asked;
  if (number % 2 == 0)
    for (uint64_t i = 0; i < vocab; ++i) asked.allowed.push_back(random_bits(number + 200, i) % 3 != 0);
  if (number % 4 < 2)
    for (uint64_t i = 0; i < std::min<size_t>(vocab, 40); ++i)
      asked.biases[token(i)] = i % 5 == 0 ? -INFINITY : std::ldexp(std::floor(20 * noise(number, i + 7)), -2);
  if (number % 4 > 0) {
    for (uint64_t i = 0; i < 30; ++i) asked.prompt.push_back(token(i + 50));
    for (uint64_t i = 0; i < 60; ++i) asked.outputs.push_back(token(i % 25 + 70));
    asked.repetition = 1.25, asked.presence = 0.5, asked.frequency = 0.25;
  }
  return row;
}

// fp32 of magnitude 30, four operations: within 2^-17 of the double.
TEST(ShapeLogits, DoesWhatTheHostDoesInDouble) {
  int denied = 0;
  for (const size_t vocab : {size_t{5}, size_t{31}, size_t{1003}, size_t{2100}}) {
    ShapeLaunch launch;
    for (uint64_t m = 0; m < 10; ++m)
      launch.rows.push_back(random_row(m, vocab, static_cast<int32_t>((m * 3 + 1) % 10)));
    const ShapeLaunch::Result result = launch.run();
    for (size_t m = 0; m < launch.rows.size(); ++m) {
      const ShapedRow& row = launch.rows[m];
      const std::vector<double> expected = shaped_on_host(row.logits, row.asked);
      const auto shaped = row_of(result.shaped, static_cast<int64_t>(m), static_cast<int64_t>(launch.stride()),
                                 static_cast<int64_t>(vocab));
      for (size_t i = 0; i < vocab; ++i) {
        if (expected[i] == -INFINITY) {
          ASSERT_EQ(shaped[i], -kInfinity) << "token " << i << " of row " << m << " of " << vocab;
          ++denied;
        } else {
          ASSERT_NEAR(shaped[i], expected[i], 1e-5) << "token " << i << " of row " << m << " of " << vocab;
        }
      }
      const auto best = static_cast<int32_t>(std::ranges::max_element(shaped) - shaped.begin());
      EXPECT_EQ(ShapeLaunch::best_of(result, m).token, best) << "row " << m << " of " << vocab;
    }
  }
  EXPECT_GT(denied, 3000);
}

TEST(ShapeLogits, LeavesTheBitsOfRowsThatAskForNothingAndOfRowsPastTheLiveOnes) {
  ShapeLaunch launch;
  for (uint64_t m = 0; m < 4; ++m) {
    launch.rows.push_back(random_row(m, 1003, static_cast<int32_t>(3 - m)));
    launch.rows.back().asked = {};
  }
  launch.rows[2].asked.allowed.assign(1003, true);
  launch.n_live = 3;
  const auto [shaped, best] = launch.run();
  const auto stride = static_cast<int64_t>(launch.stride());
  for (int64_t m = 0; m < 3; ++m)
    EXPECT_TRUE(
        same_bits(row_of(shaped, m, stride, 1003), std::span<const float>(launch.rows[static_cast<size_t>(m)].logits)));
  EXPECT_TRUE(same_bits(row_of(shaped, 3, stride, stride), std::span<const float>(poisoned<float>(launch.stride()))));
}

TEST(ShapeLogits, LeavesNothingButMinusInfinityAndKeepsANaNThatIsDenied) {
  ShapeLaunch launch;
  for (uint64_t m = 0; m < 3; ++m) {
    launch.rows.push_back(random_row(m, 100, static_cast<int32_t>(m)));
    launch.rows.back().asked = {};
    launch.rows.back().asked.allowed.assign(100, false);
  }
  launch.rows[0].asked.allowed[99] = true;  // and then forbidden
  launch.rows[0].asked.biases[99] = -INFINITY;
  launch.rows[1].asked.allowed[99] = true;
  launch.rows[1].logits[50] = kNaN;
  const ShapeLaunch::Result result = launch.run();
  for (const size_t m : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(ShapeLaunch::best_of(result, m).score, -kInfinity);
    EXPECT_EQ(ShapeLaunch::best_of(result, m).token, 0);
  }
  EXPECT_EQ(ShapeLaunch::best_of(result, 1).token, -1) << "a NaN fails the row";
  EXPECT_TRUE(std::isnan(result.shaped[launch.stride() + 50]));
}

struct RecordedChoices {
  std::vector<int32_t> tokens, kept, counts, top_tokens;
  std::vector<float> logprob, top_logprobs;
};

struct RecordLaunch {
  std::vector<std::vector<float>> logits;
  std::vector<int32_t> tokens, wanted, counted;
  std::vector<int32_t> forced = std::vector<int32_t>(tokens.size(), -1);
  float shaped = 0.0f;  // every element
};

RecordedChoices record(const RecordLaunch& launch, unsigned blocks_of_row) {
  const auto& [logits, tokens, wanted, counted, given, shaped_value] = launch;
  const size_t count = logits.size(), vocab = logits[0].size(), stride = (vocab + 3 + 3) / 4 * 4;
  std::vector<float> rows = poisoned<float>(count * stride);
  std::vector<int32_t> ids, sequences;
  for (size_t m = 0; m < count; ++m) {
    ids.push_back(static_cast<int32_t>(count - 1 - m));
    sequences.push_back(static_cast<int32_t>(m));
    std::copy(logits[m].begin(), logits[m].end(), rows.begin() + static_cast<int64_t>((count - 1 - m) * stride));
  }
  const Guarded<float> logit_rows("logits", rows), logprob("logprob", count),
      top_logprobs("top_logprobs", count * kMostLogprobs);
  const Guarded<int32_t> row_ids("rows", ids), sequence_ids("sequences", sequences), chosen("tokens", tokens),
      is_counted("counted", counted), asked("logprobs", wanted),
      live("n_live", std::vector{static_cast<int32_t>(count)}),
      counts("counts", std::vector<int32_t>(count * stride, 5)), top_tokens("top_tokens", count * kMostLogprobs),
      forced("forced", given), recorded("tokens", count), kept("kept", count);
  const Guarded<float> shaped("shaped", std::vector<float>(count * stride, shaped_value));
  const auto kernel =
      machine().kernels.kernel<RecordChoice>({"record_choice", {{"kBlocksOfRow", blocks_of_row}}},
                                             record_choice_shape(static_cast<unsigned>(count), blocks_of_row));
  run_node(kernel, {.logits = logit_rows,
                    .shaped = shaped,
                    .rows = row_ids,
                    .sequences = sequence_ids,
                    .forced = forced,
                    .chosen = chosen,
                    .counted = is_counted,
                    .logprobs = asked,
                    .n_live = live,
                    .counts = counts,
                    .tokens = recorded,
                    .kept = kept,
                    .logprob = logprob,
                    .top_tokens = top_tokens,
                    .top_logprobs = top_logprobs,
                    .vocab = static_cast<int64_t>(vocab),
                    .stride = static_cast<int64_t>(stride)});
  return {recorded.read(), kept.read(), counts.read(), top_tokens.read(), logprob.read(), top_logprobs.read()};
}

// By one block a row and by several: they agree to the bit.
RecordedChoices record(const RecordLaunch& launch) {
  const RecordedChoices alone = record(launch, 1);
  if (machine().device.properties().has_clusters()) {
    for (const unsigned blocks : {4u, kMostBlocksOfRow}) {
      const RecordedChoices shared = record(launch, blocks);
      EXPECT_EQ(shared.tokens, alone.tokens);
      EXPECT_EQ(shared.kept, alone.kept);
      EXPECT_EQ(shared.counts, alone.counts);
      EXPECT_EQ(shared.top_tokens, alone.top_tokens) << blocks;
      EXPECT_TRUE(same_bits(std::span<const float>(shared.logprob), std::span<const float>(alone.logprob)));
      EXPECT_TRUE(same_bits(std::span<const float>(shared.top_logprobs), std::span<const float>(alone.top_logprobs)));
    }
  }
  return alone;
}

// The sum is exact but for 2^-22 of the largest, and its logarithm within 2^-21: within 10^-5.
TEST(RecordChoice, GivesTheLogProbabilitiesOfTheTokenAndOfTheLikeliest) {
  for (const size_t vocab : {size_t{3}, size_t{1003}, size_t{9001}}) {
    std::vector<std::vector<float>> logits;
    const std::vector<int32_t> wanted = {0, 20, 2, 3}, tokens = {1, 2, 0, 2};
    for (uint64_t m = 0; m < wanted.size(); ++m) {
      logits.push_back(random_row(m, vocab, 0).logits);
      if (m == 3)
        for (float& v : logits.back()) v = vocab > 9000 ? 1.0f : std::floor(v);  // equals: the first comes first
      if (m == 2) logits.back().back() = -kInfinity;
    }
    const RecordedChoices got = record({.logits = logits, .tokens = tokens, .wanted = wanted, .counted = {0, 0, 0, 0}});
    for (size_t m = 0; m < logits.size(); ++m) {
      const std::vector<double> expected = logprobs_on_host(logits[m]);
      EXPECT_NEAR(got.logprob[m], expected[static_cast<size_t>(tokens[m])], 1e-5);
      std::vector<int32_t> order;
      for (size_t i = 0; i < vocab; ++i) order.push_back(static_cast<int32_t>(i));
      std::ranges::stable_sort(order, [&](int32_t a, int32_t b) {
        return logits[m][static_cast<size_t>(a)] > logits[m][static_cast<size_t>(b)];
      });
      for (size_t k = 0; k < kMostLogprobs; ++k) {
        const size_t at = m * kMostLogprobs + k;
        const bool there = static_cast<int32_t>(k) < wanted[m] && k < vocab;
        ASSERT_EQ(got.top_tokens[at], there ? order[k] : -1) << "place " << k << " of row " << m << " of " << vocab;
        if (!there || std::isinf(expected[static_cast<size_t>(order[k])])) continue;
        EXPECT_NEAR(got.top_logprobs[at], expected[static_cast<size_t>(order[k])], 1e-5);
      }
    }
  }
}

TEST(RecordChoice, CountsTheTokenOfRowsThatAreCountedAndNothingOfAFailedRow) {
  const std::vector<std::vector<float>> logits(4, random_row(1, 64, 0).logits);
  const RecordedChoices got =
      record({.logits = logits, .tokens = {10, 20, -1, 40}, .wanted = {-1, -1, 3, 1}, .counted = {1, 0, 1, 1}});
  const size_t stride = (64 + 3 + 3) / 4 * 4;
  std::vector<int32_t> counts(4 * stride, 5);
  ++counts[10];
  ++counts[3 * stride + 40];
  EXPECT_EQ(got.counts, counts);
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{10, 20, -1, 40}));
  EXPECT_EQ(got.top_tokens[2 * kMostLogprobs], -1);
}

TEST(RecordChoice, TellsOfAForcedTokenInPlaceOfTheChosenOne) {
  const std::vector<std::vector<float>> logits(2, random_row(1, 64, 0).logits);
  const RecordedChoices got = record({.logits = logits,
                                      .tokens = {10, -1},
                                      .wanted = {0, 0},
                                      .counted = {0, 0},
                                      .forced = {-1, 33},
                                      .shaped = -kInfinity});
  const std::vector<double> expected = logprobs_on_host(logits[0]);
  EXPECT_EQ(got.tokens, (std::vector<int32_t>{10, 33}));
  EXPECT_EQ(got.kept, (std::vector<int32_t>{0, 1})) << "what was chosen had been denied";
  EXPECT_NEAR(got.logprob[0], expected[10], 1e-5);
  EXPECT_NEAR(got.logprob[1], expected[33], 1e-5);
}

TEST(RecordChoice, SaysWhereTheLogitsHoldANaN) {
  std::vector<std::vector<float>> logits(1, random_row(1, 64, 0).logits);
  logits[0][50] = kNaN;
  EXPECT_EQ(record({.logits = logits, .tokens = {10}, .wanted = {2}, .counted = {0}}).tokens[0], -1);
}

}  // namespace
}  // namespace nodewright::test::shape_logits_test
