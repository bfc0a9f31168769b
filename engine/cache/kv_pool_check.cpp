// The ledger of a KvPool recounted from its tables, with none of the counters that it keeps.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/cache/kv_pool.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

// Formats nothing while all is well.
template <typename... Args>
void demand(bool holds, const char* kind, int64_t number, fmt::format_string<Args...> detail, Args&&... args) {
  if (holds) return;
  throw Error({.doing = "balance the ledger of pages",
               .object = number < 0 ? kind : fmt::format("{} {}", kind, number),
               .detail = fmt::format(detail, std::forward<Args>(args)...)});
}

}  // namespace

void KvPool::check() const {
  window_.check();
  std::vector<int32_t> tables(page_records_.size(), 0), continuations(page_records_.size(), 0);
  for (const Sequence& s : sequences_)
    for (int32_t index : s.table)
      if (index != kNoPage) ++tables[static_cast<size_t>(index)];
  for (const Closing& waiting : closing_)
    for (int32_t index : waiting.pages) ++tables[static_cast<size_t>(index)];

  for (const Page& p : page_records_)
    if (p.is_offered && p.parent >= 0) ++continuations[static_cast<size_t>(p.parent)];

  int64_t cached = 0, offered = 0, evictable = 0;
  for (int32_t index = 0; index < pages_.total(); ++index) {
    check_page(index, tables[static_cast<size_t>(index)], continuations[static_cast<size_t>(index)]);
    const Page& p = page(index);
    offered += p.is_offered;
    cached += p.is_offered && p.owners == 0;
    evictable += p.is_offered && p.owners == 0 && p.continuations == 0;
  }
  demand(cached == cached_, "cached pages", -1, "{} are counted as {}", cached, cached_);
  int64_t listed = 0;
  for (int32_t index = oldest_, older = -1; index >= 0; older = index, index = page(index).newer, ++listed) {
    const Page& p = page(index);
    demand(p.is_offered && p.owners == 0 && p.older == older && (older < 0 || page(older).last_use < p.last_use),
           "page", index, "it stands behind page {} in the list of cached pages", older);
    demand(p.newer >= 0 || index == newest_, "page", index, "the list of cached pages ends with it, and not with {}",
           newest_);
  }
  demand(listed == cached, "cached pages", -1, "{} are listed as {}", cached, listed);
  demand(offered == static_cast<int64_t>(offers_.size()), "offers", -1, "{} for {} pages", offers_.size(), offered);
  demand(evictable == static_cast<int64_t>(evictable_.size()), "evictable pages", -1, "{} are listed as {}", evictable,
         evictable_.size());
  for (int32_t index = 0; index < options_.sequences; ++index) check_sequence(index);
  demand(promised() <= pages_.total(), "promises", -1, "{} of {} pages", promised(), pages_.total());
  for (const Closing& waiting : closing_)
    demand(waiting.launch > completed_ && waiting.launch <= launched_, "closing pages", -1,
           "they wait for launch {} of {}, {} have completed", waiting.launch, launched_, completed_);
}

void KvPool::check_page(int32_t index, int32_t tables, int32_t continuations) const {
  const Page& p = page(index);
  demand(p.owners == tables, "page", index, "{} owners, in {} tables", p.owners, tables);
  demand(pages_.is_taken(index) == (p.owners > 0 || p.is_offered), "page", index,
         "{} owners, {}, and the free list says {}", p.owners, p.is_offered ? "offered" : "not offered",
         pages_.is_taken(index) ? "taken" : "free");
  if (!p.is_offered) return;
  demand(options_.prefix_cache, "page", index, "offered without a prefix cache");
  demand(offered_page(p.hash, p.parent, p.tokens) == index, "page", index, "its offer does not lead to it");
  demand(evictable_.contains({p.last_use, index}) == (p.owners == 0 && p.continuations == 0), "page", index,
         "{} owners and {} continuations, wrongly listed for eviction", p.owners, p.continuations);
  demand(p.continuations == continuations, "page", index, "{} continuations counted as {}", continuations,
         p.continuations);
  int32_t listed = 0;
  for (int32_t next = p.continuation, previous = -1; next >= 0; previous = next, next = page(next).next, ++listed)
    demand(page(next).is_offered && page(next).parent == index && page(next).previous == previous, "page", index,
           "page {} is in the list of its continuations", next);
  demand(listed == p.continuations, "page", index, "{} continuations are listed as {}", p.continuations, listed);
  if (p.parent < 0) return;
  demand(page(p.parent).is_offered, "page", index, "it continues page {}, which is not offered", p.parent);
  demand(options_.window > 0 || page(p.parent).owners >= p.owners, "page", index,
         "{} owners, and the page before it has {}", p.owners, page(p.parent).owners);
}

void KvPool::check_sequence(int32_t index) const {
  const Sequence& s = sequences_[static_cast<size_t>(index)];
  demand(!s.is_open || !s.is_closing, "sequence", index, "open and closing");
  int64_t closings = 0, retiring = 0;
  for (const Closing& waiting : closing_)
    if (waiting.sequence == index) {
      closings += waiting.closes;
      retiring += static_cast<int64_t>(waiting.pages.size());
    }
  demand(retiring == s.retiring, "sequence", index, "{} pages retire, counted as {}", retiring, s.retiring);
  demand(options_.window == 0 || held(s) <= s.promised, "sequence", index, "{} pages, and {} are promised", held(s),
         s.promised);
  demand(closings == (s.is_closing ? 1 : 0), "sequence", index, "it is closing {} times", closings);
  if (!s.is_open) return demand(s.table.empty(), "sequence", index, "not open, and it has a table");
  demand(std::all_of(s.table.begin(), s.table.begin() + s.dropped, [](int32_t page) { return page == kNoPage; }),
         "sequence", index, "it has one of the {} pages that it gave back", s.dropped);
  std::vector<int32_t> sorted(s.table.begin() + s.dropped, s.table.end());
  std::ranges::sort(sorted);
  demand(sorted.empty() || sorted.front() >= 0, "sequence", index, "no page stands behind those that it gave back");
  demand(std::ranges::adjacent_find(sorted) == sorted.end(), "sequence", index, "a page stands in its table twice");
  demand(pages_for(s.known) <= static_cast<int64_t>(s.table.size()), "sequence", index, "{} tokens in {} pages",
         s.known, s.table.size());
  for (int64_t i = s.dropped; i < s.offered; ++i) {
    const Page& p = page(s.table[static_cast<size_t>(i)]);
    const int32_t before = i == 0 ? -1 : s.table[static_cast<size_t>(i - 1)];
    demand(p.is_offered && (before == kNoPage ? i == 0 || p.parent >= 0 : p.parent == before), "sequence", index,
           "its page {} does not continue the one before it", i);
  }
  if (!s.offers) return;
  demand(s.offered == s.known / options_.page_tokens &&
             static_cast<int64_t>(s.tail.size()) == s.known % options_.page_tokens,
         "sequence", index, "{} tokens known, {} pages offered, {} in the tail", s.known, s.offered, s.tail.size());
}

}  // namespace nodewright
