#include "engine/cache/kv_pool.h"

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
  refuse("window", options.window, 0);
  refuse("side window", options.side_window, 0);
  if (options.window > 0 || options.side_window > 0) refuse("chunk", options.chunk, 1);
  if (options.side_window > 0) refuse("longest", options.longest, 1);
  if (options.pages > std::numeric_limits<int32_t>::max())
    throw Error({.doing = "make a pool of pages",
                 .object = "pages",
                 .detail = fmt::format("{} exceed the 32 bits of a page table's entry", options.pages)});
  return options;
}

WindowPagesOptions side_of(const KvPoolOptions& options) {
  return {.window = options.side_window,
          .chunk = options.chunk,
          .page_tokens = options.page_tokens,
          .longest = options.longest,
          .sequences = options.sequences,
          .twins = options.pages};
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
      pages_(options.pages, options.page_events),
      window_(side_of(options)),
      sequences_(static_cast<size_t>(options.sequences)) {
  // A page is offered after the one before it, which a shorter window may have left by then.
  if (options_.window > 0 && options_.window < 2 * options_.page_tokens) options_.prefix_cache = false;
}

// Pages that `tokens` successive positions touch at most: the first may be the last one of its page. A launch reads the
// window before its first token. A chunk that is alone in flight waits for nothing that is given back. One that follows
// another waits for the pages that it left, as many as a chunk has, and for as many that were merged; a decoding
// sequence for one of each.
int64_t KvPool::window_pages(const KvPoolOptions& options) {
  const auto touched = [&options](int64_t tokens) {
    return (tokens - 1 + options.page_tokens - 1) / options.page_tokens + 1;
  };
  const int64_t of_chunks = options.chunks_follow
                                ? touched(options.window - 1 + 2 * options.chunk) + touched(options.chunk)
                                : touched(options.window - 1 + options.chunk);
  return std::max(of_chunks, touched(options.window) + 2);
}

// Growing

std::optional<std::vector<PageCopy>> KvPool::reserve(int32_t sequence, int64_t first, int64_t end) {
  // After what is known nothing is shared or on offer: where pages suffice, nothing is to be looked at but the window.
  std::optional<std::vector<PageCopy>> copies(std::in_place);
  if (!window_.is_used() || first < known(sequence) || missing(sequence, end) > 0)
    copies = reserve_pages(sequence, first, end);
  if (copies) reserve_window(sequence, first, end, *copies);
  return copies;
}

void KvPool::reserve_window(int32_t sequence, int64_t first, int64_t end, std::vector<PageCopy>& copies) {
  if (!window_.is_used()) return;
  for (const auto& [from, to] : window_.reserve(sequence, first, end, launched_)) copies.push_back({from, to, 1});
  release_completed();
}

std::optional<std::vector<PageCopy>> KvPool::reserve_pages(int32_t sequence, int64_t first, int64_t end) {
  Sequence& s = open_at(sequence);
  if (first < 0 || first > end)
    throw Error({.doing = "reserve pages for sequence",
                 .object = std::to_string(sequence),
                 .detail = fmt::format("positions {} to {}", first, end)});
  if (first < s.dropped * options_.page_tokens)
    throw Error({.doing = "reserve pages for sequence",
                 .object = std::to_string(sequence),
                 .detail = fmt::format("position {}, and its first {} pages are given back", first, s.dropped)});
  std::vector<size_t> replaced;  // entries from `first` on whose pages others read or may ask for
  for (auto i = static_cast<size_t>(first / options_.page_tokens); i < s.table.size(); ++i)
    if (pages_.at(s.table[i]).owners > 1 || pages_.at(s.table[i]).is_offered) replaced.push_back(i);
  const int64_t fresh = std::max<int64_t>(0, pages_for(end) - static_cast<int64_t>(s.table.size()));
  if (options_.window > 0) {
    const int64_t more = missing(sequence, end);
    if (more > available()) return std::nullopt;
    s.promised += more;
    drop_before(sequence, first - options_.window + 1);
    if (held(s) + fresh + static_cast<int64_t>(replaced.size()) > s.promised)
      throw Error({.doing = "reserve pages for sequence",
                   .object = std::to_string(sequence),
                   .detail = fmt::format("positions {} to {} need {} pages beside {}, and {} are promised", first, end,
                                         fresh + static_cast<int64_t>(replaced.size()), held(s), s.promised)});
  } else if (fresh + static_cast<int64_t>(replaced.size()) > available()) {
    return std::nullopt;
  }

  forget_from(s, first);
  std::vector<int32_t> left;
  std::vector<PageCopy> copies;
  for (size_t i : replaced) {
    s.changed = std::min(s.changed, static_cast<int64_t>(i));
    left.push_back(std::exchange(s.table[i], take_page()));
    pages_.own(s.table[i]);
    if (static_cast<int64_t>(i) * options_.page_tokens < first) copies.push_back({left.back(), s.table[i]});
  }
  for (int64_t i = 0; i < fresh; ++i) {
    s.table.push_back(take_page());
    pages_.own(s.table.back());
  }
  // Only now, or take_page() could hand them out; continuations first.
  for (auto last = left.rbegin(); last != left.rend(); ++last) pages_.disown(*last);
  stats_.copied_pages += static_cast<int64_t>(copies.size());
  return copies;
}

int64_t KvPool::missing(int32_t sequence, int64_t end) const {
  const Sequence& s = at(sequence);
  const int64_t has = options_.window > 0 ? s.promised : static_cast<int64_t>(s.table.size());
  return std::max<int64_t>(0, most_pages(end) - has);
}

int64_t KvPool::available() const {
  return options_.window > 0 ? pages_.total() - promised() : free_pages() + cached_pages();
}

int64_t KvPool::promised() const {
  int64_t sum = 0;
  for (const Sequence& s : sequences_) sum += s.promised;
  return sum;
}

// No launch from now on reads what is before `first`. A sequence that is promised all its pages keeps them; the last
// page that is offered stays, since the next one will be offered after it.
void KvPool::drop_before(int32_t sequence, int64_t first) {
  Sequence& s = open_at(sequence);
  if (s.promised < window_pages(options_)) return;
  int64_t end = std::max<int64_t>(0, first) / options_.page_tokens;
  if (s.offers) end = std::min(end, s.offered - 1);
  if (end <= s.dropped) return;
  const auto from = s.table.begin() + s.dropped, to = s.table.begin() + end;
  std::vector<int32_t> pages(from, to);
  std::fill(from, to, kNoPage);
  s.dropped = end;
  retire(sequence, std::move(pages));
}

// The sequence no longer knows the tokens at `first` and after. Offered pages among them stay offered.
void KvPool::forget_from(Sequence& s, int64_t first) {
  if (first >= s.known) return;
  s.known = first;
  if (!s.offers) return;
  const int64_t full = first / options_.page_tokens;
  if (full < s.offered) s.tail = pages_.at(s.table[static_cast<size_t>(full)]).tokens;
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
    ++s.known;
    if (!s.offers) continue;
    s.tail.push_back(token);
    if (static_cast<int64_t>(s.tail.size()) == options_.page_tokens) offer_full_page(s);
  }
}

void KvPool::offer_full_page(Sequence& s) {
  int32_t& mine = s.table[static_cast<size_t>(s.offered)];
  const int32_t parent = s.offered == 0 ? SharedPages::root(s.adapter) : s.table[static_cast<size_t>(s.offered - 1)];
  const uint64_t hash = options_.hash(parent < 0 ? root_hash(s.adapter) : pages_.at(parent).hash, s.tail);
  const int32_t equal = pages_.find(hash, parent, s.tail);
  // Where all its pages are promised and no more, another launch may need one before `mine` is free.
  if (equal >= 0 && options_.window > 0 && s.promised < window_pages(options_) && launched_ > completed_ + 1) {
    s.offers = false;
    s.tail.clear();
    return;
  }
  if (equal >= 0) {  // launches in flight go on reading `mine`
    pages_.own(equal);
    s.changed = std::min(s.changed, s.offered);
    const auto sequence = static_cast<int32_t>(&s - sequences_.data());
    retire(sequence, {std::exchange(mine, equal)});
    ++stats_.merged_pages;
  } else {
    pages_.offer(mine, parent, hash, s.tail);
  }
  if (window_.is_used())
    window_.offer(static_cast<int32_t>(&s - sequences_.data()), s.offered, s.table[static_cast<size_t>(s.offered)]);
  ++s.offered;
  s.tail.clear();
}

// Closing

void KvPool::close(int32_t sequence) {
  Sequence& s = open_at(sequence);
  std::vector<int32_t> pages(s.table.begin() + s.dropped, s.table.end());
  s = {.is_closing = true, .promised = options_.window > 0 ? held(s) : 0, .retiring = s.retiring};
  window_.close(sequence, launched_);
  retire(sequence, std::move(pages), true);
}

void KvPool::close_and_forget(int32_t sequence) {
  const Sequence& s = at(sequence);
  if (s.offered > s.dropped) {  // what it gave back, too
    std::vector<int32_t> withdrawn;
    pages_.withdraw_chain(s.table[static_cast<size_t>(s.dropped)], withdrawn);
    for (const int32_t index : withdrawn) window_.withdraw(index);
  }
  stop_offering_withdrawn();
  close(sequence);
}

void KvPool::retire(int32_t sequence, std::vector<int32_t> pages, bool closes) {
  sequences_[static_cast<size_t>(sequence)].retiring += static_cast<int64_t>(pages.size());
  closing_.push_back({launched_, sequence, closes, std::move(pages)});
  release_completed();
}

void KvPool::release_completed() {
  window_.release(completed_);
  for (; !closing_.empty() && closing_.front().launch <= completed_; closing_.pop_front()) {
    const Closing& done = closing_.front();
    for (auto last = done.pages.rbegin(); last != done.pages.rend(); ++last) pages_.disown(*last);
    Sequence& s = sequences_[static_cast<size_t>(done.sequence)];
    s.retiring -= static_cast<int64_t>(done.pages.size());
    if (done.closes) s = {};
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
  window_.revoked(launched_);
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
  for (int32_t index = 0; index < pages_.total(); ++index) window_.withdraw(index);
  pages_.withdraw_all();
  for (Sequence& s : sequences_) s.offers = false;
  stop_offering_withdrawn();
}

int32_t KvPool::take_page() {
  std::vector<int32_t> withdrawn;
  const int32_t taken = pages_.take(withdrawn);
  if (withdrawn.empty()) return taken;
  ++stats_.evicted_pages;
  for (const int32_t index : withdrawn) window_.withdraw(index);
  if (withdrawn.size() > 1) stop_offering_withdrawn();
  return taken;
}

// A sequence whose pages were withdrawn has no parent to offer its next page after.
void KvPool::stop_offering_withdrawn() {
  for (Sequence& s : sequences_) {
    if (s.offered <= s.dropped) continue;
    const auto first = s.table.begin() + s.dropped, last = s.table.begin() + s.offered;
    const auto withdrawn = std::find_if(first, last, [&](int32_t index) { return !pages_.at(index).is_offered; });
    if (withdrawn != last) s.offers = false;
    s.offered = withdrawn - s.table.begin();
  }
}

// Tables

int64_t KvPool::take_changed(int32_t sequence, int64_t group) {
  Sequence& s = open_at(sequence);
  if (group == 1) return window_.take_changed(sequence);
  return std::exchange(s.changed, static_cast<int64_t>(s.table.size()));
}

void KvPool::set_changed(int32_t sequence, int64_t first, int64_t group) {
  Sequence& s = open_at(sequence);
  if (group == 1) return window_.set_changed(sequence, first);
  s.changed = std::min(s.changed, first);
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

const SharedPages::Page& KvPool::page_at(int32_t index) const {
  if (index < 0 || index >= pages_.total())
    throw Error({.doing = "look at page",
                 .object = std::to_string(index),
                 .detail = fmt::format("there are {}", pages_.total())});
  return pages_.at(index);
}

PageState KvPool::state_of(int32_t page) const {
  page_at(page);
  return pages_.state_of(page);
}

int32_t KvPool::sequences_in_use() const {
  return static_cast<int32_t>(
      std::ranges::count_if(sequences_, [](const Sequence& s) { return s.is_open || s.is_closing; }));
}

int32_t KvPool::sequences_closing() const {
  return static_cast<int32_t>(std::ranges::count_if(sequences_, [](const Sequence& s) { return s.is_closing; }));
}

}  // namespace nodewright
