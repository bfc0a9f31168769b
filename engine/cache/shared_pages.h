// Pages that sequences may share: how many tables hold each, which are on offer to prompts that begin alike, and in
// which order those that nobody owns are taken again. Knows no sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/cache/page_events.h"
#include "engine/cache/page_pool.h"

namespace nodewright {

enum class PageState { free, owned, cached };

// A value, and not thread-safe. Page numbers are not checked.
class SharedPages {
 public:
  struct Page {
    int32_t owners = 0;         // tables that hold it, those of closing sequences included
    bool is_offered = false;    // the rest has meaning only then
    int32_t parent = -1;        // offered page before it; root(): it begins the prompt
    int32_t adapter = 0;        // whose keys and values it has; 0: none
    int32_t continuations = 0;  // offered pages whose parent it is: a list that begins with
    int32_t continuation = -1;  // and goes on with their
    int32_t next = -1, previous = -1;
    uint64_t offer = 0;  // a number of its own for each time that it was offered; otherwise 0
    uint64_t hash = 0;
    uint64_t last_use = 0;           // when it last became cached
    int32_t older = -1, newer = -1;  // neighbours in the list of cached pages, by last use
    std::vector<int32_t> tokens;     // [page_tokens]
  };

  // `logs`: what is offered and withdrawn from now on is to be taken by take_events().
  explicit SharedPages(int64_t pages, bool logs = false) : free_(pages), pages_(static_cast<size_t>(pages)) {
    if (logs) log_.emplace();
  }

  const Page& at(int32_t page) const { return pages_[static_cast<size_t>(page)]; }
  PageState state_of(int32_t page) const;
  int64_t total() const { return free_.total(); }
  int64_t free() const { return free_.total() - free_.taken(); }
  int64_t cached() const { return cached_; }
  int64_t owned() const { return free_.taken() - cached_; }

  // A page that nobody owns; there must be one. Where none is free, one that is cached: it, and what continues it, are
  // withdrawn and appended to `withdrawn`. A page that is withdrawn alone was in no table.
  int32_t take(std::vector<int32_t>& withdrawn);
  // One table more, or one less, holds the page.
  void own(int32_t page);
  void disown(int32_t page);

  // What stands for the parent of a page that begins a prompt, computed with that adapter; 0: without one. Below 0.
  static constexpr int32_t root(int32_t adapter) { return -1 - adapter; }
  // An owned page is full of these tokens, after `parent`, which is on offer (root(): they begin the prompt).
  void offer(int32_t page, int32_t parent, uint64_t hash, std::span<const int32_t> tokens);
  // The page on offer of these tokens after the same page, not only of an equal hash; or -1.
  int32_t find(uint64_t hash, int32_t parent, std::span<const int32_t> tokens) const;
  // Nobody is to find the page, what is before it, nor what continues that: appended to `withdrawn`.
  void withdraw_chain(int32_t page, std::vector<int32_t>& withdrawn);
  void withdraw_all();
  // Since the last call; of one that logs.
  std::vector<PageEvent> take_events() { return log_ ? log_->take() : std::vector<PageEvent>(); }

  // Throws Error where the ledger contradicts itself, or the number of `tables` that hold each page.
  void check(std::span<const int32_t> tables) const;

 private:
  Page& page(int32_t index) { return pages_[static_cast<size_t>(index)]; }
  const Page& page(int32_t index) const { return at(index); }
  int32_t first_of_chain(int32_t index) const;
  void withdraw(int32_t index);
  void withdraw_with_continuations(int32_t index, std::vector<int32_t>& withdrawn);
  void cache(int32_t index);
  void leave_cache(int32_t index);
  void link(int32_t index);
  void unlink(int32_t index);
  void check_cached() const;
  void check_page(int32_t index, int32_t tables, int32_t continuations) const;

  PagePool free_;  // taken: owned or cached
  std::vector<Page> pages_;
  std::optional<PageEventLog> log_;
  std::unordered_multimap<uint64_t, int32_t> offers_;
  std::set<std::pair<uint64_t, int32_t>> evictable_;  // cached and without continuation, by last use
  int64_t cached_ = 0;                                // pages, in a list from
  int32_t oldest_ = -1, newest_ = -1;                 // to
  uint64_t uses_ = 0, offered_ = 0;
};

}  // namespace nodewright
