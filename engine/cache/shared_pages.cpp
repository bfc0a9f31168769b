#include "engine/cache/shared_pages.h"

#include <algorithm>
#include <optional>

#include "engine/cache/ledger_check.h"

namespace nodewright {

PageState SharedPages::state_of(int32_t index) const {
  if (at(index).owners > 0) return PageState::owned;
  return free_.is_taken(index) ? PageState::cached : PageState::free;
}

int32_t SharedPages::take(std::vector<int32_t>& withdrawn) {
  if (const std::optional<int32_t> free = free_.take()) return *free;
  if (!evictable_.empty()) {  // without a window it never is: the continuations of a cached page are cached, too
    withdrawn.push_back(evictable_.begin()->second);
    withdraw(withdrawn.back());
  } else {  // all that is cached was given back by sequences that go on after it
    withdraw_with_continuations(first_of_chain(oldest_), withdrawn);
  }
  return *free_.take();
}

void SharedPages::own(int32_t index) {
  Page& p = page(index);
  if (p.owners++ == 0 && p.is_offered) leave_cache(index);
}

void SharedPages::disown(int32_t index) {
  Page& p = page(index);
  if (--p.owners > 0) return;
  if (!p.is_offered) return free_.give_back(index);
  cache(index);
}

void SharedPages::cache(int32_t index) {
  Page& p = page(index);
  p.last_use = ++uses_;
  p.older = std::exchange(newest_, index);
  p.newer = -1;
  (p.older >= 0 ? page(p.older).newer : oldest_) = index;
  ++cached_;
  if (p.continuations == 0) evictable_.insert({p.last_use, index});
}

void SharedPages::leave_cache(int32_t index) {
  const Page& p = page(index);
  (p.older >= 0 ? page(p.older).newer : oldest_) = p.newer;
  (p.newer >= 0 ? page(p.newer).older : newest_) = p.older;
  --cached_;
  evictable_.erase({p.last_use, index});
}

// Offers

int32_t SharedPages::find(uint64_t hash, int32_t parent, std::span<const int32_t> tokens) const {
  const auto [first, last] = offers_.equal_range(hash);
  const auto found = std::find_if(first, last, [&](const auto& entry) {
    const Page& p = page(entry.second);
    return p.parent == parent && std::ranges::equal(p.tokens, tokens);
  });
  return found == last ? -1 : found->second;
}

void SharedPages::offer(int32_t index, int32_t parent, uint64_t hash, std::span<const int32_t> tokens) {
  Page& p = page(index);
  p.is_offered = true;
  p.offer = ++offered_;
  p.parent = parent;
  p.adapter = parent >= 0 ? page(parent).adapter : -1 - parent;
  p.hash = hash;
  p.tokens.assign(tokens.begin(), tokens.end());
  if (parent >= 0) link(index);
  offers_.emplace(hash, index);
  if (log_) log_->store(hash, parent >= 0 ? std::optional(page(parent).hash) : std::nullopt, tokens, p.adapter);
}

// Withdraws an offered page that has no continuations.
void SharedPages::withdraw(int32_t index) {
  Page& p = page(index);
  const auto [first, last] = offers_.equal_range(p.hash);
  offers_.erase(std::find_if(first, last, [index](const auto& entry) { return entry.second == index; }));
  if (p.parent >= 0) {
    unlink(index);
    const Page& parent = page(p.parent);
    if (parent.continuations == 0 && parent.owners == 0) evictable_.insert({parent.last_use, p.parent});
  }
  p.is_offered = false;
  p.offer = 0;
  if (log_) log_->remove(p.hash);
  if (p.owners > 0) return;
  leave_cache(index);
  free_.give_back(index);
}

// The last continuations first.
void SharedPages::withdraw_with_continuations(int32_t index, std::vector<int32_t>& withdrawn) {
  std::vector<int32_t> all{index};
  for (size_t i = 0; i < all.size(); ++i)
    for (int32_t next = page(all[i]).continuation; next >= 0; next = page(next).next) all.push_back(next);
  for (auto last = all.rbegin(); last != all.rend(); ++last) {
    withdraw(*last);
    withdrawn.push_back(*last);
  }
}

void SharedPages::withdraw_chain(int32_t index, std::vector<int32_t>& withdrawn) {
  if (const int32_t first = first_of_chain(index); first >= 0) withdraw_with_continuations(first, withdrawn);
}

void SharedPages::withdraw_all() {
  if (log_) log_->clear();
  offers_.clear();
  evictable_.clear();
  cached_ = 0;
  oldest_ = newest_ = -1;
  for (int32_t index = 0; index < total(); ++index) {
    Page& p = page(index);
    p.offer = 0;
    p.continuations = 0;
    p.continuation = -1;
    if (std::exchange(p.is_offered, false) && p.owners == 0) free_.give_back(index);
  }
}

// Into the list of its parent's continuations.
void SharedPages::link(int32_t index) {
  Page& p = page(index);
  Page& parent = page(p.parent);
  ++parent.continuations;
  p.previous = -1;
  p.next = parent.continuation;
  if (p.next >= 0) page(p.next).previous = index;
  parent.continuation = index;
}

void SharedPages::unlink(int32_t index) {
  const Page& p = page(index);
  Page& parent = page(p.parent);
  --parent.continuations;
  (p.previous >= 0 ? page(p.previous).next : parent.continuation) = p.next;
  if (p.next >= 0) page(p.next).previous = p.previous;
}

// The page that begins the prompt that `index` is of; -1 where it is not offered.
int32_t SharedPages::first_of_chain(int32_t index) const {
  if (!page(index).is_offered) return -1;
  while (page(index).parent >= 0) index = page(index).parent;
  return index;
}

// Checks

void SharedPages::check(std::span<const int32_t> tables) const {
  std::vector<int32_t> continuations(pages_.size(), 0);
  for (const Page& p : pages_)
    if (p.is_offered && p.parent >= 0) ++continuations[static_cast<size_t>(p.parent)];
  for (int32_t index = 0; index < total(); ++index)
    check_page(index, tables[static_cast<size_t>(index)], continuations[static_cast<size_t>(index)]);
  check_cached();
}

void SharedPages::check_page(int32_t index, int32_t tables, int32_t continuations) const {
  const Page& p = page(index);
  demand_in_ledger(p.owners == tables, "page", index, "{} owners, in {} tables", p.owners, tables);
  demand_in_ledger(free_.is_taken(index) == (p.owners > 0 || p.is_offered), "page", index,
                   "{} owners, {}, and the free list says {}", p.owners, p.is_offered ? "offered" : "not offered",
                   free_.is_taken(index) ? "taken" : "free");
  if (!p.is_offered) return;
  demand_in_ledger(find(p.hash, p.parent, p.tokens) == index, "page", index, "its offer does not lead to it");
  demand_in_ledger(evictable_.contains({p.last_use, index}) == (p.owners == 0 && p.continuations == 0), "page", index,
                   "{} owners and {} continuations, wrongly listed for eviction", p.owners, p.continuations);
  demand_in_ledger(p.continuations == continuations, "page", index, "{} continuations counted as {}", continuations,
                   p.continuations);
  int32_t listed = 0;
  for (int32_t next = p.continuation, previous = -1; next >= 0; previous = next, next = page(next).next, ++listed)
    demand_in_ledger(page(next).is_offered && page(next).parent == index && page(next).previous == previous, "page",
                     index, "page {} is in the list of its continuations", next);
  demand_in_ledger(listed == p.continuations, "page", index, "{} continuations are listed as {}", p.continuations,
                   listed);
  if (p.parent < 0) return;
  demand_in_ledger(page(p.parent).is_offered, "page", index, "it continues page {}, which is not offered", p.parent);
}

void SharedPages::check_cached() const {
  int64_t cached = 0, offered = 0, evictable = 0;
  for (const Page& p : pages_) {
    offered += p.is_offered;
    cached += p.is_offered && p.owners == 0;
    evictable += p.is_offered && p.owners == 0 && p.continuations == 0;
  }
  demand_in_ledger(cached == cached_, "cached pages", -1, "{} are counted as {}", cached, cached_);
  int64_t listed = 0;
  for (int32_t index = oldest_, older = -1; index >= 0; older = index, index = page(index).newer, ++listed) {
    const Page& p = page(index);
    demand_in_ledger(
        p.is_offered && p.owners == 0 && p.older == older && (older < 0 || page(older).last_use < p.last_use), "page",
        index, "it stands behind page {} in the list of cached pages", older);
    demand_in_ledger(p.newer >= 0 || index == newest_, "page", index,
                     "the list of cached pages ends with it, and not with {}", newest_);
  }
  demand_in_ledger(listed == cached, "cached pages", -1, "{} are listed as {}", cached, listed);
  demand_in_ledger(offered == static_cast<int64_t>(offers_.size()), "offers", -1, "{} for {} pages", offers_.size(),
                   offered);
  demand_in_ledger(evictable == static_cast<int64_t>(evictable_.size()), "evictable pages", -1, "{} are listed as {}",
                   evictable, evictable_.size());
}

}  // namespace nodewright
