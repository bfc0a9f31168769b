// shape_logits and record_choice against the same in double: odd widths, masks of every column, NaN and nothing left.
#include "kernels_src/shape_logits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels_src/record_choice.h"
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
  size_t stride() const { return (vocab() + 3 + 3) / 4 * 4; }  // at least 3 elements after a row's logits

  struct Result {
    std::vector<float> shaped;
    std::vector<int32_t> kept;
  };

  // Row m of the launch reads row step_row of the step, and the counts of sequence rows - 1 - m.
  Result run() const {
    const size_t count = rows.size(), words = (vocab() + 31) / 32;
    std::vector<float> logits = poisoned<float>(count * stride()), values = poisoned<float>(count * kMostBiases);
    std::vector<float> repetition, presence, frequency, min_p, temperature;
    std::vector<int32_t> step_rows, sequences, constrained, biases, tokens(count * kMostBiases, 1 << 30),
        counts(count * vocab(), 0);
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
      int32_t* own = counts.data() + (count - 1 - m) * vocab();
      for (const int32_t token : asked.prompt) own[token] = kInPrompt;
      for (const int32_t token : asked.outputs) ++own[token];
      repetition.push_back(static_cast<float>(asked.repetition));
      presence.push_back(static_cast<float>(asked.presence));
      frequency.push_back(static_cast<float>(asked.frequency));
      min_p.push_back(static_cast<float>(asked.min_p));
      temperature.push_back(static_cast<float>(asked.temperature));
    }
    const Guarded<float> logit_rows("logits", logits), bias_values("bias_values", values),
        repetitions("repetition_penalty", repetition), presences("presence_penalty", presence),
        frequencies("frequency_penalty", frequency), min_ps("min_p", min_p), temperatures("temperature", temperature),
        shaped("shaped", count * stride());
    const Guarded<int32_t> row_ids("rows", step_rows), sequence_ids("sequences", sequences),
        constraints("constrained", constrained), bias_counts("biases", biases), bias_tokens("bias_tokens", tokens),
        all_counts("counts", counts), live("n_live", std::vector{n_live < 0 ? static_cast<int32_t>(count) : n_live}),
        kept("kept", count);
    const Guarded<uint32_t> all_masks("masks", masks);
    const auto kernel = typed_kernel<ShapeLogits>(machine().kernels, {"shape_logits", {}},
                                                  shape_logits_shape(static_cast<unsigned>(count)));
    run_node(kernel, {.logits = logit_rows,
                      .rows = row_ids,
                      .sequences = sequence_ids,
                      .constrained = constraints,
                      .masks = all_masks,
                      .biases = bias_counts,
                      .bias_tokens = bias_tokens,
                      .bias_values = bias_values,
                      .repetition_penalty = repetitions,
                      .presence_penalty = presences,
                      .frequency_penalty = frequencies,
                      .min_p = min_ps,
                      .temperature = temperatures,
                      .counts = all_counts,
                      .n_live = live,
                      .shaped = shaped,
                      .kept = kept,
                      .vocab = static_cast<int64_t>(vocab()),
                      .stride = static_cast<int64_t>(stride()),
                      .mask_words = static_cast<int64_t>(words)});
    return {shaped.read(), kept.read()};
  }
};

ShapedRow random_row(uint64_t number, size_t vocab, int32_t step_row) {
  ShapedRow row{.logits = {}, .asked = {}, .step_row = step_row};
  for (uint64_t i = 0; i < vocab; ++i) row.logits.push_back(static_cast<float>(8 * noise(number, i)));
  const auto token = [&](uint64_t i) { return static_cast<int32_t>(random_bits(number + 100, i) % vocab); };
  HostShaping& asked = row.asked;
  asked.temperature = number % 3 == 0 ? 0 : 0.8;
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
  if (number % 5 < 2) asked.min_p = 0.125;
  return row;
}

// fp32 of magnitude 30, four operations: within 2^-17 of the double. Where min-p cuts within that, either is right.
TEST(ShapeLogits, DoesWhatTheHostDoesInDouble) {
  int dropped = 0, undecided = 0;
  for (const size_t vocab : {size_t{5}, size_t{31}, size_t{1003}, size_t{2100}}) {
    ShapeLaunch launch;
    for (uint64_t m = 0; m < 10; ++m)
      launch.rows.push_back(random_row(m, vocab, static_cast<int32_t>((m * 3 + 1) % 10)));
    const auto [shaped, kept] = launch.run();
    for (size_t m = 0; m < launch.rows.size(); ++m) {
      const ShapedRow& row = launch.rows[m];
      const std::vector<double> expected = shaped_on_host(row.logits, row.asked);
      const bool any = std::ranges::any_of(expected, [](double v) { return v > -INFINITY; });
      EXPECT_EQ(kept[m], any) << "row " << m;
      HostShaping uncut = row.asked;
      uncut.min_p = 0;
      const std::vector<double> before = shaped_on_host(row.logits, uncut);
      const double least = *std::ranges::max_element(before) + row.asked.temperature * std::log(row.asked.min_p);
      for (size_t i = any ? 0 : 1; i < vocab; ++i) {
        const float v = shaped[m * launch.stride() + i];
        if (std::abs(before[i] - least) < 1e-4) {
          ++undecided;
          continue;
        }
        if (expected[i] == -INFINITY) {
          ASSERT_EQ(v, -kInfinity) << "token " << i << " of row " << m << " of " << vocab;
          ++dropped;
        } else {
          ASSERT_NEAR(v, expected[i], 1e-5) << "token " << i << " of row " << m << " of " << vocab;
        }
      }
    }
  }
  EXPECT_GT(dropped, 5000);
  EXPECT_LT(undecided, 20);
}

TEST(ShapeLogits, LeavesTheBitsOfRowsThatAskForNothingAndOfRowsPastTheLiveOnes) {
  ShapeLaunch launch;
  for (uint64_t m = 0; m < 4; ++m) {
    launch.rows.push_back(random_row(m, 1003, static_cast<int32_t>(3 - m)));
    launch.rows.back().asked = {};
  }
  launch.rows[2].asked.allowed.assign(1003, true);
  launch.n_live = 3;
  const auto [shaped, kept] = launch.run();
  const auto stride = static_cast<int64_t>(launch.stride());
  for (int64_t m = 0; m < 3; ++m)
    EXPECT_TRUE(
        same_bits(row_of(shaped, m, stride, 1003), std::span<const float>(launch.rows[static_cast<size_t>(m)].logits)));
  EXPECT_TRUE(same_bits(row_of(shaped, 3, stride, stride), std::span<const float>(poisoned<float>(launch.stride()))));
  EXPECT_EQ(kept, (std::vector<int32_t>{1, 1, 1, -1}));
}

TEST(ShapeLogits, SaysWhereNothingIsLeftAndKeepsANaNThatIsDenied) {
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
  const auto [shaped, kept] = launch.run();
  EXPECT_EQ(kept, (std::vector<int32_t>{0, 1, 0}));
  EXPECT_TRUE(std::isnan(shaped[0]) && std::isnan(shaped[2 * launch.stride()])) << "a NaN fails the row";
  EXPECT_TRUE(std::isnan(shaped[launch.stride() + 50]));
}

struct RecordedChoices {
  std::vector<int32_t> counts, top_tokens;
  std::vector<float> logprob, top_logprobs;
};

RecordedChoices record(const std::vector<std::vector<float>>& logits, const std::vector<int32_t>& tokens,
                       const std::vector<int32_t>& wanted, const std::vector<int32_t>& counted) {
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
      counts("counts", std::vector<int32_t>(count * vocab, 5)), top_tokens("top_tokens", count * kMostLogprobs);
  const auto kernel = typed_kernel<RecordChoice>(machine().kernels, {"record_choice", {}},
                                                 record_choice_shape(static_cast<unsigned>(count)));
  run_node(kernel, {.logits = logit_rows,
                    .rows = row_ids,
                    .sequences = sequence_ids,
                    .tokens = chosen,
                    .counted = is_counted,
                    .logprobs = asked,
                    .n_live = live,
                    .counts = counts,
                    .logprob = logprob,
                    .top_tokens = top_tokens,
                    .top_logprobs = top_logprobs,
                    .vocab = static_cast<int64_t>(vocab),
                    .stride = static_cast<int64_t>(stride)});
  return {counts.read(), top_tokens.read(), logprob.read(), top_logprobs.read()};
}

// The sum of 1003 terms in fp32, 512 partial sums of at most 4: within 10^-5.
TEST(RecordChoice, GivesTheLogProbabilitiesOfTheTokenAndOfTheLikeliest) {
  for (const size_t vocab : {size_t{3}, size_t{1003}}) {
    std::vector<std::vector<float>> logits;
    const std::vector<int32_t> wanted = {0, 20, 2, 3}, tokens = {1, 2, 0, 2};
    for (uint64_t m = 0; m < wanted.size(); ++m) {
      logits.push_back(random_row(m, vocab, 0).logits);
      if (m == 3)
        for (float& v : logits.back()) v = std::floor(v);  // equals: the first comes first
      if (m == 2) logits.back().back() = -kInfinity;
    }
    const RecordedChoices got = record(logits, tokens, wanted, {0, 0, 0, 0});
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
  const RecordedChoices got = record(logits, {10, 20, -1, 40}, {-1, -1, 3, 1}, {1, 0, 1, 1});
  std::vector<int32_t> counts(4 * 64, 5);
  ++counts[10];
  ++counts[3 * 64 + 40];
  EXPECT_EQ(got.counts, counts);
  EXPECT_EQ(got.top_tokens[2 * kMostLogprobs], -1);
}

}  // namespace
}  // namespace nodewright::test::shape_logits_test
