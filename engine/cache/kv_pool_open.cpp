// How sequences begin: with the pages that their prompt finds on offer, or with those of another sequence.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "engine/cache/kv_pool.h"
#include "runtime/error.h"

namespace nodewright {

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
  s = {.is_open = true, .adapter = all.adapter, .offers = options_.prefix_cache};
  s.offered = found.pages;
  s.known = s.offered * options_.page_tokens;
  s.table.assign(all.pages.begin(), all.pages.begin() + found.pages);
  if (options_.window > 0) {
    s.promised = found.needed;
    s.dropped = std::max<int64_t>(0, found.start - options_.window + 1) / options_.page_tokens;
    std::fill_n(s.table.begin(), s.dropped, kNoPage);
    length = found.start + 1;  // what is after it is taken when a launch needs it
  }
  std::for_each(s.table.begin() + s.dropped, s.table.end(), [this](int32_t index) { pages_.own(index); });
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
  for (; !found.pages.empty() && pages_.at(found.pages.back()).offer != found.offers.back(); found.offers.pop_back())
    found.pages.pop_back();
  const auto page_tokens = static_cast<size_t>(options_.page_tokens);
  for (size_t at = found.pages.size(); (at + 1) * page_tokens <= prompt.size(); ++at) {
    const auto tokens = prompt.subspan(at * page_tokens, page_tokens);
    if (at == found.hashes.size())
      found.hashes.push_back(options_.hash(at == 0 ? root_hash(found.adapter) : found.hashes[at - 1], tokens));
    const int32_t next =
        pages_.find(found.hashes[at], at == 0 ? SharedPages::root(found.adapter) : found.pages[at - 1], tokens);
    if (next < 0) return;
    found.pages.push_back(next);
    found.offers.push_back(pages_.at(next).offer);
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
        pages.end() - std::ranges::partition_point(pages, [&](int32_t p) { return pages_.at(p).owners > 0; });
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
  const bool copies = found.start % options_.page_tokens != 0;  // held beside its copy, as all others that it shares
  found.needed = options_.window > 0 ? std::min(pages_for(length) + (copies ? 1 : 0), window_pages(options_))
                                     : pages_for(length) - found.pages;
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
  s = {.is_open = true, .adapter = from.adapter, .offers = options_.prefix_cache && from.offered >= found.pages};
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
  std::for_each(s.table.begin() + s.dropped, s.table.end(), [this](int32_t index) { pages_.own(index); });
  stats_.prompt_tokens += prompt_tokens;
  stats_.found_tokens += found.start;
  ++stats_.forked;
  const auto sequence = static_cast<int32_t>(closed - sequences_.data());
  if (window_.is_used()) window_.fork(sequence, like, found.start);
  std::vector<PageCopy> copies = *reserve_pages(sequence, found.start, length);
  reserve_window(sequence, found.start, found.start + 1, copies);
  return Opened{sequence, found.start, std::move(copies)};
}

}  // namespace nodewright
