// The ledger of a KvPool recounted from its tables, with none of the counters that it keeps.
#include <algorithm>
#include <vector>

#include "engine/cache/kv_pool.h"
#include "engine/cache/ledger_check.h"

namespace nodewright {

void KvPool::check() const {
  window_.check();
  std::vector<int32_t> tables(static_cast<size_t>(pages_.total()), 0);
  for (const Sequence& s : sequences_)
    for (int32_t index : s.table)
      if (index != kNoPage) ++tables[static_cast<size_t>(index)];
  for (const Closing& waiting : closing_)
    for (int32_t index : waiting.pages) ++tables[static_cast<size_t>(index)];

  pages_.check(tables);
  for (int32_t index = 0; index < pages_.total(); ++index) check_page(index);
  for (int32_t index = 0; index < options_.sequences; ++index) check_sequence(index);
  demand_in_ledger(promised() <= pages_.total(), "promises", -1, "{} of {} pages", promised(), pages_.total());
  for (const Closing& waiting : closing_)
    demand_in_ledger(waiting.launch > completed_ && waiting.launch <= launched_, "closing pages", -1,
                     "they wait for launch {} of {}, {} have completed", waiting.launch, launched_, completed_);
}

void KvPool::check_page(int32_t index) const {
  const SharedPages::Page& p = pages_.at(index);
  if (!p.is_offered) return;
  demand_in_ledger(options_.prefix_cache, "page", index, "offered without a prefix cache");
  if (p.parent < 0) return;
  const int32_t owners_before = pages_.at(p.parent).owners;
  demand_in_ledger(options_.window > 0 || owners_before >= p.owners, "page", index,
                   "{} owners, and the page before it has {}", p.owners, owners_before);
}

void KvPool::check_sequence(int32_t index) const {
  const Sequence& s = sequences_[static_cast<size_t>(index)];
  demand_in_ledger(!s.is_open || !s.is_closing, "sequence", index, "open and closing");
  int64_t closings = 0, retiring = 0;
  for (const Closing& waiting : closing_)
    if (waiting.sequence == index) {
      closings += waiting.closes;
      retiring += static_cast<int64_t>(waiting.pages.size());
    }
  demand_in_ledger(retiring == s.retiring, "sequence", index, "{} pages retire, counted as {}", retiring, s.retiring);
  demand_in_ledger(options_.window == 0 || held(s) <= s.promised, "sequence", index, "{} pages, and {} are promised",
                   held(s), s.promised);
  demand_in_ledger(closings == (s.is_closing ? 1 : 0), "sequence", index, "it is closing {} times", closings);
  if (!s.is_open) return demand_in_ledger(s.table.empty(), "sequence", index, "not open, and it has a table");
  demand_in_ledger(
      std::all_of(s.table.begin(), s.table.begin() + s.dropped, [](int32_t page) { return page == kNoPage; }),
      "sequence", index, "it has one of the {} pages that it gave back", s.dropped);
  std::vector<int32_t> sorted(s.table.begin() + s.dropped, s.table.end());
  std::ranges::sort(sorted);
  demand_in_ledger(sorted.empty() || sorted.front() >= 0, "sequence", index,
                   "no page stands behind those that it gave back");
  demand_in_ledger(std::ranges::adjacent_find(sorted) == sorted.end(), "sequence", index,
                   "a page stands in its table twice");
  demand_in_ledger(pages_for(s.known) <= static_cast<int64_t>(s.table.size()), "sequence", index,
                   "{} tokens in {} pages", s.known, s.table.size());
  for (int64_t i = s.dropped; i < s.offered; ++i) {
    const SharedPages::Page& p = pages_.at(s.table[static_cast<size_t>(i)]);
    const int32_t before = i == 0 ? -1 : s.table[static_cast<size_t>(i - 1)];
    demand_in_ledger(p.is_offered && (before == kNoPage ? i == 0 || p.parent >= 0 : p.parent == before), "sequence",
                     index, "its page {} does not continue the one before it", i);
  }
  if (!s.offers) return;
  demand_in_ledger(s.offered == s.known / options_.page_tokens &&
                       static_cast<int64_t>(s.tail.size()) == s.known % options_.page_tokens,
                   "sequence", index, "{} tokens known, {} pages offered, {} in the tail", s.known, s.offered,
                   s.tail.size());
}

}  // namespace nodewright
