#include "engine/cache/window_pages.h"

#include <fmt/format.h>

#include "runtime/error.h"

namespace nodewright {

WindowPages::WindowPages(const WindowPagesOptions& options)
    : options_(options),
      pages_(pages_of(options)),
      records_(static_cast<size_t>(pages_.total())),
      of_twin_(options.window > 0 ? static_cast<size_t>(options.twins) : 0, -1),
      sequences_(options.window > 0 ? static_cast<size_t>(options.sequences) : 0) {}

// A launch reads the window before its first token and writes a chunk. What it does not read of the launch before it,
// at most a chunk, waits for that one; a page is copied before it is left. One launch at most is in flight when another
// takes pages.
int64_t WindowPages::most_pages(const WindowPagesOptions& options) {
  const auto touched = [&options](int64_t tokens) {
    return (tokens - 1 + options.page_tokens - 1) / options.page_tokens + 1;
  };
  const int64_t chunk = std::max(options.chunk, options.page_tokens);
  const int64_t all = (options.longest + options.page_tokens - 1) / options.page_tokens + 1;
  return std::min(all, touched(options.window - 1 + chunk) + touched(chunk) + 1);
}

int64_t WindowPages::usable(std::span<const int32_t> prompt, int64_t tokens) const {
  int64_t best = 0, run = 0;  // run: pages up to here that have twins, one after the other
  for (int64_t n = 1; n <= static_cast<int64_t>(prompt.size()); ++n) {
    run = of_twin_[static_cast<size_t>(prompt[static_cast<size_t>(n - 1)])] >= 0 ? run + 1 : 0;
    if (first_page(std::min(n * options_.page_tokens, tokens - 1)) >= n - run) best = n;
  }
  return best;
}

void WindowPages::open(int32_t sequence, std::span<const int32_t> prompt, int64_t start) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  s = {};
  s.dropped = std::min(first_page(start), static_cast<int64_t>(prompt.size()));
  s.table.assign(static_cast<size_t>(s.dropped), kNoPage);
  for (const int32_t twin : prompt.subspan(static_cast<size_t>(s.dropped))) {
    s.table.push_back(of_twin_[static_cast<size_t>(twin)]);
    own(s.table.back());
  }
}

void WindowPages::fork(int32_t sequence, int32_t like, int64_t start) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  s = {};
  const auto begin = sequence_at(like).table.begin();
  s.table.assign(begin, begin + (start + options_.page_tokens - 1) / options_.page_tokens);
  s.dropped = std::min(first_page(start), static_cast<int64_t>(s.table.size()));
  std::fill_n(s.table.begin(), s.dropped, kNoPage);
  std::for_each(s.table.begin() + s.dropped, s.table.end(), [this](int32_t index) { own(index); });
}

std::vector<std::pair<int32_t, int32_t>> WindowPages::reserve(int32_t sequence, int64_t first, int64_t end,
                                                              uint64_t launched) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  if (first < s.dropped * options_.page_tokens)
    throw Error({.doing = "reserve pages of windowed layers for sequence",
                 .object = std::to_string(sequence),
                 .detail = fmt::format("position {}, and its first {} pages are given back", first, s.dropped)});
  for (const int64_t before = std::min(first_page(first), static_cast<int64_t>(s.table.size())); s.dropped < before;
       ++s.dropped)
    retire(sequence, std::exchange(s.table[static_cast<size_t>(s.dropped)], kNoPage), launched);

  std::vector<std::pair<int32_t, int32_t>> copies;
  std::vector<int32_t> left;
  for (auto i = static_cast<size_t>(first / options_.page_tokens); i < s.table.size(); ++i) {
    const int32_t old = s.table[i];
    if (page(old).owners == 1 && page(old).twin < 0) continue;  // nobody else reads it or may ask for it
    s.table[i] = take();
    own(s.table[i]);
    s.changed = std::min(s.changed, static_cast<int64_t>(i));
    if (static_cast<int64_t>(i) * options_.page_tokens < first) copies.emplace_back(old, s.table[i]);
    left.push_back(old);
  }
  while (static_cast<int64_t>(s.table.size()) * options_.page_tokens < end) {
    s.table.push_back(take());
    own(s.table.back());
  }
  for (const int32_t old : left) disown(old);  // only now, or take() could hand them out before they are copied
  return copies;
}

void WindowPages::offer(int32_t sequence, int64_t index, int32_t twin) {
  const Sequence& s = sequence_at(sequence);
  if (index < s.dropped || of_twin_[static_cast<size_t>(twin)] >= 0) return;
  const int32_t mine = s.table[static_cast<size_t>(index)];
  if (page(mine).twin >= 0) return;
  page(mine).twin = twin;
  of_twin_[static_cast<size_t>(twin)] = mine;
}

void WindowPages::withdraw(int32_t twin) {
  if (!is_used()) return;
  const int32_t index = std::exchange(of_twin_[static_cast<size_t>(twin)], -1);
  if (index < 0) return;
  page(index).twin = -1;
  if (page(index).owners > 0) return;
  cached_.erase({page(index).last_use, index});
  pages_.give_back(index);
}

void WindowPages::close(int32_t sequence, uint64_t launched) {
  if (!is_used()) return;
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  for (auto i = static_cast<size_t>(s.dropped); i < s.table.size(); ++i) retire(sequence, s.table[i], launched);
  s.table.clear();
  s.dropped = s.changed = 0;
}

void WindowPages::retire(int32_t sequence, int32_t index, uint64_t launched) {
  ++sequences_[static_cast<size_t>(sequence)].retiring;
  closing_.push_back({launched, sequence, index});
}

void WindowPages::release(uint64_t completed) {
  for (; !closing_.empty() && closing_.front().launch <= completed; closing_.pop_front()) {
    --sequences_[static_cast<size_t>(closing_.front().sequence)].retiring;
    disown(closing_.front().page);
  }
}

void WindowPages::revoked(uint64_t launched) {
  for (Closing& waiting : closing_) waiting.launch = std::min(waiting.launch, launched);
}

int64_t WindowPages::take_changed(int32_t sequence) {
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  return std::max(s.dropped, std::exchange(s.changed, static_cast<int64_t>(s.table.size())));
}

void WindowPages::set_changed(int32_t sequence, int64_t first) {
  if (!is_used()) return;
  Sequence& s = sequences_[static_cast<size_t>(sequence)];
  s.changed = std::min(s.changed, first);
}

int64_t WindowPages::held(int32_t sequence) const {
  const Sequence& s = sequence_at(sequence);
  return static_cast<int64_t>(s.table.size()) - s.dropped + s.retiring;
}

// There is always one: of as many pages as all sequences may hold, the others are cached.
int32_t WindowPages::take() {
  if (const std::optional<int32_t> free = pages_.take()) return *free;
  if (cached_.empty())
    throw Error({.doing = "take a page of windowed layers",
                 .detail = fmt::format("all {} are held by sequences", pages_.total())});
  withdraw(page(cached_.begin()->second).twin);
  return *pages_.take();
}

void WindowPages::own(int32_t index) {
  Page& p = page(index);
  if (p.owners++ == 0 && p.twin >= 0) cached_.erase({p.last_use, index});
}

void WindowPages::disown(int32_t index) {
  Page& p = page(index);
  if (--p.owners > 0) return;
  if (p.twin < 0) return pages_.give_back(index);
  p.last_use = ++uses_;
  cached_.insert({p.last_use, index});
}

void WindowPages::check() const {
  const auto demand = [](bool holds, const char* kind, int64_t number, const std::string& detail) {
    if (!holds)
      throw Error({.doing = "balance the ledger of windowed layers' pages",
                   .object = fmt::format("{} {}", kind, number),
                   .detail = detail});
  };
  std::vector<int32_t> owners(records_.size(), 0);
  std::vector<int64_t> retiring(sequences_.size(), 0);
  for (const Closing& waiting : closing_) {
    ++owners[static_cast<size_t>(waiting.page)];
    ++retiring[static_cast<size_t>(waiting.sequence)];
  }
  for (size_t i = 0; i < sequences_.size(); ++i) {
    const Sequence& s = sequences_[i];
    const auto sequence = static_cast<int64_t>(i);
    demand(s.retiring == retiring[i], "sequence", sequence,
           fmt::format("{} pages retire, counted as {}", retiring[i], s.retiring));
    demand(held(static_cast<int32_t>(i)) <= most_pages(options_), "sequence", sequence,
           fmt::format("it holds {} pages", held(static_cast<int32_t>(i))));
    for (int64_t n = 0; n < static_cast<int64_t>(s.table.size()); ++n) {
      const int32_t index = s.table[static_cast<size_t>(n)];
      demand((index == kNoPage) == (n < s.dropped), "sequence", sequence,
             fmt::format("its page {} is {}, and {} were given back", n, index, s.dropped));
      if (index != kNoPage) ++owners[static_cast<size_t>(index)];
    }
  }
  size_t cached = 0, twins = 0;
  for (int32_t index = 0; index < pages_.total(); ++index) {
    const Page& p = page(index);
    demand(p.owners == owners[static_cast<size_t>(index)], "page", index,
           fmt::format("{} owners, in {} tables", p.owners, owners[static_cast<size_t>(index)]));
    demand(pages_.is_taken(index) == (p.owners > 0 || p.twin >= 0), "page", index, "the free list is wrong");
    demand(p.twin < 0 || of_twin_[static_cast<size_t>(p.twin)] == index, "page", index, "its twin has another");
    demand(cached_.contains({p.last_use, index}) == (p.owners == 0 && p.twin >= 0), "page", index,
           fmt::format("{} owners, wrongly listed for eviction", p.owners));
    cached += p.owners == 0 && p.twin >= 0;
    twins += p.twin >= 0;
  }
  demand(cached == cached_.size(), "cached pages", static_cast<int64_t>(cached), "counted as others");
  demand(twins == static_cast<size_t>(std::ranges::count_if(of_twin_, [](int32_t page) { return page >= 0; })), "twins",
         static_cast<int64_t>(twins), "and others say so, too");
}

}  // namespace nodewright
