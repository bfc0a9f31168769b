// Prompts whose log probabilities are asked for, on an engine of one device or several, and what they must be.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <vector>

#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/host_shaping.h"

namespace nodewright::test {

struct ScoreSetting {
  const char* name = "";
  int max_batch = 3;
  int chunk = 8;
  std::vector<int> buckets = {8};
  Schedule schedule = Schedule::mixed;
  int speculate = 0;
  int64_t pages = 0;  // above 0: requests are preempted
  int64_t products_from = 0;
};

inline EngineOptions score_engine(const ScoreSetting& setting) {
  return {.max_batch = setting.max_batch,
          .step_tokens = setting.chunk,
          .schedule = setting.schedule,
          .buckets = setting.buckets,
          .max_context = 192,
          .pages = setting.pages,
          .reserve = setting.pages > 0 ? Reserve::prompt : Reserve::all,
          .choices = true,
          .numerics = setting.products_from > 0 ? Numerics::fast : Numerics::invariant,
          .products_from = setting.products_from,
          .speculate = setting.speculate};
}

struct Scored {
  std::vector<TokenLogprobs> prompt, outputs;
  Resolution end;
};

inline std::map<RequestId, Scored> serve_scores(
    Engine& engine, const std::function<void()>& each = [] {}) {
  std::map<RequestId, Scored> told;
  while (engine.advance()) {
    engine.pipeline().check();
    each();
  }
  for (TokenLogprobs& one : engine.take_prompt_logprobs()) told[one.request].prompt.push_back(std::move(one));
  for (TokenLogprobs& one : engine.take_logprobs()) told[one.request].outputs.push_back(std::move(one));
  for (Resolution& end : engine.take_resolutions()) told[end.request].end = std::move(end);
  return told;
}

struct ScoredJob {
  RequestSpec spec;
  ChoiceOptions choice;
  std::vector<Logits> logits;  // before each token of the prompt but the first; empty: not asked for
};

// Each number within `limit`, and the tokens' own within a fifth of it, rms.
inline void expect_scores(const ScoredJob& job, const std::vector<TokenLogprobs>& told, double limit) {
  ASSERT_EQ(told.size(), job.logits.size());
  double squares = 0;
  for (size_t i = 0; i < told.size(); ++i) {
    const TokenLogprobs& one = told[i];
    const std::vector<double> expected = logprobs_on_host(job.logits[i]);
    EXPECT_EQ(one.output, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(one.token, job.spec.prompt[i + 1]);
    const double difference = one.logprob - expected[static_cast<size_t>(one.token)];
    ASSERT_LE(std::abs(difference), limit) << "token " << i + 1;
    squares += difference * difference;
    ASSERT_EQ(one.top.size(), static_cast<size_t>(job.choice.prompt_logprobs));
    std::vector<double> likeliest = expected;
    std::ranges::sort(likeliest, std::greater());
    for (size_t k = 0; k < one.top.size(); ++k) {
      EXPECT_NEAR(one.top[k].second, likeliest[k], limit);
      EXPECT_NEAR(one.top[k].second, expected[static_cast<size_t>(one.top[k].first)], limit);
    }
  }
  if (told.size() > 30) {
    EXPECT_LE(std::sqrt(squares / static_cast<double>(told.size())), limit / 5);
  }
}

}  // namespace nodewright::test
