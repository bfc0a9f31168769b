// Sequences that begin as copies of one whose layers all have a window, and whose prompt is shorter than that.
#include <gtest/gtest.h>

#include "engine/cache/kv_pool.h"

namespace nodewright {
namespace {

constexpr int64_t kForkPage = 4, kForkWindow = 9;

// A pool with an open sequence whose prompt of ones is known but for its last token.
KvPool pool_with_prompt(int64_t pages, int64_t prompt_tokens) {
  KvPool pool({.pages = pages, .page_tokens = kForkPage, .sequences = 3, .window = kForkWindow, .chunk = 40});
  const std::vector<int32_t> prompt(static_cast<size_t>(prompt_tokens), 1);
  EXPECT_TRUE(pool.open(prompt, prompt_tokens + 1));
  EXPECT_TRUE(pool.reserve(0, 0, prompt_tokens - 1));
  pool.launched(1);
  pool.append(0, std::span(prompt).first(prompt.size() - 1));
  pool.completed(1);
  return pool;
}

TEST(KvPoolFork, WithAWindowIsPromisedThePageThatItCopiesToo) {
  for (int64_t tokens = 2; tokens <= 30; ++tokens) {
    SCOPED_TRACE(tokens);
    KvPool pool = pool_with_prompt(60, tokens);
    const std::vector<int32_t> prompt(static_cast<size_t>(tokens), 1);
    if (!pool.can_fork(0, tokens)) continue;
    EXPECT_EQ(pool.why_not_fork(tokens, tokens + 1), "");
    std::optional<KvPool::Opened> forked;
    ASSERT_NO_THROW(forked = pool.fork(0, prompt, tokens + 1));
    ASSERT_TRUE(forked);
    EXPECT_EQ(forked->start, tokens - 1);
    EXPECT_EQ(std::ssize(forked->copies), (tokens - 1) % kForkPage == 0 ? 0 : 1);
    ASSERT_NO_THROW(pool.check());
  }
}

TEST(KvPoolFork, WithAWindowIsRefusedWhereThatPageIsMissing) {
  KvPool pool = pool_with_prompt(6, 11);  // 3 pages are promised
  EXPECT_EQ(pool.why_not_fork(11, 12), "12 tokens need 4 more pages, and 3 of 6 are promised to none");
  EXPECT_FALSE(pool.fork(0, std::vector<int32_t>(11, 1), 12));
}

}  // namespace
}  // namespace nodewright
