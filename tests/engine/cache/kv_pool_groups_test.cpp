// A pool of two groups of layers, all keys and a window: every launch finds in both what it reads, however pages are
// shared, given back, evicted and copied; and a prompt goes on from where both groups have what it needs.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <map>
#include <random>
#include <set>

#include "engine/cache/kv_pool.h"

namespace nodewright {
namespace {

constexpr int64_t kPage = 4, kWindow = 6, kChunk = 5, kLongest = 60;

KvPoolOptions grouped(int64_t pages, int32_t sequences) {
  return {.pages = pages,
          .page_tokens = kPage,
          .sequences = sequences,
          .chunk = kChunk,
          .side_window = kWindow,
          .longest = kLongest};
}

std::vector<int32_t> counting(int32_t from, int64_t count) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(from + static_cast<int32_t>(i));
  return tokens;
}

// Launches the rest of an opened prompt chunk by chunk, one launch at a time.
void compute(KvPool& pool, int32_t sequence, const std::vector<int32_t>& prompt, int64_t start, uint64_t& launch) {
  for (const auto end = std::ssize(prompt); start < end;) {
    const int64_t tokens = std::min(kChunk, end - start);
    ASSERT_TRUE(pool.reserve(sequence, start, start + tokens));
    pool.launched(++launch);
    pool.completed(launch);
    for (int64_t i = 0; i < tokens; ++i)
      if (start + i >= pool.known(sequence)) pool.append(sequence, {{prompt[static_cast<size_t>(start + i)]}});
    start += tokens;
    pool.check();
  }
}

TEST(KvPoolGroups, ALongPromptHoldsNoMoreThanItsWindowAndIsFoundAgainWhenItHasEnded) {
  KvPool pool(grouped(20, 1));
  const int64_t window_pages = pool.window_pages().total();
  ASSERT_LT(window_pages, 10);
  uint64_t launch = 0;
  const std::vector<int32_t> prompt = counting(0, 58);
  for (int turn = 0; turn < 2; ++turn) {
    const auto opened = pool.open(prompt, kLongest).value();
    EXPECT_EQ(opened.start, turn == 0 ? 0 : 56) << "the two tokens behind the last full page are computed";
    compute(pool, opened.sequence, prompt, opened.start, launch);
    EXPECT_LE(pool.window_pages().held(opened.sequence), 4);
    pool.close(opened.sequence);
    pool.check();
  }
}

TEST(KvPoolGroups, APromptGoesOnFromTheLastPlaceWhoseWindowIsStillThere) {
  KvPool pool(grouped(60, 1));
  uint64_t launch = 0;
  const std::vector<int32_t> first = counting(0, 40);
  auto opened = pool.open(first, 40).value();
  compute(pool, opened.sequence, first, 0, launch);
  pool.close(opened.sequence);
  // A prompt that shares `shared` tokens, and 30 others, continues after them or computes all.
  const auto start_behind = [&](int64_t shared) {
    std::vector<int32_t> prompt(first.begin(), first.begin() + shared);
    for (const int32_t token : counting(100 + static_cast<int32_t>(shared), 20)) prompt.push_back(token);
    opened = pool.open(prompt, kLongest).value();
    const int64_t start = opened.start;
    compute(pool, opened.sequence, prompt, start, launch);
    pool.close(opened.sequence);
    return start;
  };
  EXPECT_EQ(start_behind(32), 32) << "the windows at the end of what has ended last are there";
  EXPECT_EQ(start_behind(8), 0) << "those near its beginning went to its later pages";
  EXPECT_EQ(start_behind(36), 8) << "those at its end went to other prompts, whose beginning has them";
}

TEST(KvPoolGroups, APromptWhoseLastTokenIsComputedAnewCopiesThePageOfBothGroups) {
  KvPool pool(grouped(20, 2));
  uint64_t launch = 0;
  const std::vector<int32_t> prompt = counting(0, 16);
  const auto first = pool.open(prompt, 20).value();
  compute(pool, first.sequence, prompt, 0, launch);
  const auto again = pool.open(prompt, 20).value();
  EXPECT_EQ(again.start, 15);
  ASSERT_EQ(again.copies.size(), 2u);
  for (const int64_t group : {0, 1}) {
    const PageCopy copy = again.copies[static_cast<size_t>(group)];
    EXPECT_EQ(copy.group, group);
    EXPECT_EQ(copy.from, pool.table(first.sequence, group)[3]);
    EXPECT_EQ(copy.to, pool.table(again.sequence, group)[3]);
  }
  EXPECT_EQ(pool.table(again.sequence, 1)[2], pool.table(first.sequence, 1)[2]) << "shared";
}

// gemma-3-1b: 22 of 26 layers see 512 keys.
TEST(KvPoolGroups, OfGemmasShapeTakeLessThanAQuarterOfThePagesAtALongContext) {
  constexpr int64_t kTokens = 32768, kPageTokens = 64, kPages = kTokens / kPageTokens;
  const int64_t window_pages = WindowPages::pages_of(
      {.window = 512, .chunk = 512, .page_tokens = kPageTokens, .longest = kTokens, .sequences = 8});
  EXPECT_LE(4 * (4 * 8 * kPages + 22 * window_pages), 26 * 8 * kPages);
}

// Two launches in flight over memory of both groups, in which every key says what is before it. A launch reads and
// writes when it completes; pages that the pool calls free are spoilt at once.
class GroupWalk {
 public:
  explicit GroupWalk(uint64_t seed, int64_t pages)
      : random_(seed), pool_(grouped(pages, kSequences)), spoilt_{pages, pool_.window_pages().total()} {
    for (size_t group : {0, 1}) memory_[group].assign(static_cast<size_t>(spoilt_[group] * kPage), kSpoilt);
  }

  void run(int moves) {
    for (int i = 0; i < moves && !testing::Test::HasFailure(); ++i) {
      move();
      pool_.check();
      spoil();
    }
    while (!flight_.empty()) complete();
  }
  int64_t found() const { return pool_.stats().found_tokens; }
  int64_t forks = 0, revoked = 0, rejected = 0;

 private:
  static constexpr int32_t kSequences = 3;
  static constexpr uint64_t kSpoilt = ~uint64_t{0};
  struct Open {
    std::vector<int32_t> tokens;  // with those to come
    int64_t prompt = 0, computed = 0;
    int in_flight = 0;
    bool drafts = false;  // in flight
  };
  struct Row {
    int32_t sequence = 0;
    uint64_t opening = 0;  // of the sequence; another one may have its number by then
    int64_t first = 0, end = 0, accepted = 0;
    std::vector<int32_t> tokens;
  };
  struct TableKey {
    int32_t sequence;
    int64_t group, first;
  };
  struct Launch {
    std::vector<PageCopy> copies;
    std::vector<std::pair<TableKey, std::vector<int32_t>>> tables;
    std::vector<Row> rows;
  };

  int64_t up_to(int64_t most) { return std::uniform_int_distribution<int64_t>(0, most)(random_); }
  uint64_t key_of(const std::vector<int32_t>& tokens, int64_t position) {
    return chained_page_hash(1, std::span(tokens).first(static_cast<size_t>(position + 1)));
  }

  void move() {
    switch (up_to(9)) {
      case 0:
      case 1:
        return open();
      case 2:
        return close();
      case 3:
      case 4:
      case 5:
        if (!flight_.empty()) complete();
        return;
      default:
        return launch();
    }
  }

  void open() {
    std::vector<int32_t> tokens;
    const Open* like = nullptr;
    int32_t of = 0;
    if (!past_.empty() && up_to(3) > 0) {
      tokens = past_[static_cast<size_t>(up_to(std::ssize(past_) - 1))];
      tokens.resize(static_cast<size_t>(1 + up_to(std::ssize(tokens) - 1)));
    }
    const bool forks_now = !open_.empty() && up_to(4) == 0;
    if (forks_now) {
      of = open_.begin()->first;
      like = &open_.at(of);
      tokens.assign(like->tokens.begin(), like->tokens.begin() + like->prompt);
    }
    const auto prompt = forks_now ? like->prompt : std::min<int64_t>(kLongest - 8, std::ssize(tokens) + 1 + up_to(12));
    while (std::ssize(tokens) < kLongest) tokens.push_back(static_cast<int32_t>(up_to(1)));
    if (!forks_now) past_.push_back(tokens);
    const std::span<const int32_t> asked = std::span(tokens).first(static_cast<size_t>(prompt));
    std::optional<KvPool::Opened> opened;
    if (forks_now) {
      if (!pool_.can_fork(of, prompt)) return;
      opened = pool_.fork(of, asked, kLongest);
      forks += opened.has_value();
    } else {
      opened = pool_.open(asked, kLongest);
    }
    if (!opened) return;
    for (const PageCopy& copy : opened->copies) copies_.push_back(copy);
    open_[opened->sequence] = {tokens, prompt, opened->start};
    openings_[opened->sequence] = ++last_opening_;
  }

  void close() {
    if (open_.empty()) return;
    const int32_t sequence = std::next(open_.begin(), up_to(std::ssize(open_) - 1))->first;
    open_.erase(sequence);
    openings_.erase(sequence);
    up_to(5) == 0 ? pool_.close_and_forget(sequence) : pool_.close(sequence);
    if (up_to(20) == 0) pool_.drop_cache();
  }

  void launch() {
    if (flight_.size() == 2) return;
    Launch next;
    for (auto& [sequence, s] : open_) {
      if (s.in_flight > 0 && (s.drafts || up_to(2) == 0)) continue;
      const int64_t left = s.prompt - s.computed;
      Row row{sequence, openings_.at(sequence), s.computed, 0, 0, s.tokens};
      row.end = row.first + (left > 0 ? std::min(left, 1 + up_to(kChunk - 1)) : 1);
      row.accepted = row.end - row.first;
      if (left <= 0 && s.in_flight == 0 && up_to(3) == 0) {  // drafts, of which not all may be accepted
        row.end += up_to(3);
        row.accepted += up_to(row.end - row.first - 1);
      }
      if (row.end > kLongest) continue;
      ASSERT_TRUE(pool_.reserve(sequence, row.first, row.end)) << "all is reserved";
      for (const int64_t group : {0, 1}) {
        const int64_t from = pool_.take_changed(sequence, group);
        const auto pages = pool_.table(sequence, group).subspan(static_cast<size_t>(from));
        next.tables.push_back({{sequence, group, from}, {pages.begin(), pages.end()}});
      }
      next.rows.push_back(std::move(row));
    }
    if (next.rows.empty()) return;
    pool_.launched(++launched_);
    if (up_to(15) == 0) {
      ++revoked;
      for (const auto& [key, pages] : next.tables) pool_.set_changed(key.sequence, key.first, key.group);
      return pool_.revoked(launched_--);
    }
    next.copies = std::exchange(copies_, {});
    for (const Row& row : next.rows) {
      Open& s = open_.at(row.sequence);
      ++s.in_flight;
      s.drafts = row.accepted < row.end - row.first;
      s.computed = row.first + row.accepted;
      rejected += s.drafts;
    }
    flight_.push_back(std::move(next));
  }

  void complete() {
    const Launch launch = std::move(flight_.front());
    flight_.pop_front();
    for (const PageCopy& copy : launch.copies)
      for (int64_t i = 0; i < kPage; ++i) cell(copy.group, copy.to, i) = cell(copy.group, copy.from, i);
    for (const auto& [key, pages] : launch.tables) {
      std::vector<int32_t>& table = tables_[static_cast<size_t>(key.group)][key.sequence];
      table.resize(std::max(table.size(), static_cast<size_t>(key.first) + pages.size()), kNoPage);
      std::ranges::copy(pages, table.begin() + key.first);
    }
    for (const Row& row : launch.rows)
      for (const int64_t group : {0, 1}) {
        const std::vector<int32_t>& table = tables_[static_cast<size_t>(group)][row.sequence];
        const auto at = [&](int64_t p) -> uint64_t& {
          return cell(group, table.at(static_cast<size_t>(p / kPage)), p % kPage);
        };
        for (int64_t p = group == 0 ? 0 : std::max<int64_t>(0, row.first - kWindow + 1); p < row.first; ++p)
          ASSERT_EQ(at(p), key_of(row.tokens, p))
              << "group " << group << ", position " << p << " of a row at " << row.first;
        for (int64_t p = row.first; p < row.end; ++p) at(p) = key_of(row.tokens, p);
        for (int64_t p = row.first + row.accepted; p < row.end; ++p) at(p) = kSpoilt;  // of a rejected draft
      }
    pool_.completed(++completed_);
    for (const Row& row : launch.rows) {
      const auto opening = openings_.find(row.sequence);
      if (opening == openings_.end() || opening->second != row.opening) continue;
      Open& s = open_.at(row.sequence);
      --s.in_flight;
      if (s.in_flight == 0) s.drafts = false;
      for (int64_t p = row.first; p < row.first + row.accepted; ++p)
        if (p >= pool_.known(row.sequence)) pool_.append(row.sequence, {{row.tokens[static_cast<size_t>(p)]}});
    }
  }

  uint64_t& cell(int64_t group, int32_t page, int64_t slot) {
    return memory_[static_cast<size_t>(group)].at(static_cast<size_t>(page * kPage + slot));
  }
  // But for what is to be copied first: that is ahead of whatever takes the page.
  void spoil() {
    std::set<std::pair<int64_t, int32_t>> sources;
    for (const PageCopy& copy : copies_) sources.insert({copy.group, copy.from});
    for (const Launch& launch : flight_)
      for (const PageCopy& copy : launch.copies) sources.insert({copy.group, copy.from});
    for (const int64_t group : {0, 1})
      for (int32_t page = 0; page < spoilt_[static_cast<size_t>(group)]; ++page)
        if (group == 0 ? pool_.state_of(page) == PageState::free : pool_.window_pages().is_free(page))
          if (!sources.contains({group, page}))
            for (int64_t i = 0; i < kPage; ++i) cell(group, page, i) = kSpoilt;
  }

  std::mt19937_64 random_;
  KvPool pool_;
  std::array<int64_t, 2> spoilt_;  // pages of a group
  std::array<std::vector<uint64_t>, 2> memory_;
  std::array<std::map<int32_t, std::vector<int32_t>>, 2> tables_;  // on the device
  std::map<int32_t, Open> open_;
  std::map<int32_t, uint64_t> openings_;
  std::vector<std::vector<int32_t>> past_;
  std::vector<PageCopy> copies_;
  std::deque<Launch> flight_;
  uint64_t launched_ = 0, completed_ = 0, last_opening_ = 0;
};

TEST(KvPoolGroups, EveryLaunchFindsWhatItReadsInBothGroups) {
  int64_t found = 0, forks = 0, revoked = 0, rejected = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    GroupWalk walk(seed, 46 + static_cast<int64_t>(seed % 30));
    walk.run(1500);
    if (HasFatalFailure() || HasFailure()) return;
    found += walk.found(), forks += walk.forks, revoked += walk.revoked, rejected += walk.rejected;
  }
  EXPECT_GT(found, 5000);
  EXPECT_GT(forks, 100);
  EXPECT_GT(revoked, 100);
  EXPECT_GT(rejected, 100);
}

}  // namespace
}  // namespace nodewright
