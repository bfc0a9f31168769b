// A pool whose layers all have a window: sequences give back what it leaves, own no more than they are promised, and
// read what they wrote. The walks do what the pipeline may do, in any order, with pages that hold what was written.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <numeric>
#include <random>

#include "engine/cache/kv_pool.h"
#include "runtime/error.h"
#include "tests/support/error_text.h"
#include "tests/support/processor_time.h"

namespace nodewright {
namespace {

constexpr int64_t kWindowPage = 4, kShortWindow = 8, kWindowChunk = 8;
using WindowTokens = std::vector<int32_t>;

KvPoolOptions windowed(int64_t pages, int32_t sequences, bool prefix_cache = true) {
  return {.pages = pages,
          .page_tokens = kWindowPage,
          .sequences = sequences,
          .prefix_cache = prefix_cache,
          .window = kShortWindow,
          .chunk = kWindowChunk};
}

WindowTokens count_from(int32_t first, int64_t count) {
  WindowTokens tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

// One launch that is committed before the next.
void run_launch(KvPool& pool, int32_t sequence, uint64_t launch, const WindowTokens& tokens) {
  const int64_t first = pool.known(sequence);
  ASSERT_TRUE(pool.reserve(sequence, first, first + static_cast<int64_t>(tokens.size())));
  pool.launched(launch);
  pool.append(sequence, tokens);
  pool.completed(launch);
  ASSERT_NO_THROW(pool.check());
}

TEST(KvPoolWindow, HoldsASequenceOfAnyLengthInThePagesOfItsWindowAndAChunk) {
  const int64_t most = KvPool::window_pages(windowed(0, 1));
  EXPECT_EQ(most, 5);  // 7 tokens before a chunk of 8, or 8 on three pages beside two that a launch may still read
  KvPool pool(windowed(most, 2, false));
  const WindowTokens tokens = count_from(0, 200);
  ASSERT_TRUE(pool.open(tokens, 400));
  EXPECT_EQ(pool.why_not_open(tokens, 400), "400 tokens need 5 more pages, and 0 of 5 are promised to none");
  uint64_t launch = 0;
  int64_t most_owned = 0;
  for (size_t i = 0; i < 200; i += 8) {
    run_launch(pool, 0, ++launch,
               {tokens.begin() + static_cast<int64_t>(i), tokens.begin() + static_cast<int64_t>(i) + 8});
    most_owned = std::max(most_owned, pool.owned_pages());
  }
  for (int32_t i = 0; i < 200; ++i) run_launch(pool, 0, ++launch, {i});
  EXPECT_EQ(most_owned, 4);
  EXPECT_EQ(pool.owned_pages(), 2);
  const auto table = pool.table(0);
  EXPECT_EQ(table.size(), 100u);
  EXPECT_EQ(std::ranges::count(table, kNoPage), 98);
  expect_words(error_of([&] { pool.reserve(0, 3, 4); }), {"position 3", "98 pages are given back"});
  pool.close(0);
  EXPECT_EQ(pool.free_pages(), most);
}

TEST(KvPoolWindow, GivesBackAPageWhenNoLaunchInFlightReadsIt) {
  KvPool pool(windowed(6, 1, false));
  ASSERT_TRUE(pool.open(count_from(0, 12), 60));
  run_launch(pool, 0, 1, count_from(0, 8));
  run_launch(pool, 0, 2, count_from(8, 3));
  ASSERT_TRUE(pool.reserve(0, 11, 12));  // reads from position 4 on
  const int32_t left = pool.table(0)[1];
  EXPECT_EQ(pool.table(0)[0], kNoPage);
  pool.launched(3);
  for (int64_t position = 12; position < 15; ++position) {
    ASSERT_TRUE(pool.reserve(0, position, position + 1));
    EXPECT_EQ(pool.table(0)[1], left);
    pool.launched(static_cast<uint64_t>(position) - 8);
  }
  pool.completed(5);
  ASSERT_TRUE(pool.reserve(0, 15, 16));  // reads from position 8 on; launch 6 read position 7
  EXPECT_EQ(pool.table(0)[1], kNoPage);
  EXPECT_EQ(pool.state_of(left), PageState::owned);
  pool.check();
  pool.completed(6);
  EXPECT_EQ(pool.state_of(left), PageState::free);
}

TEST(KvPoolWindow, KeepsWhatIsGivenBackForPromptsThatBeginAlike) {
  KvPool pool(windowed(16, 3));
  const WindowTokens prompt = count_from(0, 40);
  ASSERT_TRUE(pool.open(prompt, 60));
  uint64_t launch = 0;
  for (int64_t i = 0; i < 40; i += 8) run_launch(pool, 0, ++launch, count_from(static_cast<int32_t>(i), 8));
  ASSERT_TRUE(pool.reserve(0, 40, 41));
  EXPECT_EQ(pool.cached_pages(), 8);
  const auto again = pool.open(prompt, 60);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->start, 39);  // all ten pages were found, and the last one is copied for the last token
  EXPECT_EQ(pool.table(1)[7], kNoPage);
  EXPECT_EQ(pool.owners(pool.table(1)[8]), 2);
  const int32_t shared = pool.table(1)[8];
  pool.close(0);
  EXPECT_EQ(pool.owners(shared), 1);  // one owner less, and not free
  pool.check();
  pool.close_and_forget(1);
  EXPECT_EQ(pool.cached_pages(), 0);  // what it had given back and what it never owned may hold NaN, too
  pool.check();
}

TEST(KvPoolWindow, TakesWhatRunningSequencesGaveBackBeforeItIsShortOfPages) {
  KvPool pool(windowed(10, 2));
  for (int32_t s = 0; s < 2; ++s) ASSERT_TRUE(pool.open(count_from(1000 * s, 80), 100));
  uint64_t launch = 0;
  for (int32_t i = 0; i < 80; i += 8)
    for (int32_t s = 0; s < 2; ++s) run_launch(pool, s, ++launch, count_from(1000 * s + i, 8));
  EXPECT_GT(pool.stats().evicted_pages, 0);
  EXPECT_EQ(pool.known(0) + pool.known(1), 160);
}

// Pages that running sequences gave back are cached and have continuations, so that none can be evicted alone. A look
// at all of them would take 250 times 600 000.
TEST(KvPoolWindow, FindsTheOldestPageThatWasGivenBackWithoutALookAtAllOfThem) {
  constexpr int32_t kShortOnes = 300, kEvictions = 250;
  constexpr int64_t kPages = 600'000;
  KvPool pool(windowed(kPages, kShortOnes + 1));
  uint64_t launch = 0;
  const auto run_on = [&](int32_t sequence, int32_t first_token) {
    const int64_t at = pool.known(sequence);
    ASSERT_TRUE(pool.reserve(sequence, at, at + kWindowChunk));
    pool.launched(++launch);
    pool.append(sequence, count_from(first_token + static_cast<int32_t>(at), kWindowChunk));
    pool.completed(launch);
  };
  const int64_t longest = 2 * kPages * kWindowPage;
  for (int32_t s = 0; s < kShortOnes; ++s) {
    ASSERT_TRUE(pool.open(count_from(-s, 1), longest));
    for (int i = 0; i < 4; ++i) run_on(s, 1000 * s);
  }
  const int32_t last = pool.open(count_from(1 << 30, 1), longest)->sequence;
  while (pool.free_pages() > 0) run_on(last, 1 << 30);
  ASSERT_EQ(pool.stats().evicted_pages, 0);
  const double seconds = test::seconds_of([&] {
    while (pool.stats().evicted_pages < kEvictions) run_on(last, 1 << 30);
  });
  EXPECT_LT(seconds, test::allowed_seconds(0.05));
  pool.check();
}

// What a position was computed from: its token and all before it.
uint64_t window_history(const WindowTokens& tokens, int64_t count) {
  uint64_t history = 1;
  for (int64_t i = 0; i < count; ++i)
    history = history * 6364136223846793005 + static_cast<uint64_t>(tokens[static_cast<size_t>(i)]) + 1;
  return history;
}

struct WindowShape {
  int64_t window, chunk;
  bool chunks_follow = false;
};

class WindowWalk {
 public:
  static constexpr int64_t kPages = 17;
  static constexpr int32_t kSequences = 5;

  WindowWalk(uint32_t seed, const WindowShape& shape, bool prefix_cache, bool promises_all)
      : random_(seed),
        pool_({.pages = kPages,
               .page_tokens = kWindowPage,
               .sequences = kSequences,
               .prefix_cache = prefix_cache,
               .window = shape.window,
               .chunk = shape.chunk,
               .chunks_follow = shape.chunks_follow}),
        shape_(shape),
        promises_all_(promises_all) {}

  void step() {
    switch (random_() % 10) {
      case 0:
      case 1:
        return open();
      case 2:
        if (up_to(7) == 0) close(any_open());
        return;
      case 3:
        if (up_to(30) == 0) pool_.drop_cache();
        return;
      case 4:
        if (up_to(5) == 0) revoke();
        return;
      case 5:
      case 6:
        return commit();
      default:
        return launch();
    }
  }

  const KvPool& pool() const { return pool_; }
  int64_t longest() const { return longest_; }

 private:
  struct Mine {
    WindowTokens tokens;  // computed, or to be computed of the prompt
    int64_t prompt = 0, length = 0, computed = 0;
    int generation = 0, in_flight = 0;
    bool drafts = false;  // in flight
  };
  struct Row {
    int32_t sequence;
    int generation;
    int64_t first, tokens;
  };
  struct Flight {
    std::vector<Row> rows;
    bool prefill = false;
    std::map<int32_t, std::pair<int, int64_t>> pages;  // that it reads or writes: whose, and the how manieth
  };

  int64_t up_to(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most + 1)); }
  int32_t any_token() { return static_cast<int32_t>(up_to(8) == 0); }
  int32_t any_open() {
    return mine_.empty() ? -1 : std::next(mine_.begin(), up_to(static_cast<int64_t>(mine_.size()) - 1))->first;
  }

  void open() {
    WindowTokens prompt(static_cast<size_t>(up_to(2) == 0 ? kWindowPage * (1 + up_to(9)) : 1 + up_to(40)));
    for (int32_t& token : prompt) token = any_token();
    const int64_t length = static_cast<int64_t>(prompt.size()) + up_to(40);
    const int64_t reserved = promises_all_ ? length : static_cast<int64_t>(prompt.size());
    const bool possible = pool_.why_not_open(prompt, reserved).empty();
    const auto opened = pool_.open(prompt, reserved);
    ASSERT_EQ(opened.has_value(), possible);
    if (!opened) return;
    copies_.insert(copies_.end(), opened->copies.begin(), opened->copies.end());
    const auto tokens = static_cast<int64_t>(prompt.size());
    mine_[opened->sequence] = {std::move(prompt), tokens, length, opened->start, ++generations_, 0};
  }

  void close(int32_t sequence) {
    if (sequence < 0) return;
    if (up_to(9) == 0)
      pool_.close_and_forget(sequence);
    else
      pool_.close(sequence);
    mine_.erase(sequence);
  }

  // Rows of prompts, alone in flight unless chunks follow each other; or of one token, or of some that stay in its page
  // when nothing else of the sequence is in flight.
  void launch() {
    if (flights_.size() == 2 || (!shape_.chunks_follow && !flights_.empty() && flights_.back().prefill)) return;
    Flight flight;
    for (const auto& [id, mine] : mine_) flight.prefill |= mine.computed < mine.prompt;
    if (!shape_.chunks_follow && flight.prefill && !flights_.empty()) return;
    int64_t missing = 0;
    for (const auto& [id, mine] : mine_) {
      const int64_t left = mine.prompt - mine.computed;
      int64_t tokens = left > 0 ? std::min<int64_t>(left, 1 + up_to(shape_.chunk - 1)) : 1;
      if (left <= 0 && mine.in_flight == 0 && up_to(2) == 0)
        tokens = 1 + up_to(kWindowPage - 1 - mine.computed % kWindowPage);
      if (up_to(5) == 0 || mine.drafts || mine.computed + tokens > mine.length) continue;
      flight.rows.push_back({id, mine.generation, mine.computed, tokens});
      missing += pool_.missing(id, mine.computed + tokens);
    }
    if (flight.rows.empty()) return;
    if (missing > pool_.available()) {
      ASSERT_FALSE(promises_all_) << "a promise was broken";
      return close(flight.rows.back().sequence);
    }
    for (const PageCopy& c : std::exchange(copies_, {}))
      std::copy_n(memory_.begin() + c.from * kWindowPage, kWindowPage, memory_.begin() + c.to * kWindowPage);
    for (const Row& row : flight.rows) {
      const auto copies = pool_.reserve(row.sequence, row.first, row.first + row.tokens);
      ASSERT_TRUE(copies.has_value());
      ASSERT_TRUE(copies->empty());
    }
    for (const Row& row : flight.rows) run(flight, row, mine_.at(row.sequence));
    dispatched_ = launches_;
    pool_.launched(++launches_);
    flights_.push_back(std::move(flight));
  }

  // The device's work, in the order of the launches.
  void run(Flight& flight, const Row& row, Mine& mine) {
    const auto table = pool_.table(row.sequence);
    const auto at = [&](int64_t position) -> uint64_t& {
      const int32_t page = table[static_cast<size_t>(position / kWindowPage)];
      if (page < 0) ADD_FAILURE() << "position " << position << " of sequence " << row.sequence << " was given back";
      return memory_[static_cast<size_t>(std::max(page, 0) * kWindowPage + position % kWindowPage)];
    };
    for (int64_t position = row.first; position < row.first + row.tokens; ++position) {
      if (position == static_cast<int64_t>(mine.tokens.size())) mine.tokens.push_back(any_token());
      const int32_t page = table[static_cast<size_t>(position / kWindowPage)];
      ASSERT_EQ(pool_.owners(page), 1) << "a page that others read is written";
      for (const Flight& other : flights_) {
        const auto found = other.pages.find(page);
        ASSERT_TRUE(found == other.pages.end() || found->second == std::pair(mine.generation, position / kWindowPage))
            << "page " << page << " was handed out in flight";
      }
      at(position) = window_history(mine.tokens, position + 1);
      for (int64_t key = std::max<int64_t>(0, position - shape_.window + 1); key <= position; ++key) {
        ASSERT_EQ(at(key), window_history(mine.tokens, key + 1)) << "key " << key << " of position " << position;
        flight.pages[table[static_cast<size_t>(key / kWindowPage)]] = {mine.generation, key / kWindowPage};
      }
    }
    mine.drafts = row.first >= mine.prompt && row.tokens > 1;
    mine.computed += row.tokens;
    ++mine.in_flight;
  }

  Mine* owner_of(const Row& row) {
    const auto found = mine_.find(row.sequence);
    return found != mine_.end() && found->second.generation == row.generation ? &found->second : nullptr;
  }

  // Only the newest: those before it have reached the device.
  void revoke() {
    if (flights_.empty() || launches_ == dispatched_) return;
    for (const Row& row : flights_.back().rows)
      if (Mine* mine = owner_of(row)) forget(*mine, row.first);
    flights_.pop_back();
    pool_.revoked(launches_--);
  }

  static void forget(Mine& mine, int64_t computed) {
    mine.computed = computed;
    mine.tokens.resize(static_cast<size_t>(std::max(mine.prompt, computed)));
    --mine.in_flight;
    mine.drafts = false;
  }

  // Some of several tokens after a prompt are taken back, as wrong drafts are.
  void commit() {
    if (flights_.empty()) return;
    const Flight flight = std::move(flights_.front());
    flights_.pop_front();
    for (const Row& row : flight.rows) {
      Mine* mine = owner_of(row);
      if (!mine) continue;
      const int64_t kept = mine->drafts ? 1 + up_to(row.tokens - 1) : row.tokens;
      const auto from = mine->tokens.begin() + row.first;
      pool_.append(row.sequence, WindowTokens(from, from + kept));
      if (mine->drafts)
        forget(*mine, row.first + kept);
      else
        --mine->in_flight;
      longest_ = std::max(longest_, mine->computed);
      if (mine->computed == mine->length && mine->in_flight == 0) close(row.sequence);
    }
    pool_.completed(launches_ - flights_.size());
  }

  std::mt19937 random_;
  KvPool pool_;
  WindowShape shape_;
  bool promises_all_;
  std::vector<uint64_t> memory_ = std::vector<uint64_t>(kPages * kWindowPage, 0);
  std::map<int32_t, Mine> mine_;
  std::deque<Flight> flights_;
  std::vector<PageCopy> copies_;
  int generations_ = 0;
  int64_t longest_ = 0;
  uint64_t launches_ = 0, dispatched_ = 0;
};

TEST(KvPoolWindow, KeepsItsPromisesItsLedgerAndTheContentsOfEveryWindow) {
  for (const WindowShape& shape :
       {WindowShape{8, 8}, {13, 3}, {3, 5}, {1, 1}, {8, 8, true}, {13, 3, true}, {3, 5, true}})
    for (const bool prefix_cache : {false, true})
      for (const bool promises_all : {false, true}) {
        int64_t found = 0, evicted = 0, copied = 0, merged = 0, longest = 0;
        for (uint32_t seed = 1; seed <= 5; ++seed) {
          SCOPED_TRACE(fmt::format("seed {}, window {}, {} {} {}", seed, shape.window, shape.chunks_follow,
                                   prefix_cache, promises_all));
          WindowWalk walk(seed, shape, prefix_cache, promises_all);
          for (int i = 0; i < 3000; ++i) {
            walk.step();
            ASSERT_NO_THROW(walk.pool().check());
            if (HasFailure()) FAIL() << "step " << i;
          }
          found += walk.pool().stats().found_tokens;
          evicted += walk.pool().stats().evicted_pages;
          copied += walk.pool().stats().copied_pages;
          merged += walk.pool().stats().merged_pages;
          longest = std::max(longest, walk.longest());
        }
        EXPECT_GT(longest, 60);
        EXPECT_EQ(found > 500 && evicted > 100 && copied > 4 && merged > 10,
                  prefix_cache && shape.window >= 2 * kWindowPage)
            << found << " found, " << evicted << " evicted, " << copied << " copied, " << merged << " merged";
      }
}

}  // namespace
}  // namespace nodewright
