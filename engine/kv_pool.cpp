#include "engine/kv_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

const KvPoolOptions& checked(const KvPoolOptions& options) {
  const auto refuse = [](const char* name, int64_t value, int64_t least) {
    if (value < least)
      throw Error(
          {.doing = "make a pool of pages", .object = name, .detail = fmt::format("{} is below {}", value, least)});
  };
  refuse("pages", options.pages, 0);
  refuse("page tokens", options.page_tokens, 1);
  refuse("sequences", options.sequences, 1);
  if (options.pages > std::numeric_limits<int32_t>::max())
    throw Error({.doing = "make a pool of pages",
                 .object = "pages",
                 .detail = fmt::format("{} exceed the 32 bits of a page table's entry", options.pages)});
  return options;
}

}  // namespace

uint64_t chained_page_hash(uint64_t parent, std::span<const int32_t> tokens) {
  // The step of SplitMix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014) for each token.
  uint64_t hash = parent;
  for (int32_t token : tokens) {
    hash = (hash ^ static_cast<uint32_t>(token)) + 0x9e3779b97f4a7c15;
    hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
    hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
    hash ^= hash >> 31;
  }
  return hash;
}

KvPool::KvPool(const KvPoolOptions& options)
    : options_(checked(options)),
      pages_(options.pages),
      page_records_(static_cast<size_t>(options.pages)),
      sequences_(static_cast<size_t>(options.sequences)) {}

// Opening

std::optional<KvPool::Opened> KvPool::open(std::span<const int32_t> prompt, int64_t length, bool finds) {
  Match found = match(prompt, length, finds);
  const auto closed =
      std::find_if(sequences_.begin(), sequences_.end(), [](const Sequence& s) { return !s.is_open && !s.is_closing; });
  if (closed == sequences_.end() || !found.fits) return std::nullopt;
  Sequence& s = *closed;
  s = {.is_open = true, .offers = options_.prefix_cache};
  for (int32_t index : found.pages) own(index);
  s.offered = static_cast<int64_t>(found.pages.size());
  s.known = s.offered * options_.page_tokens;
  s.table = std::move(found.pages);
  stats_.prompt_tokens += static_cast<int64_t>(prompt.size());
  stats_.found_tokens += found.start;
  const auto sequence = static_cast<int32_t>(closed - sequences_.begin());
  return Opened{sequence, found.start, *reserve(sequence, found.start, length)};
}

std::string KvPool::why_not_open(std::span<const int32_t> prompt, int64_t length, bool finds) const {
  if (sequences_in_use() == options_.sequences) return fmt::format("all {} sequences are in use", options_.sequences);
  const Match found = match(prompt, length, finds);
  if (found.fits) return "";
  return fmt::format("{} tokens need {} more pages, and {} of {} are free or cached", length, found.needed,
                     found.available, pages_.total());
}

// The longest chain of offered pages that the prompt begins with, and whether the rest fits beside it.
KvPool::Match KvPool::match(std::span<const int32_t> prompt, int64_t length, bool finds) const {
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt.empty() || length < prompt_tokens)
    throw Error({.doing = "open a sequence",
                 .detail = fmt::format("a prompt of {} tokens in {} positions", prompt_tokens, length)});
  std::vector<int32_t> pages;
  uint64_t hash = 0;
  const auto page_tokens = static_cast<size_t>(options_.page_tokens);
  finds = finds && options_.prefix_cache;
  for (auto rest = prompt; finds && rest.size() >= page_tokens; rest = rest.subspan(page_tokens)) {
    hash = options_.hash(hash, rest.first(page_tokens));
    const int32_t next = offered_page(hash, pages.empty() ? -1 : pages.back(), rest.first(page_tokens));
    if (next < 0) break;
    pages.push_back(next);
  }
  Match whole = weigh(pages, prompt_tokens, length);
  if (whole.fits || static_cast<int64_t>(pages.size()) * options_.page_tokens < prompt_tokens) return whole;
  pages.pop_back();  // computed anew instead of copied: needs a page less, or none when the last one can be evicted
  return weigh(std::move(pages), prompt_tokens, length);
}

KvPool::Match KvPool::weigh(std::vector<int32_t> pages, int64_t prompt_tokens, int64_t length) const {
  Match found{.pages = std::move(pages)};
  const auto matched = static_cast<int64_t>(found.pages.size());
  // The last token is always computed: its logits choose the first output.
  found.start = std::min(matched * options_.page_tokens, prompt_tokens - 1);
  const bool copies = found.start < matched * options_.page_tokens;
  const auto cached = std::count_if(found.pages.begin(), found.pages.end(), [&](int32_t p) { return !page(p).owners; });
  found.needed = pages_for(length) - matched + (copies ? 1 : 0);
  found.available = free_pages() + cached_ - cached;
  found.fits = found.needed <= found.available;
  return found;
}

// Or -1. Equal tokens behind the same page, not only an equal hash.
int32_t KvPool::offered_page(uint64_t hash, int32_t parent, std::span<const int32_t> tokens) const {
  const auto [first, last] = offers_.equal_range(hash);
  const auto found = std::find_if(first, last, [&](const auto& entry) {
    const Page& p = page(entry.second);
    return p.parent == parent && std::ranges::equal(p.tokens, tokens);
  });
  return found == last ? -1 : found->second;
}

// Growing

std::optional<std::vector<PageCopy>> KvPool::reserve(int32_t sequence, int64_t first, int64_t end) {
  Sequence& s = open_at(sequence);
  if (first < 0 || first > end)
    throw Error({.doing = "reserve pages for sequence",
                 .object = std::to_string(sequence),
                 .detail = fmt::format("positions {} to {}", first, end)});
  const auto held = static_cast<int64_t>(s.table.size());
  std::vector<size_t> replaced;  // entries from `first` on whose pages others read or may ask for
  for (auto i = static_cast<size_t>(first / options_.page_tokens); i < s.table.size(); ++i)
    if (page(s.table[i]).owners > 1 || page(s.table[i]).is_offered) replaced.push_back(i);
  const int64_t fresh = std::max<int64_t>(0, pages_for(end) - held);
  if (fresh + static_cast<int64_t>(replaced.size()) > free_pages() + cached_) return std::nullopt;

  forget_from(s, first);
  std::vector<int32_t> left;
  std::vector<PageCopy> copies;
  for (size_t i : replaced) {
    left.push_back(std::exchange(s.table[i], take_page()));
    own(s.table[i]);
    if (static_cast<int64_t>(i) * options_.page_tokens < first) copies.push_back({left.back(), s.table[i]});
  }
  for (int64_t i = 0; i < fresh; ++i) {
    s.table.push_back(take_page());
    own(s.table.back());
  }
  // Only now, or take_page() could hand them out; continuations first.
  for (auto last = left.rbegin(); last != left.rend(); ++last) disown(*last);
  stats_.copied_pages += static_cast<int64_t>(copies.size());
  return copies;
}

// The sequence no longer knows the tokens at `first` and behind. Offered pages among them stay offered.
void KvPool::forget_from(Sequence& s, int64_t first) {
  if (first >= s.known) return;
  s.known = first;
  if (!s.offers) return;
  const int64_t full = first / options_.page_tokens;
  if (full < s.offered) s.tail = page(s.table[static_cast<size_t>(full)]).tokens;
  s.tail.resize(static_cast<size_t>(first % options_.page_tokens));
  s.offered = std::min(s.offered, full);
}

void KvPool::append(int32_t sequence, std::span<const int32_t> tokens) {
  Sequence& s = open_at(sequence);
  const auto added = static_cast<int64_t>(tokens.size());
  if (pages_for(s.known + added) > static_cast<int64_t>(s.table.size()))
    throw Error(
        {.doing = "append to sequence",
         .object = std::to_string(sequence),
         .detail = fmt::format("{} tokens after {} need more than its {} pages", added, s.known, s.table.size())});
  if (!s.offers) {
    s.known += added;
    return;
  }
  for (int32_t token : tokens) {
    s.tail.push_back(token);
    ++s.known;
    if (static_cast<int64_t>(s.tail.size()) == options_.page_tokens) offer_full_page(s);
  }
}

void KvPool::offer_full_page(Sequence& s) {
  int32_t& mine = s.table[static_cast<size_t>(s.offered)];
  const int32_t parent = s.offered == 0 ? -1 : s.table[static_cast<size_t>(s.offered - 1)];
  const uint64_t hash = options_.hash(parent < 0 ? 0 : page(parent).hash, s.tail);
  const int32_t equal = offered_page(hash, parent, s.tail);
  if (equal >= 0) {  // launches in flight go on reading `mine`
    own(equal);
    retire(-1, {std::exchange(mine, equal)});
    ++stats_.merged_pages;
  } else {
    Page& p = page(mine);
    p.is_offered = true;
    p.parent = parent;
    p.continuations = 0;
    p.hash = hash;
    p.tokens = s.tail;
    if (parent >= 0) ++page(parent).continuations;
    offers_.emplace(hash, mine);
  }
  ++s.offered;
  s.tail.clear();
}

// Closing

void KvPool::close(int32_t sequence) {
  Sequence& s = open_at(sequence);
  std::vector<int32_t> pages = std::move(s.table);
  s = {.is_closing = true};
  retire(sequence, std::move(pages));
}

void KvPool::close_and_forget(int32_t sequence) {
  const Sequence& s = at(sequence);
  for (int32_t index : s.table)
    if (page(index).is_offered) withdraw_with_continuations(index);
  stop_offering_withdrawn();
  close(sequence);
}

void KvPool::retire(int32_t sequence, std::vector<int32_t> pages) {
  closing_.push_back({launched_, sequence, std::move(pages)});
  release_completed();
}

void KvPool::release_completed() {
  for (; !closing_.empty() && closing_.front().launch <= completed_; closing_.pop_front()) {
    const Closing& done = closing_.front();
    for (auto last = done.pages.rbegin(); last != done.pages.rend(); ++last) disown(*last);
    if (done.sequence >= 0) sequences_[static_cast<size_t>(done.sequence)] = {};
  }
}

void KvPool::launched(uint64_t launch) {
  if (launch != launched_ + 1)
    throw Error({.doing = "count launch",
                 .object = std::to_string(launch),
                 .detail = fmt::format("the last one was {}", launched_)});
  launched_ = launch;
}

void KvPool::revoked(uint64_t launch) {
  if (launch != launched_ || launch <= completed_)
    throw Error({.doing = "revoke launch",
                 .object = std::to_string(launch),
                 .detail = fmt::format("the last one was {}, and {} has completed", launched_, completed_)});
  --launched_;
  for (Closing& waiting : closing_) waiting.launch = std::min(waiting.launch, launched_);
  release_completed();
}

void KvPool::completed(uint64_t launch) {
  if (launch < completed_ || launch > launched_)
    throw Error({.doing = "complete launch",
                 .object = std::to_string(launch),
                 .detail = fmt::format("the last one was {}, and {} has completed", launched_, completed_)});
  completed_ = launch;
  release_completed();
}

void KvPool::drop_cache() {
  offers_.clear();
  evictable_.clear();
  cached_ = 0;
  for (int32_t index = 0; index < pages_.total(); ++index)
    if (std::exchange(page(index).is_offered, false) && page(index).owners == 0) pages_.give_back(index);
  for (Sequence& s : sequences_) s.offers = false;
  stop_offering_withdrawn();
}

// Pages

int32_t KvPool::take_page() {
  if (const std::optional<int32_t> free = pages_.take()) return *free;
  withdraw(
      evictable_.begin()->second);  // every cached page is evictable once its continuations are: they are cached too
  ++stats_.evicted_pages;
  return *pages_.take();
}

void KvPool::own(int32_t index) {
  Page& p = page(index);
  if (p.owners++ > 0 || !p.is_offered) return;
  --cached_;
  evictable_.erase({p.last_use, index});
}

void KvPool::disown(int32_t index) {
  Page& p = page(index);
  if (--p.owners > 0) return;
  if (!p.is_offered) return pages_.give_back(index);
  ++cached_;
  p.last_use = ++uses_;
  if (p.continuations == 0) evictable_.insert({p.last_use, index});
}

// Of an offered page without continuations.
void KvPool::withdraw(int32_t index) {
  Page& p = page(index);
  const auto [first, last] = offers_.equal_range(p.hash);
  offers_.erase(std::find_if(first, last, [index](const auto& entry) { return entry.second == index; }));
  if (p.parent >= 0) {
    Page& parent = page(p.parent);
    if (--parent.continuations == 0 && parent.owners == 0) evictable_.insert({parent.last_use, p.parent});
  }
  p.is_offered = false;
  if (p.owners > 0) return;
  evictable_.erase({p.last_use, index});
  --cached_;
  pages_.give_back(index);
}

void KvPool::withdraw_with_continuations(int32_t index) {
  for (int32_t next = 0; page(index).continuations > 0 && next < pages_.total(); ++next)
    if (page(next).is_offered && page(next).parent == index) withdraw_with_continuations(next);
  withdraw(index);
}

// A sequence whose pages were withdrawn has no parent to offer its next page behind.
void KvPool::stop_offering_withdrawn() {
  for (Sequence& s : sequences_) {
    const auto first = s.table.begin(), last = first + s.offered;
    const auto withdrawn = std::find_if(first, last, [&](int32_t index) { return !page(index).is_offered; });
    if (withdrawn != last) s.offers = false;
    s.offered = withdrawn - first;
  }
}

// Looking

const KvPool::Sequence& KvPool::at(int32_t sequence) const {
  if (!is_open(sequence))
    throw Error({.doing = "use sequence", .object = std::to_string(sequence), .detail = "it is not open"});
  return sequences_[static_cast<size_t>(sequence)];
}

KvPool::Sequence& KvPool::open_at(int32_t sequence) {
  at(sequence);
  return sequences_[static_cast<size_t>(sequence)];
}

bool KvPool::is_open(int32_t sequence) const {
  return sequence >= 0 && sequence < options_.sequences && sequences_[static_cast<size_t>(sequence)].is_open;
}

const KvPool::Page& KvPool::page_at(int32_t index) const {
  if (index < 0 || index >= pages_.total())
    throw Error({.doing = "look at page",
                 .object = std::to_string(index),
                 .detail = fmt::format("there are {}", pages_.total())});
  return page(index);
}

PageState KvPool::state_of(int32_t page) const {
  if (page_at(page).owners > 0) return PageState::owned;
  return pages_.is_taken(page) ? PageState::cached : PageState::free;
}

int32_t KvPool::sequences_in_use() const {
  return static_cast<int32_t>(
      std::ranges::count_if(sequences_, [](const Sequence& s) { return s.is_open || s.is_closing; }));
}

int32_t KvPool::sequences_closing() const {
  return static_cast<int32_t>(std::ranges::count_if(sequences_, [](const Sequence& s) { return s.is_closing; }));
}

}  // namespace nodewright
