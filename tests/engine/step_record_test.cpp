// What an engine tells of its steps, against what it counts by itself.
#include "engine/step_record.h"

#include <gtest/gtest.h>

#include <chrono>

#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

struct Told {
  std::vector<StepRecord> steps;
  EngineStats stats;
  double seconds = 0;
};

// Three prompts of which one is longer than a step, then what they choose.
Told serve(EngineOptions options, const Sampling& sampling = {}, const ChoiceOptions& choice = {}) {
  test::LoadedModel loaded("llama/odd_sizes");
  Told told;
  options.max_context = 2 * kPageTokens;
  options.stepped = [&](const StepRecord& step) { told.steps.push_back(step); };
  Engine engine(loaded.device, loaded.kernels, loaded.model, options);
  const auto vocab = static_cast<size_t>(loaded.model.config().vocab);
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(
        engine.submit({.prompt = test::some_tokens(4 + 5 * i, vocab, i), .max_tokens = 6}, sampling, choice).id);
  const auto start = std::chrono::steady_clock::now();
  while (engine.advance()) continue;
  told.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  told.stats = engine.stats();
  return told;
}

TEST(StepRecords, TellEveryStepOnceAsItWasCounted) {
  const Told told = serve({.max_batch = 2, .step_tokens = 8, .buckets = {1, 2, 8}});
  std::map<std::pair<int, RunMode>, BucketUse> buckets;
  int64_t prompt_tokens = 0, padding = 0;
  double us = 0;
  for (size_t i = 0; i < told.steps.size(); ++i) {
    const StepRecord& step = told.steps[i];
    EXPECT_EQ(i + 1, step.step);
    EXPECT_EQ("graph", step.run);
    EXPECT_EQ("", step.reason);
    EXPECT_EQ(0, step.drafts);
    EXPECT_EQ(0, step.chosen_again);
    EXPECT_GT(step.rows(), 0);
    EXPECT_LE(step.admitted, 2);
    EXPECT_GT(step.us, 0);
    BucketUse& use = buckets[{static_cast<int>(step.bucket), RunMode::explicit_}];
    ++use.steps, use.rows += step.rows(), use.exact += step.padding() == 0;
    prompt_tokens += step.prompt_tokens, padding += step.padding(), us += step.us;
  }
  EXPECT_EQ(4 + 9 + 14, prompt_tokens);
  EXPECT_EQ(told.stats.padded_rows, padding);
  EXPECT_EQ(told.stats.steps(), static_cast<int64_t>(told.steps.size()));
  for (const auto& [plan, use] : told.stats.buckets) {
    EXPECT_EQ(use.steps, buckets[plan].steps) << plan.first;
    EXPECT_EQ(use.rows, buckets[plan].rows) << plan.first;
    EXPECT_EQ(use.exact, buckets[plan].exact) << plan.first;
  }
  EXPECT_LE(us * 1e-6, told.seconds);
  EXPECT_EQ(1, told.steps.front().waiting);  // the third of three, two at once
  EXPECT_EQ(0, told.steps.back().waiting);
  EXPECT_EQ(4, told.steps.back().free_pages);
  EXPECT_LT(told.steps.front().free_pages, 4);
}

TEST(StepRecords, SayWhyAStepHadNoGraph) {
  for (const StepRecord& step : serve({.max_batch = 3, .step_tokens = 2, .buckets = {2}, .allow_eager = true}).steps) {
    const bool overflows = step.bucket == 3;
    EXPECT_EQ(overflows ? "eager" : "graph", step.run);
    EXPECT_EQ(overflows ? "more rows than the largest bucket has, 2" : "", step.reason);
  }
  for (const RunMode mode : {RunMode::captured, RunMode::eager})
    for (const StepRecord& step : serve({.max_batch = 3, .step_tokens = 8, .mode = mode}).steps) {
      EXPECT_EQ(to_string(mode), step.run);
      EXPECT_EQ("the mode is " + std::string(to_string(mode)), step.reason);
    }
  int with_prompts = 0;
  for (const StepRecord& step : serve({.max_batch = 3, .step_tokens = 8, .prefill = PrefillForm::piecewise}).steps) {
    EXPECT_EQ(step.prompt_tokens > 0 ? "piecewise" : "graph", step.run);
    EXPECT_EQ(step.prompt_tokens > 0 ? "prompts are run piecewise" : "", step.reason);
    with_prompts += step.prompt_tokens > 0;
  }
  EXPECT_GT(with_prompts, 0);
}

TEST(StepRecords, CountDraftsAndRowsThatAreChosenAgain) {
  EngineOptions drafting{.max_batch = 1, .step_tokens = 8, .speculate = 2};
  drafting.drafts = [](const Request&) { return std::vector<int32_t>{1, 2}; };
  const Told drafted = serve(drafting);
  int64_t drafts = 0;
  for (const StepRecord& step : drafted.steps) {
    drafts += step.drafts;
    if (step.drafts > 0) {
      EXPECT_EQ(1 + step.drafts, step.decode_rows);
    }
  }
  EXPECT_EQ(drafted.stats.drafted, drafts);
  EXPECT_GT(drafts, 0);

  int64_t again = 0;
  for (const StepRecord& step : serve({.max_batch = 2, .step_tokens = 8, .choices = true}, {}, {.logprobs = 1}).steps)
    again += step.chosen_again;
  EXPECT_EQ(3 * 6, again);
}

}  // namespace
}  // namespace nodewright
