// An engine that tells of its cache: the index of a router that hears it holds what the next prompt finds.
#include <gtest/gtest.h>

#include <random>

#include "engine/engine.h"
#include "tests/engine/cache/page_index.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

TEST(EnginePageEvents, RebuildTheCacheAfterRandomTrafficWithEvictions) {
  test::LoadedModel loaded("llama/odd_sizes");
  test::PageIndex index(kPageTokens);
  int64_t stored = 0, removed = 0;
  EngineOptions options{.max_batch = 3, .buckets = {8}, .max_context = 4 * kPageTokens, .pages = 8};
  options.reserve = Reserve::prompt;
  options.pages_changed = [&](std::vector<PageEvent> events) {
    for (const PageEvent& event : events) {
      EXPECT_EQ(index.apply(event), "");
      (event.kind == PageEvent::Kind::stored ? stored : removed) += std::ssize(event.pages);
    }
  };
  Engine engine(loaded.device, loaded.kernels, loaded.model, options);
  std::mt19937 random(5);
  for (int round = 0; round < 6; ++round) {
    for (int i = 0; i < 4; ++i) {
      // One of three beginnings of a page or two, then something else.
      std::vector<int32_t> prompt = test::some_tokens(64 + 64 * (random() % 2), loaded.vocab(), random() % 3);
      const std::vector<int32_t> rest = test::some_tokens(1 + random() % 60, loaded.vocab(), random());
      prompt.insert(prompt.end(), rest.begin(), rest.end());
      ASSERT_TRUE(engine.submit({.prompt = prompt, .max_tokens = 1 + static_cast<int64_t>(random() % 10)}).id);
    }
    while (engine.advance()) ASSERT_EQ(index.content(), test::content_of(engine.pipeline().pool()));
    for (const Resolution& end : engine.take_resolutions()) EXPECT_EQ(end.reason, EndReason::length) << end.message;
  }
  ASSERT_EQ(index.content(), test::content_of(engine.pipeline().pool()));
  EXPECT_GT(engine.pipeline().pool().stats().evicted_pages, 3);
  EXPECT_GT(engine.pipeline().pool().stats().found_tokens, 5 * kPageTokens);
  EXPECT_GT(stored, 8);
  EXPECT_GT(removed, 3);
}

TEST(EnginePageEvents, ClearTheIndexWhenWeightsAreReplaced) {
  test::LoadedModel loaded("llama/odd_sizes");
  std::vector<PageEvent> told;
  EngineOptions options{.max_batch = 1, .buckets = {8}, .max_context = 2 * kPageTokens};
  options.pages_changed = [&](std::vector<PageEvent> events) { std::ranges::move(events, std::back_inserter(told)); };
  Engine engine(loaded.device, loaded.kernels, loaded.model, options);
  const std::vector<int32_t> prompt = test::some_tokens(70, loaded.vocab(), 1);
  ASSERT_TRUE(engine.submit({.prompt = prompt, .max_tokens = 2}).id);
  while (engine.advance()) continue;
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, PageEvent::Kind::stored);
  EXPECT_EQ(told[0].tokens, std::vector<int32_t>(prompt.begin(), prompt.begin() + kPageTokens));
  told.clear();
  engine.pause();
  engine.replace_weights(loaded.model);
  engine.resume();
  while (engine.advance()) continue;
  EXPECT_EQ(told, (std::vector<PageEvent>{{.kind = PageEvent::Kind::cleared}}));
}

}  // namespace
}  // namespace nodewright
