// An engine whose pages run out, and one whose memory is limited.
#include <gtest/gtest.h>

#include <map>

#include "engine/engine.h"
#include "tests/engine/device/poison_free.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

// Three requests of three pages each in the end, more than five pages hold.
EngineOptions growing_options(Reserve reserve, int64_t pages) {
  return {.max_batch = 3, .buckets = {8}, .max_context = 3 * kPageTokens, .pages = pages, .reserve = reserve};
}

struct GrowingRun {
  std::map<RequestId, std::vector<int32_t>> streamed, outputs;
  int most_at_once = 0;
};

GrowingRun serve_growing(Engine& engine, test::LoadedModel& loaded, bool poisons) {
  GrowingRun run;
  for (uint64_t i = 0; i < 3; ++i)
    EXPECT_TRUE(engine
                    .submit({.prompt = test::some_tokens(60, loaded.vocab(), i), .max_tokens = 90},
                            {.temperature = i == 1 ? 0.9f : 0.0f, .seed = 3})
                    .id);
  for (int i = 0; engine.advance(); ++i) {
    engine.pipeline().check();
    if (poisons && i % 4 == 0) test::poison_free(engine, loaded);
    run.most_at_once = std::max(run.most_at_once, static_cast<int>(engine.pipeline().admitted().size()));
    for (const CommittedToken& token : engine.take_tokens()) run.streamed[token.request].push_back(token.token);
  }
  for (const Resolution& end : engine.take_resolutions()) {
    EXPECT_EQ(end.reason, EndReason::length) << end.message;
    EXPECT_TRUE(run.outputs.emplace(end.request, end.outputs).second);
  }
  return run;
}

TEST(EnginePages, PreemptsTheLastAdmittedWithoutRepeatingOrChangingAToken) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine ample(loaded.device, loaded.kernels, loaded.model, growing_options(Reserve::all, 9));
  const GrowingRun expected = serve_growing(ample, loaded, false);
  ASSERT_EQ(expected.outputs.size(), 3u);
  EXPECT_EQ(ample.pipeline().preemptions(), 0);

  Engine engine(loaded.device, loaded.kernels, loaded.model, growing_options(Reserve::prompt, 5));
  const GrowingRun run = serve_growing(engine, loaded, true);
  EXPECT_EQ(run.most_at_once, 3);
  EXPECT_GT(engine.pipeline().preemptions(), 1);
  EXPECT_EQ(run.outputs, expected.outputs);
  EXPECT_EQ(run.streamed, expected.outputs);
  EXPECT_EQ(engine.stats().output_tokens, 270);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
}

EngineOptions limited_options(uint64_t limit) {
  return {.max_batch = 3, .buckets = {8}, .max_context = 2 * kPageTokens, .memory_limit = limit};
}

TEST(EnginePages, AreWhatAMemoryLimitLeavesAndNeverMore) {
  test::LoadedModel loaded("llama/odd_sizes");
  const auto use_with = [&](uint64_t limit) {
    return Engine(loaded.device, loaded.kernels, loaded.model, limited_options(limit)).slots().memory();
  };
  const MemoryUse unlimited = use_with(0);
  EXPECT_EQ(unlimited.weights, loaded.model.weights().bytes());
  EXPECT_GT(unlimited.state, 0u);
  EXPECT_GE(unlimited.graphs, 2u * 16 * 2048);
  const uint64_t page = unlimited.pages / 6;  // three requests of two
  const uint64_t others = unlimited.total() - unlimited.pages;
  EXPECT_EQ(use_with(others + 17 * page).pages, 17 * page);
  EXPECT_EQ(use_with(others + 17 * page - 1).pages, 16 * page);
  EXPECT_EQ(use_with(others + 2 * page).pages, 2 * page);
}

TEST(EnginePages, AreRefusedWhereTheLimitIsTooSmallNamingBothAndWhatWouldDo) {
  test::LoadedModel loaded("llama/odd_sizes");
  const auto refusal = [&](const EngineOptions& options) {
    return error_of([&] { const Engine engine(loaded.device, loaded.kernels, loaded.model, options); });
  };
  uint64_t others = 0, page = 0;
  {
    const Engine engine(loaded.device, loaded.kernels, loaded.model, limited_options(0));
    page = engine.slots().memory().pages / 6;
    others = engine.slots().memory().total() - 6 * page;
  }
  const std::string enough = std::to_string(others + 2 * page), short_of = std::to_string(others + 2 * page - 1);
  EXPECT_EQ(refusal(limited_options(others + 2 * page)), "");
  expect_words(refusal(limited_options(others + 2 * page - 1)),
               {"'max context'", "128 tokens", "a memory limit of " + short_of, "room for 1",
                "a memory limit of " + enough, "a max context of 64"});
  expect_words(refusal(limited_options(5)), {"'max context'", "a memory limit of 5", "room for 0"});
  EngineOptions options = limited_options(others + 4 * page);
  options.pages = 5;
  expect_words(refusal(options), {"'pages'", "5 pages", "a memory limit of", "room for 4"});
  options.memory_limit = 0;
  options.pages = 1 << 30;
  expect_words(refusal(options), {"'pages'", "free device memory of", "max batch"});
}

}  // namespace
}  // namespace nodewright
