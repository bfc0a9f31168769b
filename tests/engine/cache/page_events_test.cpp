// The log of what prompts may find, beside the cache that it tells of: an index that is made of the events alone holds
// what the cache offers, after each step of random traffic.
#include "engine/cache/page_events.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "engine/cache/kv_pool.h"
#include "tests/engine/cache/page_index.h"

namespace nodewright {
namespace {

using test::content_of;
using test::PageIndex;
using Tokens = std::vector<int32_t>;

constexpr int64_t kLogPage = 4;  // tokens of a page

// Sequences that open, write, go back, fork and close, with few tokens and fewer pages than they would like.
class PageTraffic {
 public:
  PageTraffic(uint32_t seed, KvPoolOptions options) : random_(seed), pool_(options), windowed_(pool_.gives_back()) {}

  void step() {
    switch (up_to(11)) {
      case 0:
      case 1:
      case 2:
        return open();
      case 3:
        return close();
      case 4:
        return up_to(7) == 0 ? pool_.drop_cache() : fork();
      default:
        return write();
    }
  }

  KvPool& pool() { return pool_; }

 private:
  int64_t up_to(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most + 1)); }
  int32_t token() { return static_cast<int32_t>(up_to(6) == 0); }

  void keep(const std::optional<KvPool::Opened>& opened, Tokens prompt) {
    if (opened) open_[opened->sequence] = {std::move(prompt), opened->start};
  }

  void open() {
    Tokens prompt(static_cast<size_t>(1 + up_to(20)));
    for (int32_t& each : prompt) each = token();
    keep(pool_.open(prompt, std::ssize(prompt) + up_to(8)), prompt);
  }

  void fork() {
    if (open_.empty()) return;
    const auto& [like, of_like] = *std::next(open_.begin(), up_to(std::ssize(open_) - 1));
    const Tokens prompt = of_like.tokens;
    if (!pool_.can_fork(like, std::ssize(prompt))) return;
    keep(pool_.fork(like, prompt, std::ssize(prompt) + 1), prompt);
  }

  void close() {
    if (open_.empty()) return;
    const auto closing = std::next(open_.begin(), up_to(std::ssize(open_) - 1));
    if (up_to(5) == 0)
      pool_.close_and_forget(closing->first);
    else
      pool_.close(closing->first);
    open_.erase(closing);
  }

  // One launch with some tokens of a sequence, which has completed.
  void write() {
    if (open_.empty()) return;
    auto& [id, mine] = *std::next(open_.begin(), up_to(std::ssize(open_) - 1));
    if (!windowed_ && up_to(9) == 0) mine.computed = up_to(mine.computed);  // as after drafts that were refused
    const int64_t end =
        std::min(mine.computed + 1 + up_to(kLogPage), std::max(std::ssize(mine.tokens), mine.computed + 1));
    if (end > 40 || !pool_.reserve(id, mine.computed, end)) return;
    mine.tokens.resize(static_cast<size_t>(std::max(std::ssize(mine.tokens), end)), token());
    pool_.launched(++launches_);
    pool_.append(
        id,
        std::span(mine.tokens).subspan(static_cast<size_t>(mine.computed), static_cast<size_t>(end - mine.computed)));
    mine.computed = end;
    pool_.completed(launches_);
  }

  struct Mine {
    Tokens tokens;
    int64_t computed = 0;
  };
  std::mt19937 random_;
  KvPool pool_;
  bool windowed_;
  std::map<int32_t, Mine> open_;
  uint64_t launches_ = 0;
};

struct LogCase {
  const char* name;
  KvPoolOptions options;
};

class PageEvents : public testing::TestWithParam<LogCase> {};

TEST_P(PageEvents, RebuildWhatTheCacheOffers) {
  int64_t stored = 0, removed = 0, cleared = 0, evicted = 0, most = 0;
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    SCOPED_TRACE(seed);
    PageTraffic traffic(seed, GetParam().options);
    PageIndex index(kLogPage);
    for (int i = 0; i < 1500; ++i) {
      traffic.step();
      for (const PageEvent& event : traffic.pool().take_page_events()) {
        ASSERT_EQ(index.apply(event), "") << "step " << i;
        stored += event.kind == PageEvent::Kind::stored ? std::ssize(event.pages) : 0;
        removed += event.kind == PageEvent::Kind::removed ? std::ssize(event.pages) : 0;
        cleared += event.kind == PageEvent::Kind::cleared;
      }
      ASSERT_EQ(index.content(), content_of(traffic.pool())) << "step " << i;
      most = std::max(most, std::ssize(index.content()));
    }
    ASSERT_NO_THROW(traffic.pool().check());
    evicted += traffic.pool().stats().evicted_pages;
  }
  // The traffic went where it is hard.
  EXPECT_GT(stored, 1000);
  EXPECT_GT(removed, 500);
  EXPECT_GT(cleared, 20);
  EXPECT_GT(evicted, 100);
  EXPECT_GT(most, 4);
}

INSTANTIATE_TEST_SUITE_P(
    All, PageEvents,
    testing::Values(
        LogCase{"OfAnyLength", {.pages = 14, .page_tokens = kLogPage, .sequences = 4, .page_events = true}},
        LogCase{"WithAWindow",
                {.pages = 24, .page_tokens = kLogPage, .sequences = 4, .window = 9, .chunk = 5, .page_events = true}},
        LogCase{"WithLayersOfBothKinds",
                {.pages = 14,
                 .page_tokens = kLogPage,
                 .sequences = 4,
                 .chunk = 5,
                 .side_window = 6,
                 .longest = 40,
                 .page_events = true}}),
    [](const auto& info) { return info.param.name; });

TEST(PageEventLog, JoinsSuccessivePagesOfAPromptAndSuccessiveRemovals) {
  PageEventLog log;
  log.store(11, std::nullopt, Tokens{1, 2});
  log.store(12, 11, Tokens{3, 4});
  log.store(21, std::nullopt, Tokens{5, 6});  // begins another prompt
  log.store(13, 12, Tokens{7, 8});            // does not continue the one logged before it
  log.remove(21);
  log.remove(13);
  log.store(13, 12, Tokens{7, 8});
  using enum PageEvent::Kind;
  const std::vector<PageEvent> expected{{stored, {11, 12}, {}, {1, 2, 3, 4}},
                                        {stored, {21}, {}, {5, 6}},
                                        {stored, {13}, 12, {7, 8}},
                                        {removed, {21, 13}, {}, {}},
                                        {stored, {13}, 12, {7, 8}}};
  EXPECT_EQ(log.take(), expected);
  EXPECT_TRUE(log.take().empty());
}

TEST(PageEventLog, ForgetsWithAClearWhatWasNotTaken) {
  PageEventLog log;
  log.store(1, std::nullopt, Tokens{1});
  log.clear();
  log.store(2, std::nullopt, Tokens{2});
  using enum PageEvent::Kind;
  EXPECT_EQ(log.take(), (std::vector<PageEvent>{{.kind = cleared}, {stored, {2}, {}, {2}}}));
}

TEST(PageEventLog, IsNotKeptByAPoolThatWasNotAskedForIt) {
  KvPool pool({.pages = 4, .page_tokens = kLogPage});
  const int32_t sequence = pool.open(Tokens(4, 1), 5)->sequence;
  pool.launched(1);
  pool.append(sequence, Tokens(4, 1));
  pool.completed(1);
  EXPECT_EQ(content_of(pool).size(), 1u);
  EXPECT_TRUE(pool.take_page_events().empty());
}

TEST(PageIndex, SeesAnEventThatIsMissing) {
  PageTraffic traffic(1, {.pages = 14, .page_tokens = kLogPage, .sequences = 4, .page_events = true});
  std::vector<PageEvent> events;
  while (events.size() < 200) {
    traffic.step();
    std::ranges::move(traffic.pool().take_page_events(), std::back_inserter(events));
  }
  const auto ends_well_without = [&](size_t missing) {
    PageIndex index(kLogPage);
    for (size_t i = 0; i < events.size(); ++i)
      if (i != missing && !index.apply(events[i]).empty()) return false;
    return index.content() == content_of(traffic.pool());
  };
  EXPECT_TRUE(ends_well_without(events.size()));
  EXPECT_FALSE(ends_well_without(events.size() - 1));
}

}  // namespace
}  // namespace nodewright
