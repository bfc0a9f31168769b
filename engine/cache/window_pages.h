// Pages of the layers with a window in a model that also has layers without: each sequence holds those that its window
// reaches, and gives the others back. Beside a KvPool, which owns the pages of the other layers and says what stands in
// them: a page here is on offer as the twin of a page there, so that a prompt which begins with the latter finds both.
//
// There are as many pages as all sequences may hold at once, so that one is always there when a launch needs it; those
// that nobody holds keep what they are twins of until then, the least recently used first to go.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "engine/cache/page_pool.h"

namespace nodewright {

struct WindowPagesOptions {
  int64_t window = 0;  // keys that a query sees, its own included; 0: the model has no such layers beside others
  int64_t chunk = 0;   // the most tokens of a sequence that one launch may write
  int64_t page_tokens = 0;
  int64_t longest = 0;    // tokens of a sequence
  int32_t sequences = 0;  // open at once
  int64_t twins = 0;      // pages of the other layers
};

inline constexpr int32_t kNoPage = -1;  // in a table: before the window, and nothing reads it

class WindowPages {
 public:
  explicit WindowPages(const WindowPagesOptions& options);

  // That a sequence may hold, those included that it has given back and a launch in flight may still read.
  static int64_t most_pages(const WindowPagesOptions& options);
  static int64_t pages_of(const WindowPagesOptions& options) {
    return options.window > 0 ? options.sequences * most_pages(options) : 0;
  }
  bool is_used() const { return options_.window > 0; }

  // How many of `prompt`'s pages in the other layers, the first ones, can be gone on from: those that the window before
  // the next position touches have twins. The last token of `tokens` is always computed anew.
  int64_t usable(std::span<const int32_t> prompt, int64_t tokens) const;

  // The sequence reads the twins of these pages, as far as its window reaches from `start`.
  void open(int32_t sequence, std::span<const int32_t> prompt, int64_t start);
  // Whether `like` has what another sequence needs that goes on from `start`; and that sequence.
  bool can_fork(int32_t like, int64_t start) const { return sequence_at(like).dropped <= first_page(start); }
  void fork(int32_t sequence, int32_t like, int64_t start);

  // As KvPool::reserve, for one launch: gives back what it does not read, and takes what it writes. `launched`: the
  // newest launch, which may read what is given back. Returns the pages to be copied, as pairs of from and to.
  std::vector<std::pair<int32_t, int32_t>> reserve(int32_t sequence, int64_t first, int64_t end, uint64_t launched);
  // The sequence's page `index`, now full, is what the windowed layers have where the others have `twin`.
  void offer(int32_t sequence, int64_t index, int32_t twin);
  // Nothing stands in `twin` any more, or nobody is to find it.
  void withdraw(int32_t twin);
  void close(int32_t sequence, uint64_t launched);
  // Launches up to `completed` have; of those given back after it the newest was `launched`.
  void release(uint64_t completed);
  void revoked(uint64_t launched);

  std::span<const int32_t> table(int32_t sequence) const { return sequence_at(sequence).table; }
  int64_t take_changed(int32_t sequence);
  void set_changed(int32_t sequence, int64_t first);
  int64_t held(int32_t sequence) const;
  int64_t total() const { return pages_.total(); }
  bool is_free(int32_t page) const { return !pages_.is_taken(page); }

  // Throws Error where the ledger contradicts the tables.
  void check() const;

 private:
  struct Page {
    int32_t owners = 0;  // tables that hold it, and those that gave it back and wait
    int32_t twin = -1;   // -1: it is not on offer
    uint64_t last_use = 0;
  };
  struct Sequence {
    int64_t dropped = 0;   // leading entries of the table that are kNoPage
    int64_t retiring = 0;  // pages given back that wait for a launch
    int64_t changed = 0;
    std::vector<int32_t> table;
  };
  struct Closing {
    uint64_t launch = 0;  // when it has completed, the page loses this owner
    int32_t sequence = 0;
    int32_t page = 0;
  };

  const Sequence& sequence_at(int32_t sequence) const { return sequences_[static_cast<size_t>(sequence)]; }
  Page& page(int32_t index) { return records_[static_cast<size_t>(index)]; }
  const Page& page(int32_t index) const { return records_[static_cast<size_t>(index)]; }
  // That a row at position `start` reads, its own token aside.
  int64_t first_page(int64_t start) const {
    return std::max<int64_t>(0, start - options_.window + 1) / options_.page_tokens;
  }
  int32_t take();
  void own(int32_t index);
  void disown(int32_t index);
  void retire(int32_t sequence, int32_t index, uint64_t launched);

  WindowPagesOptions options_;
  PagePool pages_;  // taken: owned or on offer
  std::vector<Page> records_;
  std::vector<int32_t> of_twin_;  // [twins] the page on offer beside it, or -1
  std::vector<Sequence> sequences_;
  std::deque<Closing> closing_;                    // ascending by launch
  std::set<std::pair<uint64_t, int32_t>> cached_;  // on offer and owned by nobody, by last use
  uint64_t uses_ = 0;
};

}  // namespace nodewright
