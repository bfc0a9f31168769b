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
      pages_(options.pages),
      window_(side_of(options)),
      page_records_(static_cast<size_t>(options.pages)),
      sequences_(static_cast<size_t>(options.sequences)) {
  // A page is offered behind the one before it, which a shorter window may have left by then.
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

// Opening

std::optional<KvPool::Opened> KvPool::open(std::span<const int32_t> prompt, int64_t length, bool finds) {
  Found found{.searches = finds};
  return open(prompt, length, found);
}

KvPool::Sequence* KvPool::closed_sequence() {
  const auto closed = std::ranges::find_if(sequences_, [](const Sequence& s) { return !s.is_open && !s.is_closing; });
  return closed == sequences_.end() ? nullptr : &*closed;
}

std::optional<KvPool::Opened> KvPool::open(std::span<const int32_t> prompt, int64_t length, Found& all) {
  const Match found = match(prompt, length, all);
  Sequence* const closed = closed_sequence();
  if (closed == nullptr || !found.fits) return std::nullopt;
  Sequence& s = *closed;
  s = {.is_open = true, .offers = options_.prefix_cache};
  s.offered = found.pages;
  s.known = s.offered * options_.page_tokens;
  s.table.assign(all.pages.begin(), all.pages.begin() + found.pages);
  if (options_.window > 0) {
    s.promised = found.needed;
    s.dropped = std::max<int64_t>(0, found.start - options_.window + 1) / options_.page_tokens;
    std::fill_n(s.table.begin(), s.dropped, kNoPage);
    length = found.start + 1;  // what is behind it is taken when a launch needs it
  }
  std::for_each(s.table.begin() + s.dropped, s.table.end(), [this](int32_t index) { own(index); });
  stats_.prompt_tokens += static_cast<int64_t>(prompt.size());
  stats_.found_tokens += found.start;
  const auto sequence = static_cast<int32_t>(closed - sequences_.data());
  if (window_.is_used()) window_.open(sequence, s.table, found.start);
  std::vector<PageCopy> copies = *reserve_pages(sequence, found.start, length);
  reserve_window(sequence, found.start, found.start + 1, copies);
  return Opened{sequence, found.start, std::move(copies)};
}

std::string KvPool::why_not_open(std::span<const int32_t> prompt, int64_t length, bool finds, int64_t spare) const {
  Found found{.searches = finds};
  return why_not_open(prompt, length, found, spare);
}

std::string KvPool::why_not_open(std::span<const int32_t> prompt, int64_t length, Found& found, int64_t spare) const {
  return why_short(match(prompt, length, found), length, spare);
}

std::string KvPool::why_short(const Match& found, int64_t length, int64_t spare) const {
  if (sequences_in_use() == options_.sequences) return fmt::format("all {} sequences are in use", options_.sequences);
  if (found.needed + spare <= found.available) return "";
  return fmt::format("{} tokens need {} more pages{}, and {} of {} are {}", length, found.needed,
                     spare > 0 ? fmt::format(" and {} beside them", spare) : "", found.available, pages_.total(),
                     options_.window > 0 ? "promised to none" : "free or cached");
}

// The longest chain of offered pages that the prompt begins with. What was found before holds up to the first page that
// was withdrawn: continuations go first, so that it is looked for from the end.
void KvPool::look_up(std::span<const int32_t> prompt, Found& found) const {
  if (!found.searches || !options_.prefix_cache) return;
  for (; !found.pages.empty() && page(found.pages.back()).offer != found.offers.back(); found.offers.pop_back())
    found.pages.pop_back();
  const auto page_tokens = static_cast<size_t>(options_.page_tokens);
  for (size_t at = found.pages.size(); (at + 1) * page_tokens <= prompt.size(); ++at) {
    const auto tokens = prompt.subspan(at * page_tokens, page_tokens);
    if (at == found.hashes.size()) found.hashes.push_back(options_.hash(at == 0 ? 0 : found.hashes[at - 1], tokens));
    const int32_t next = offered_page(found.hashes[at], at == 0 ? -1 : found.pages[at - 1], tokens);
    if (next < 0) return;
    found.pages.push_back(next);
    found.offers.push_back(page(next).offer);
  }
}

// What of it is used, and whether the rest fits beside it.
KvPool::Match KvPool::match(std::span<const int32_t> prompt, int64_t length, Found& found) const {
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt.empty() || length < prompt_tokens)
    throw Error({.doing = "open a sequence",
                 .detail = fmt::format("a prompt of {} tokens in {} positions", prompt_tokens, length)});
  look_up(prompt, found);
  const std::span<const int32_t> pages = usable(found.pages, prompt_tokens);
  const Match whole = weigh(pages, prompt_tokens, length);
  if (whole.fits || whole.pages * options_.page_tokens < prompt_tokens) return whole;
  // Computed anew instead of copied: needs a page less, or none when the last one can be evicted.
  return weigh(usable(pages.first(pages.size() - 1), prompt_tokens), prompt_tokens, length);
}

// The pages of a prompt from which it can go on in the layers with a window, too.
std::span<const int32_t> KvPool::usable(std::span<const int32_t> pages, int64_t prompt_tokens) const {
  return window_.is_used() ? pages.first(static_cast<size_t>(window_.usable(pages, prompt_tokens))) : pages;
}

KvPool::Match KvPool::weigh(std::span<const int32_t> pages, int64_t prompt_tokens, int64_t length) const {
  const auto matched = static_cast<int64_t>(pages.size());
  Match found{.pages = matched};
  // The last token is always computed: its logits choose the first output.
  found.start = std::min(matched * options_.page_tokens, prompt_tokens - 1);
  const bool copies = found.start < matched * options_.page_tokens;
  if (options_.window > 0) {  // a page that others own, too, is promised to each
    found.needed = std::min(pages_for(length) + (copies ? 1 : 0), window_pages(options_));
    found.available = available();
  } else {
    // Who owns a page owns those before it.
    const auto cached =
        pages.end() - std::ranges::partition_point(pages, [&](int32_t p) { return page(p).owners > 0; });
    found.needed = pages_for(length) - matched + (copies ? 1 : 0);
    found.available = available() - cached;
  }
  found.fits = found.needed <= found.available;
  return found;
}

// Forking

bool KvPool::can_fork(int32_t like, int64_t prompt_tokens) const {
  const Sequence& s = at(like);
  const int64_t start = prompt_tokens - 1;
  if (window_.is_used() && !window_.can_fork(like, start)) return false;
  return s.known >= start && (options_.window == 0 ||
                              s.dropped * options_.page_tokens <= std::max<int64_t>(0, start - options_.window + 1));
}

// The page that is copied is one of the sequence's own.
KvPool::Match KvPool::weigh_fork(int64_t prompt_tokens, int64_t length) const {
  Match found{.pages = (prompt_tokens - 1) / options_.page_tokens, .start = prompt_tokens - 1};
  found.needed =
      options_.window > 0 ? std::min(pages_for(length), window_pages(options_)) : pages_for(length) - found.pages;
  found.available = available();
  found.fits = found.needed <= found.available;
  return found;
}

std::string KvPool::why_not_fork(int64_t prompt_tokens, int64_t length, int64_t spare) const {
  return why_short(weigh_fork(prompt_tokens, length), length, spare);
}

std::optional<KvPool::Opened> KvPool::fork(int32_t like, std::span<const int32_t> prompt, int64_t length) {
  const auto prompt_tokens = static_cast<int64_t>(prompt.size());
  if (prompt.empty() || length < prompt_tokens || !can_fork(like, prompt_tokens))
    throw Error({.doing = "fork sequence",
                 .object = std::to_string(like),
                 .detail = fmt::format("a prompt of {} tokens in {} positions, and it knows {}, {} pages given back",
                                       prompt_tokens, length, at(like).known, at(like).dropped)});
  const Match found = weigh_fork(prompt_tokens, length);
  Sequence* const closed = closed_sequence();
  if (closed == nullptr || !found.fits) return std::nullopt;
  const Sequence& from = at(like);
  Sequence& s = *closed;
  s = {.is_open = true, .offers = options_.prefix_cache && from.offered >= found.pages};
  s.offered = std::min(from.offered, found.pages);
  s.known = found.start;
  if (s.offers) s.tail.assign(prompt.begin() + found.pages * options_.page_tokens, prompt.end() - 1);
  s.table.assign(from.table.begin(), from.table.begin() + pages_for(found.start));
  if (options_.window > 0) {
    s.promised = found.needed;
    s.dropped = std::max<int64_t>(0, found.start - options_.window + 1) / options_.page_tokens;
    std::fill_n(s.table.begin(), s.dropped, kNoPage);
    length = prompt_tokens;
  }
  std::for_each(s.table.begin() + s.dropped, s.table.end(), [this](int32_t index) { own(index); });
  stats_.prompt_tokens += prompt_tokens;
  stats_.found_tokens += found.start;
  ++stats_.forked;
  const auto sequence = static_cast<int32_t>(closed - sequences_.data());
  if (window_.is_used()) window_.fork(sequence, like, found.start);
  std::vector<PageCopy> copies = *reserve_pages(sequence, found.start, length);
  reserve_window(sequence, found.start, found.start + 1, copies);
  return Opened{sequence, found.start, std::move(copies)};
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
  // Behind what is known nothing is shared or on offer: where pages suffice, nothing is to be looked at but the window.
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
    if (page(s.table[i]).owners > 1 || page(s.table[i]).is_offered) replaced.push_back(i);
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

int64_t KvPool::missing(int32_t sequence, int64_t end) const {
  const Sequence& s = at(sequence);
  const int64_t has = options_.window > 0 ? s.promised : static_cast<int64_t>(s.table.size());
  return std::max<int64_t>(0, most_pages(end) - has);
}

int64_t KvPool::available() const { return options_.window > 0 ? pages_.total() - promised() : free_pages() + cached_; }

int64_t KvPool::promised() const {
  int64_t sum = 0;
  for (const Sequence& s : sequences_) sum += s.promised;
  return sum;
}

// No launch from now on reads what is before `first`. A sequence that is promised all its pages keeps them; the last
// page that is offered stays, since the next one will be offered behind it.
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
    ++s.known;
    if (!s.offers) continue;
    s.tail.push_back(token);
    if (static_cast<int64_t>(s.tail.size()) == options_.page_tokens) offer_full_page(s);
  }
}

void KvPool::offer_full_page(Sequence& s) {
  int32_t& mine = s.table[static_cast<size_t>(s.offered)];
  const int32_t parent = s.offered == 0 ? -1 : s.table[static_cast<size_t>(s.offered - 1)];
  const uint64_t hash = options_.hash(parent < 0 ? 0 : page(parent).hash, s.tail);
  const int32_t equal = offered_page(hash, parent, s.tail);
  // Where all its pages are promised and no more, another launch may need one before `mine` is free.
  if (equal >= 0 && options_.window > 0 && s.promised < window_pages(options_) && launched_ > completed_ + 1) {
    s.offers = false;
    s.tail.clear();
    return;
  }
  if (equal >= 0) {  // launches in flight go on reading `mine`
    own(equal);
    s.changed = std::min(s.changed, s.offered);
    const auto sequence = static_cast<int32_t>(&s - sequences_.data());
    retire(sequence, {std::exchange(mine, equal)});
    ++stats_.merged_pages;
  } else {
    Page& p = page(mine);
    p.is_offered = true;
    p.offer = ++offered_;
    p.parent = parent;
    p.hash = hash;
    p.tokens = s.tail;
    if (parent >= 0) link(mine);
    offers_.emplace(hash, mine);
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
    const int32_t first = first_of_chain(s.table[static_cast<size_t>(s.dropped)]);
    if (first >= 0) withdraw_with_continuations(first);
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
    for (auto last = done.pages.rbegin(); last != done.pages.rend(); ++last) disown(*last);
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
  offers_.clear();
  evictable_.clear();
  cached_ = 0;
  oldest_ = newest_ = -1;
  for (int32_t index = 0; index < pages_.total(); ++index) {
    window_.withdraw(index);
    Page& p = page(index);
    p.offer = 0;
    p.continuations = 0;
    p.continuation = -1;
    if (std::exchange(p.is_offered, false) && p.owners == 0) pages_.give_back(index);
  }
  for (Sequence& s : sequences_) s.offers = false;
  stop_offering_withdrawn();
}

// Pages

int32_t KvPool::take_page() {
  if (const std::optional<int32_t> free = pages_.take()) return *free;
  ++stats_.evicted_pages;
  if (!evictable_.empty()) {  // without a window it never is: the continuations of a cached page are cached, too
    withdraw(evictable_.begin()->second);
    return *pages_.take();
  }
  // All that is cached was given back by sequences that go on behind it.
  withdraw_with_continuations(first_of_chain(oldest_));
  stop_offering_withdrawn();
  return *pages_.take();
}

void KvPool::own(int32_t index) {
  Page& p = page(index);
  if (p.owners++ == 0 && p.is_offered) leave_cache(index);
}

void KvPool::disown(int32_t index) {
  Page& p = page(index);
  if (--p.owners > 0) return;
  if (!p.is_offered) return pages_.give_back(index);
  cache(index);
}

void KvPool::cache(int32_t index) {
  Page& p = page(index);
  p.last_use = ++uses_;
  p.older = std::exchange(newest_, index);
  p.newer = -1;
  (p.older >= 0 ? page(p.older).newer : oldest_) = index;
  ++cached_;
  if (p.continuations == 0) evictable_.insert({p.last_use, index});
}

void KvPool::leave_cache(int32_t index) {
  const Page& p = page(index);
  (p.older >= 0 ? page(p.older).newer : oldest_) = p.newer;
  (p.newer >= 0 ? page(p.newer).older : newest_) = p.older;
  --cached_;
  evictable_.erase({p.last_use, index});
}

// Of an offered page without continuations.
void KvPool::withdraw(int32_t index) {
  window_.withdraw(index);
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
  if (p.owners > 0) return;
  leave_cache(index);
  pages_.give_back(index);
}

// The last continuations first.
void KvPool::withdraw_with_continuations(int32_t index) {
  std::vector<int32_t> all{index};
  for (size_t i = 0; i < all.size(); ++i)
    for (int32_t next = page(all[i]).continuation; next >= 0; next = page(next).next) all.push_back(next);
  for (auto last = all.rbegin(); last != all.rend(); ++last) withdraw(*last);
}

// Into the list of its parent's continuations.
void KvPool::link(int32_t index) {
  Page& p = page(index);
  Page& parent = page(p.parent);
  ++parent.continuations;
  p.previous = -1;
  p.next = parent.continuation;
  if (p.next >= 0) page(p.next).previous = index;
  parent.continuation = index;
}

void KvPool::unlink(int32_t index) {
  const Page& p = page(index);
  Page& parent = page(p.parent);
  --parent.continuations;
  (p.previous >= 0 ? page(p.previous).next : parent.continuation) = p.next;
  if (p.next >= 0) page(p.next).previous = p.previous;
}

// The page that begins the prompt that `index` is of; -1 where it is not offered.
int32_t KvPool::first_of_chain(int32_t index) const {
  if (!page(index).is_offered) return -1;
  while (page(index).parent >= 0) index = page(index).parent;
  return index;
}

// A sequence whose pages were withdrawn has no parent to offer its next page behind.
void KvPool::stop_offering_withdrawn() {
  for (Sequence& s : sequences_) {
    if (s.offered <= s.dropped) continue;
    const auto first = s.table.begin() + s.dropped, last = s.table.begin() + s.offered;
    const auto withdrawn = std::find_if(first, last, [&](int32_t index) { return !page(index).is_offered; });
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
