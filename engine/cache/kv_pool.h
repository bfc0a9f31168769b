// Pages of the key/value cache: which sequence owns which, which are shared, and which are kept for the next prompt
// that begins alike. Knows tokens and page numbers, no memory: the caller copies the pages that it names before a
// launch.
//
// A page is in exactly one of three states. Free: nobody's. Owned: in the tables of one or more sequences. Cached: in
// no table, but its tokens are known and a prompt may ask for them; the least recently used one without a cached
// continuation is taken first when no page is free.
//
// Where every layer has a window, a sequence gives back the pages before it as it goes on, cached as long as they may
// be, and owns no more than window_pages() however long it becomes. Then pages are not counted but promised: what all
// sequences may own at once is never more than there is, so that a page is there when the next launch needs it, even
// while a launch in flight still reads those given back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/cache/shared_pages.h"
#include "engine/cache/window_pages.h"

namespace nodewright {

// Hash of a page's tokens and of all before them, `parent` being the hash of the page before it (for the first the
// number of the adapter, 0 without one).
using PageHash = uint64_t (*)(uint64_t parent, std::span<const int32_t> tokens);
uint64_t chained_page_hash(uint64_t parent, std::span<const int32_t> tokens);

struct KvPoolOptions {
  int64_t pages = 0;
  int64_t page_tokens = 0;     // kPageTokens of models/kv_cache.h
  int32_t sequences = 1;       // open at once, closed ones that a launch may still write included
  bool prefix_cache = true;    // off: no page is ever shared or kept
  int64_t window = 0;          // keys that a query sees in every layer, its own included; 0: all
  int64_t chunk = 0;           // with a window: the most tokens of a prompt that one launch may write
  bool chunks_follow = false;  // a chunk may be launched while another launch is in flight
  // The window of layers that have one, where other layers have none: keys that a query attends to, its own included;
  // 0: no such layers. They hold pages of their own (engine/cache/window_pages.h), group 1; those above are the
  // others'.
  int64_t side_window = 0;
  int64_t longest = 0;                // with a side window: tokens of a sequence
  bool page_events = false;           // take_page_events() has what changes of the cached and shared pages
  PageHash hash = chained_page_hash;  // equal hashes are never taken for equal tokens: any function is correct
};

// The content of page `from`, in every layer of the group, to page `to`.
struct PageCopy {
  int32_t from = 0;
  int32_t to = 0;
  int64_t group = 0;  // ModelConfig::page_group
  bool operator==(const PageCopy&) const = default;
};

// A value: a copy is an independent pool. Not thread-safe. An Error leaves the pool as it was.
class KvPool {
 public:
  // Throws Error when a number is out of range.
  explicit KvPool(const KvPoolOptions& options);

  struct Opened {
    int32_t sequence = 0;          // 0 to sequences - 1, the lowest that is closed
    int64_t start = 0;             // first position of the prompt whose keys and values must be computed, < its length
    std::vector<PageCopy> copies;  // to be run in this order before the next launch
  };
  // A sequence that begins with `prompt` and owns pages for `length` tokens, or with a window a promise of as many as
  // it may own at once, all of them or nothing: no value when the pages or the sequences do not suffice. Throws Error
  // for an empty prompt or a length below the prompt's. Unless it `finds`, all of the prompt is to be computed.
  std::optional<Opened> open(std::span<const int32_t> prompt, int64_t length, bool finds = true);
  // Why open() would return nothing, with the numbers; empty when it would not. `spare`: pages that must be left.
  std::string why_not_open(std::span<const int32_t> prompt, int64_t length, bool finds = true, int64_t spare = 0) const;

  // The pages that one prompt begins with, remembered: asking again looks only at what has changed since.
  struct Found {
    bool searches = true;          // false: all of the prompt is to be computed
    int32_t adapter = 0;           // whose keys and values they are: pages are found under the same alone; 0: none
    std::vector<int32_t> pages;    // offered, each after the one before it
    std::vector<uint64_t> offers;  // by which they were
    std::vector<uint64_t> hashes;  // of the prompt's pages, as far as they were looked for
  };
  std::optional<Opened> open(std::span<const int32_t> prompt, int64_t length, Found& found);
  std::string why_not_open(std::span<const int32_t> prompt, int64_t length, Found& found, int64_t spare = 0) const;

  // A sequence that shares the pages of an open one which began with the same prompt, on offer or not, but for the
  // prompt's last token: the page with that is copied. Only where can_fork(): all tokens before it are known, and with
  // a window none of its pages is given back. No value when why_not_fork() gives a reason.
  std::optional<Opened> fork(int32_t like, std::span<const int32_t> prompt, int64_t length);
  bool can_fork(int32_t like, int64_t prompt_tokens) const;
  std::string why_not_fork(int64_t prompt_tokens, int64_t length, int64_t spare = 0) const;

  // Makes positions `first` to `end` - 1 the sequence's to write, and what is before them its to read: takes pages up
  // to `end`, and others for those from `first` on that are shared or on offer; one that also holds positions before
  // `first` is to be copied. All or nothing: no value when pages do not suffice. Tokens appended at `first` or after
  // it are forgotten. With a window only the pages of the window before `first` are the sequence's to read: to be
  // called before each launch, with at most a chunk, or without chunks_follow at most one page's tokens where another
  // launch is in flight.
  std::optional<std::vector<PageCopy>> reserve(int32_t sequence, int64_t first, int64_t end);
  // Pages, or promises of them, that reserve() would take for positions up to `end`, and those that it could.
  int64_t missing(int32_t sequence, int64_t end) const;
  int64_t available() const;

  // Says which tokens stand at the next positions, once a completed launch has written their keys and values. A page
  // that becomes full is offered to prompts to come; where an equal page is offered already, the table takes that one.
  // Throws Error past the reserved pages.
  void append(int32_t sequence, std::span<const int32_t> tokens);

  // The sequence's pages and its number are free, or cached, when every launch made so far has completed.
  void close(int32_t sequence);
  // As close(), and no prompt is given a page of this sequence or one that continues it: for pages that may hold NaN.
  void close_and_forget(int32_t sequence);

  // Launches are numbered 1, 2, ... revoked() takes the newest back: it was not dispatched. completed() says that this
  // launch and all before it have.
  void launched(uint64_t launch);
  void revoked(uint64_t launch);
  void completed(uint64_t launch);

  // Nothing is cached any more, and open sequences offer nothing: the weights have changed.
  void drop_cache();

  // Changes of what open() may find in group 0, since the last call. Empty without KvPoolOptions::page_events; with it,
  // to be called often: they are kept until then.
  std::vector<PageEvent> take_page_events() { return pages_.take_events(); }

  // Pages of positions 0 to page_tokens - 1, and so on. Valid until the sequence is next changed.
  std::span<const int32_t> table(int32_t sequence, int64_t group = 0) const {
    return group == 0 ? at(sequence).table : window_.table(sequence);
  }
  int64_t groups() const { return window_.is_used() ? 2 : 1; }
  const SharedPages& shared_pages() const { return pages_; }   // of group 0
  const WindowPages& window_pages() const { return window_; }  // of group 1
  // Pages are given back while a sequence is open: reserve() is to be called before each launch.
  bool gives_back() const { return options_.window > 0 || window_.is_used(); }
  // The first entry of the table that is another than when this was last called; its size where none is. What is
  // before the window counts for nothing. To be asked at each launch: append() may have replaced an entry.
  int64_t take_changed(int32_t sequence, int64_t group = 0);
  // The entry at `first` and those after it count as changed: the launch that was told of them was not dispatched, or
  // the device has forgotten.
  void set_changed(int32_t sequence, int64_t first = 0, int64_t group = 0);
  // Tokens appended, or found by open().
  int64_t known(int32_t sequence) const { return at(sequence).known; }
  bool is_open(int32_t sequence) const;
  PageState state_of(int32_t page) const;
  int32_t owners(int32_t page) const { return page_at(page).owners; }

  const KvPoolOptions& options() const { return options_; }
  int64_t page_tokens() const { return options_.page_tokens; }
  int64_t pages_for(int64_t tokens) const { return (tokens + options_.page_tokens - 1) / options_.page_tokens; }
  // The most pages that a sequence of `tokens` tokens owns at once.
  int64_t most_pages(int64_t tokens) const {
    return options_.window > 0 ? std::min(pages_for(tokens), window_pages(options_)) : pages_for(tokens);
  }
  static int64_t window_pages(const KvPoolOptions& options);
  int64_t free_pages() const { return pages_.free(); }
  int64_t cached_pages() const { return pages_.cached(); }
  int64_t owned_pages() const { return pages_.owned(); }
  // Sequences that are open, and those that are closed and wait for a launch.
  int32_t sequences_in_use() const;
  int32_t sequences_closing() const;

  struct Stats {
    int64_t prompt_tokens = 0;  // of all sequences opened
    int64_t found_tokens = 0;   // of those, how many needed no computation
    int64_t forked = 0;         // sequences that began as copies of another
    int64_t evicted_pages = 0;
    int64_t copied_pages = 0;
    int64_t merged_pages = 0;  // replaced in a table by an equal page
  };
  const Stats& stats() const { return stats_; }

  // Throws Error, with the page, where the ledger contradicts the tables: each page must be in exactly one state, with
  // as many owners as tables hold it. Takes time in proportion to pages and tables.
  void check() const;

 private:
  struct Sequence {
    bool is_open = false;
    bool is_closing = false;
    int32_t adapter = 0;        // as Found's
    bool offers = true;         // until what it holds stops being reproducible from its tokens
    int64_t known = 0;          // tokens
    int64_t offered = 0;        // leading pages of the table that are offered, each the parent of the next
    int64_t dropped = 0;        // leading entries of the table that are kNoPage
    int64_t promised = 0;       // with a window: pages that it may own at once; of a closing one, that it does
    int64_t retiring = 0;       // of those, pages that are no longer in its table
    int64_t changed = 0;        // first entry of the table that no launch was told of
    std::vector<int32_t> tail;  // known tokens of the page that is not full
    std::vector<int32_t> table;
  };
  struct Closing {
    uint64_t launch = 0;    // when it has completed, the pages lose this owner
    int32_t sequence = -1;  // that gave them back
    bool closes = false;    // its number is free then
    std::vector<int32_t> pages;
  };
  struct Match {
    int64_t pages = 0;  // of those found, the first
    int64_t start = 0;
    bool fits = false;
    int64_t needed = 0, available = 0;  // pages
  };

  const Sequence& at(int32_t sequence) const;
  const SharedPages::Page& page_at(int32_t page) const;
  Sequence& open_at(int32_t sequence);

  void look_up(std::span<const int32_t> prompt, Found& found) const;
  Match match(std::span<const int32_t> prompt, int64_t length, Found& found) const;
  Match weigh(std::span<const int32_t> pages, int64_t prompt_tokens, int64_t length) const;
  Match weigh_fork(int64_t prompt_tokens, int64_t length) const;
  std::string why_short(const Match& found, int64_t length, int64_t spare) const;
  Sequence* closed_sequence();

  std::optional<std::vector<PageCopy>> reserve_pages(int32_t sequence, int64_t first, int64_t end);
  void reserve_window(int32_t sequence, int64_t first, int64_t end, std::vector<PageCopy>& copies);
  std::span<const int32_t> usable(std::span<const int32_t> pages, int64_t prompt_tokens) const;
  int64_t promised() const;
  int64_t held(const Sequence& s) const { return static_cast<int64_t>(s.table.size()) - s.dropped + s.retiring; }
  void drop_before(int32_t sequence, int64_t first);
  static uint64_t root_hash(int32_t adapter) { return static_cast<uint64_t>(adapter); }
  int32_t take_page();
  void forget_from(Sequence& sequence, int64_t first);
  void offer_full_page(Sequence& sequence);
  void stop_offering_withdrawn();
  void retire(int32_t sequence, std::vector<int32_t> pages, bool closes = false);
  void release_completed();

  void check_page(int32_t index) const;
  void check_sequence(int32_t index) const;

  KvPoolOptions options_;
  SharedPages pages_;
  WindowPages window_;
  std::vector<Sequence> sequences_;
  std::deque<Closing> closing_;  // ascending by launch
  uint64_t launched_ = 0, completed_ = 0;
  Stats stats_;
};

}  // namespace nodewright
