// Random walks of a KvPool beside a model that knows no page numbers and no hashes, and beside a memory in which every
// position says which tokens it was computed from.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>

#include "engine/cache/kv_pool.h"

namespace nodewright {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kSmallPage = 3;  // a page
constexpr int64_t kSmallPool = 14;
constexpr int32_t kWalked = 5;

Tokens first_of(const Tokens& tokens, int64_t count) { return {tokens.begin(), tokens.begin() + count}; }

// What the pool should count: offered pages by the tokens that they and all before them hold, the rest as numbers.
class CountingModel {
 public:
  explicit CountingModel(bool prefix_cache) : prefix_cache_(prefix_cache) {}

  struct Sequence {
    Tokens known;
    int64_t pages = 0, offered = 0;
  };

  // The position to start at, or -1 when it does not fit.
  int64_t open(int32_t id, const Tokens& prompt, int64_t length) {
    const auto size = static_cast<int64_t>(prompt.size());
    const int64_t pages = (length + kSmallPage - 1) / kSmallPage;
    int64_t found = 0;
    while ((found + 1) * kSmallPage <= size && offers_.contains(first_of(prompt, (found + 1) * kSmallPage))) ++found;
    const auto fits = [&](int64_t use) {
      int64_t unowned = 0;
      for (int64_t i = 1; i <= use; ++i) unowned += offers_.at(first_of(prompt, i * kSmallPage)).owners == 0;
      return pages - use + (use * kSmallPage == size) <= free() + cached() - unowned;
    };
    if (!fits(found)) {
      if (found * kSmallPage < size || !fits(--found)) return -1;
    }
    const bool copies = found * kSmallPage == size;
    for (int64_t i = 1; i <= found; ++i) ++offers_.at(first_of(prompt, i * kSmallPage)).owners;
    take(pages - found + copies);
    if (copies) release(prompt, found);
    sequences[id] = {first_of(prompt, copies ? size - 1 : found * kSmallPage), pages, found - copies};
    return copies ? size - 1 : found * kSmallPage;
  }

  bool grow(int32_t id, int64_t first, int64_t end) {
    Sequence& s = sequences.at(id);
    const int64_t kept = std::min(s.offered, first / kSmallPage);
    const int64_t more = std::max<int64_t>(0, (end + kSmallPage - 1) / kSmallPage - s.pages);
    const int64_t replaced = s.offered - kept;
    if (more + replaced > free() + cached()) return false;
    take(more + replaced);
    for (int64_t i = s.offered; i > kept; --i) release(s.known, i);
    s.pages += more;
    s.offered = kept;
    if (first < static_cast<int64_t>(s.known.size())) s.known.resize(static_cast<size_t>(first));
    return true;
  }

  void append(int32_t id, int32_t token, uint64_t launch) {
    Sequence& s = sequences.at(id);
    s.known.push_back(token);
    if (!prefix_cache_ || s.known.size() % kSmallPage != 0) return;
    if (offers_.contains(s.known)) {
      closing.push_back({launch, false, {{}, 1, 0}});
    } else {
      --private_;
    }
    ++offers_[s.known].owners;
    ++s.offered;
  }

  void close(int32_t id, uint64_t launch) {
    closing.push_back({launch, true, sequences.at(id)});
    sequences.erase(id);
  }

  void completed(uint64_t launch) {
    for (const Closing& done : closing) {
      if (done.launch > launch) continue;
      private_ -= done.what.pages - done.what.offered;
      for (int64_t page = done.what.offered; page > 0; --page) release(done.what.known, page);
    }
    std::erase_if(closing, [launch](const Closing& done) { return done.launch <= launch; });
  }

  bool has_closed_sequence() const {
    return static_cast<int32_t>(sequences.size()) + std::ranges::count(closing, true, &Closing::is_sequence) < kWalked;
  }

  int64_t cached() const {
    return std::ranges::count_if(offers_, [](const auto& entry) { return entry.second.owners == 0; });
  }
  int64_t free() const { return kSmallPool - static_cast<int64_t>(offers_.size()) - private_; }

  struct Closing {
    uint64_t launch;
    bool is_sequence;  // not a page that was merged
    Sequence what;
  };
  std::map<int32_t, Sequence> sequences;
  std::vector<Closing> closing;

 private:
  struct Offer {
    int owners = 0;
    uint64_t last_use = 0;
  };

  void take(int64_t pages) {
    private_ += pages;
    while (free() < 0) {
      auto oldest = offers_.end();
      for (auto it = offers_.begin(); it != offers_.end(); ++it) {
        if (it->second.owners > 0 || (oldest != offers_.end() && oldest->second.last_use < it->second.last_use))
          continue;
        const bool continued = std::ranges::any_of(offers_, [&](const auto& other) {
          return other.first.size() > it->first.size() &&
                 std::equal(it->first.begin(), it->first.end(), other.first.begin());
        });
        if (!continued) oldest = it;
      }
      offers_.erase(oldest);
    }
  }

  void release(const Tokens& tokens, int64_t page) {
    Offer& offer = offers_.at(first_of(tokens, page * kSmallPage));
    if (--offer.owners == 0) offer.last_use = ++uses_;
  }

  bool prefix_cache_;
  std::map<Tokens, Offer> offers_;
  int64_t private_ = 0;  // pages in tables that are not offered
  uint64_t uses_ = 0;
};

// What a position of a page was computed from: its token and all before it.
uint64_t history_of(const Tokens& tokens, int64_t count) {
  uint64_t history = 1;
  for (int64_t i = 0; i < count; ++i)
    history = history * 6364136223846793005 + static_cast<uint64_t>(tokens[static_cast<size_t>(i)]) + 1;
  return history;
}

class Walk {
 public:
  Walk(uint32_t seed, bool prefix_cache, PageHash hash, bool weights_change)
      : random_(seed),
        pool_({.pages = kSmallPool,
               .page_tokens = kSmallPage,
               .sequences = kWalked,
               .prefix_cache = prefix_cache,
               .hash = hash}),
        model_(prefix_cache),
        weights_change_(weights_change),
        memory_(kSmallPool * kSmallPage, 0) {}

  void step() {
    switch (random_() % 8) {
      case 0:
      case 1:
        return open();
      case 2:
        return close();
      case 3:
        return grow();
      case 4:
        return rewind();
      case 5:
        return launch();
      case 6:
        return complete();
      default:
        return change_weights();
    }
  }

  void check() {
    ASSERT_NO_THROW(pool_.check());
    if (!weights_change_) {
      ASSERT_EQ(pool_.free_pages(), model_.free());
      ASSERT_EQ(pool_.cached_pages(), model_.cached());
    }
    for (const auto& [id, mine] : mine_) {
      const auto table = pool_.table(id);
      for (int64_t i = 0; i < pool_.known(id); ++i)
        ASSERT_EQ(
            memory_[static_cast<size_t>(table[static_cast<size_t>(i / kSmallPage)] * kSmallPage + i % kSmallPage)],
            history_of(mine.tokens, i + 1))
            << "sequence " << id << " position " << i;
    }
    for (auto& [prompt, found] : remembered_) {
      const int64_t length = static_cast<int64_t>(prompt.size()) + 2;
      KvPool::Found anew;
      ASSERT_EQ(pool_.why_not_open(prompt, length, found), pool_.why_not_open(prompt, length, anew));
      ASSERT_EQ(found.pages, anew.pages);
    }
  }

  const KvPool& pool() const { return pool_; }

 private:
  struct Mine {
    Tokens tokens;         // all it has, computed or to be computed by a launch in flight
    int64_t computed = 0;  // by launches, those in flight included
  };
  struct Write {
    int32_t sequence, generation;
    int32_t page;
    int64_t position;
    uint64_t history;
    int32_t token;
  };

  int64_t up_to(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most + 1)); }
  bool in_flight(int32_t id) const {
    return std::ranges::any_of(flights_, [&](const auto& flight) {
      return std::ranges::any_of(flight, [&](const Write& w) {
        return w.sequence == id && w.generation == generation_[static_cast<size_t>(id)];
      });
    });
  }
  std::optional<int32_t> any_open() {
    if (mine_.empty()) return std::nullopt;
    return std::next(mine_.begin(), up_to(static_cast<int64_t>(mine_.size()) - 1))->first;
  }

  void copy(const std::vector<PageCopy>& copies) {
    for (const PageCopy& c : copies)
      std::copy_n(memory_.begin() + c.from * kSmallPage, kSmallPage, memory_.begin() + c.to * kSmallPage);
  }

  void fork() {
    const auto like = any_open();
    if (!like || pool_.known(*like) == 0) return;
    const Tokens& all = mine_[*like].tokens;
    const auto most = std::min(pool_.known(*like) + 1, static_cast<int64_t>(all.size()));
    const Tokens prompt(all.begin(), all.begin() + most - up_to(most - 1));
    const auto tokens = static_cast<int64_t>(prompt.size());
    const int64_t length = tokens + up_to(6);
    ASSERT_TRUE(pool_.can_fork(*like, tokens));
    const bool possible = pool_.why_not_fork(tokens, length).empty();
    const auto opened = pool_.fork(*like, prompt, length);
    ASSERT_EQ(opened.has_value(), possible);
    if (!opened) return;
    EXPECT_EQ(opened->start, tokens - 1);
    copy(opened->copies);
    ++generation_[static_cast<size_t>(opened->sequence)];
    mine_[opened->sequence] = {prompt, opened->start};
  }

  void open() {
    if (weights_change_ && up_to(2) == 0) return fork();
    Tokens prompt(static_cast<size_t>(1 + up_to(9)));
    for (int32_t& token : prompt) token = static_cast<int32_t>(up_to(8) == 0);  // two tokens, one of them rare
    const int64_t length = static_cast<int64_t>(prompt.size()) + up_to(6);
    const bool possible = pool_.why_not_open(prompt, length).empty();
    const auto opened = pool_.open(prompt, length);
    ASSERT_EQ(opened.has_value(), possible);
    if (!weights_change_) {
      const int64_t start =
          model_.has_closed_sequence() ? model_.open(opened ? opened->sequence : 0, prompt, length) : -1;
      ASSERT_EQ(opened ? opened->start : -1, start);
    }
    if (!opened) return;
    copy(opened->copies);
    ++generation_[static_cast<size_t>(opened->sequence)];
    mine_[opened->sequence] = {prompt, opened->start};
  }

  void close() {
    const auto id = any_open();
    if (!id) return;
    if (weights_change_ && up_to(3) == 0) {
      pool_.close_and_forget(*id);
    } else {
      pool_.close(*id);
    }
    if (!weights_change_) {
      model_.close(*id, launches_);
      model_.completed(launches_ - flights_.size());
    }
    mine_.erase(*id);
  }

  void grow() {
    const auto id = any_open();
    if (!id) return;
    const int64_t end = mine_[*id].computed + up_to(8);
    const auto copies = pool_.reserve(*id, mine_[*id].computed, end);
    if (!weights_change_) {
      ASSERT_EQ(copies.has_value(), model_.grow(*id, mine_[*id].computed, end));
    }
    if (copies) copy(*copies);
  }

  // Goes back to an earlier position, as after a draft that was refused, and on from there with other tokens.
  void rewind() {
    const auto id = any_open();
    if (!id || in_flight(*id)) return;
    Mine& mine = mine_[*id];
    const int64_t first = up_to(mine.computed), end = first + up_to(4);
    const auto copies = pool_.reserve(*id, first, end);
    if (!weights_change_) {
      ASSERT_EQ(copies.has_value(), model_.grow(*id, first, end));
    }
    if (!copies) return;
    copy(*copies);
    mine.tokens.resize(static_cast<size_t>(first));
    mine.computed = first;
  }

  // What is left of a prompt, or one more token, of some sequences; written to memory when it completes.
  void launch() {
    if (flights_.size() == 2) return;
    pool_.launched(++launches_);
    std::vector<Write>& writes = flights_.emplace_back();
    for (auto& [id, mine] : mine_) {
      if (up_to(3) == 0) continue;
      const auto table = pool_.table(id);
      if (mine.computed == static_cast<int64_t>(mine.tokens.size()))
        mine.tokens.push_back(static_cast<int32_t>(up_to(8) == 0));
      for (; mine.computed < static_cast<int64_t>(mine.tokens.size()); ++mine.computed) {
        if (mine.computed >= static_cast<int64_t>(table.size()) * kSmallPage) break;
        const int32_t page = table[static_cast<size_t>(mine.computed / kSmallPage)];
        ASSERT_EQ(pool_.owners(page), 1) << "a page that others read is written";
        writes.push_back({id, generation_[static_cast<size_t>(id)], page, mine.computed,
                          history_of(mine.tokens, mine.computed + 1), mine.tokens[static_cast<size_t>(mine.computed)]});
      }
      mine.tokens.resize(static_cast<size_t>(mine.computed));
    }
  }

  void complete() {
    if (flights_.empty()) return;
    const std::vector<Write> writes = std::move(flights_.front());
    flights_.pop_front();
    for (const Write& w : writes) {
      ASSERT_EQ(pool_.state_of(w.page), PageState::owned) << "reusable before its launch completed";
      const bool is_mine = mine_.contains(w.sequence) && generation_[static_cast<size_t>(w.sequence)] == w.generation;
      for (const auto& [id, mine] : mine_)
        ASSERT_TRUE((is_mine && id == w.sequence) || std::ranges::count(pool_.table(id), w.page) == 0)
            << "page " << w.page << " went to sequence " << id << " before its launch completed";
      memory_[static_cast<size_t>(w.page * kSmallPage + w.position % kSmallPage)] = w.history;
    }
    // The pool has been told of the launch only when the results of its rows are known.
    for (const Write& w : writes) {
      if (!mine_.contains(w.sequence) || generation_[static_cast<size_t>(w.sequence)] != w.generation) continue;
      pool_.append(w.sequence, {{w.token}});
      if (!weights_change_) model_.append(w.sequence, w.token, launches_);
    }
    pool_.completed(launches_ - flights_.size());
    model_.completed(launches_ - flights_.size());
  }

  void change_weights() {
    if (weights_change_ && up_to(60) == 0) pool_.drop_cache();
  }

  std::mt19937 random_;
  KvPool pool_;
  CountingModel model_;
  bool weights_change_;
  std::vector<uint64_t> memory_;  // [pages, page tokens]
  std::map<int32_t, Mine> mine_;
  std::deque<std::vector<Write>> flights_;
  std::vector<std::pair<Tokens, KvPool::Found>> remembered_ = {
      {Tokens(9, 0), {}}, {Tokens(8, 0), {}}, {{0, 0, 0, 0, 1, 0, 0}, {}}, {Tokens(3, 1), {}}};
  std::vector<int32_t> generation_ = std::vector<int32_t>(kWalked, 0);
  uint64_t launches_ = 0;
};

struct Case {
  const char* name;
  bool prefix_cache;
  PageHash hash;
  bool weights_change;
};

class KvPoolWalk : public testing::TestWithParam<Case> {};

TEST_P(KvPoolWalk, KeepsLedgerAndContents) {
  int64_t found = 0, evicted = 0, copied = 0;
  for (uint32_t seed = 1; seed <= 12; ++seed) {
    SCOPED_TRACE(seed);
    Walk walk(seed, GetParam().prefix_cache, GetParam().hash, GetParam().weights_change);
    for (int i = 0; i < 2000; ++i) {
      walk.step();
      walk.check();
      if (HasFatalFailure()) FAIL() << "step " << i;
    }
    found += walk.pool().stats().found_tokens;
    evicted += walk.pool().stats().evicted_pages;
    copied += walk.pool().stats().copied_pages;
  }
  EXPECT_EQ(found > 1000 && evicted > 200 && copied > 200, GetParam().prefix_cache)  // the walks went where it is hard
      << found << " found, " << evicted << " evicted, " << copied << " copied";
}

INSTANTIATE_TEST_SUITE_P(All, KvPoolWalk,
                         testing::Values(Case{"WithACache", true, chained_page_hash, false},
                                         Case{"WithoutACache", false, chained_page_hash, false},
                                         Case{"WithCollidingHashes", true,
                                              [](uint64_t, std::span<const int32_t> t) { return uint64_t(t[0]); },
                                              false},
                                         Case{"WithChangesOfWeights", true, chained_page_hash, true},
                                         Case{"WithForksWithoutACache", false, chained_page_hash, true}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace nodewright
