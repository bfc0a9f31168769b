#include "graph/hazards/segments.h"

#include <algorithm>

namespace nodewright {
namespace {

constexpr size_t kFetched = 16;  // segments of a chunk, from which on a search meets several cache lines

// How many of the sorted items come before the first that is above, for items of which one at least is not. Takes no
// branches, which would be guessed wrong half of the time.
template <class Item, class Above>
size_t count_below(const Item* items, size_t count, const Above& above) {
  const Item* first = items;
  while (count > 1) {
    const size_t half = count / 2;
    first += half * (above(first[half - 1]) ? 0 : 1);
    count -= half;
  }
  return static_cast<size_t>(first - items) + (count == 1 && !above(*first) ? 1 : 0);
}

}  // namespace

// The last chunk that begins at or below the address, or the first.
size_t Segments::chunk_below(uint64_t address) const {
  const size_t below =
      count_below(order_.data(), order_.size(), [&](const Entry& entry) { return entry.begin > address; });
  return below == 0 ? 0 : below - 1;
}

// Where there are many segments, a search waits for memory again and again: fetched together, those of all uses of a
// node take about as long as one.
size_t Segments::fetch(uint64_t address) const {
  if (order_.empty()) return 0;
  const size_t index = chunk_below(address);
  const std::vector<Segment>& segments = chunk(index);
  if (segments.size() < kFetched) return index;
  for (size_t eighth = 1; eighth < 8; ++eighth) __builtin_prefetch(&segments[segments.size() * eighth / 8]);
  return index;
}

Segments::Place Segments::first_ending_after(uint64_t address, size_t near) const {
  const size_t chunks = order_.size();
  if (chunks == 0) return {};
  const auto holds = [&](size_t index) {
    return index < chunks && order_[index].begin <= address &&
           (index + 1 == chunks || address < order_[index + 1].begin);
  };
  size_t index = near;
  if (!holds(index) && !holds(++index)) index = chunk_below(address);
  const std::vector<Segment>& segments = chunk(index);
  const size_t slot =
      count_below(segments.data(), segments.size(), [&](const Segment& segment) { return segment.end > address; });
  return slot == segments.size() ? Place{index + 1, 0} : Place{index, slot};
}

void Segments::insert_chunk(size_t index, std::vector<Segment> segments) {
  order_.insert(order_.begin() + static_cast<std::ptrdiff_t>(index),
                {segments.front().begin, static_cast<uint32_t>(chunks_.size())});
  chunks_.push_back(std::move(segments));
}

Segments::Place Segments::insert(Place place, const Segment& segment) {
  if (place.slot == 0 && place.chunk > 0) place = {place.chunk - 1, chunk(place.chunk - 1).size()};
  if (order_.empty() || (place.chunk + 1 == order_.size() && place.slot == kMost)) {
    insert_chunk(order_.size(), {segment});
    return {order_.size() - 1, 0};
  }
  if (chunk(place.chunk).size() == kMost) {
    const auto middle = chunk(place.chunk).begin() + kMost / 2;
    std::vector<Segment> upper(middle, chunk(place.chunk).end());
    chunk(place.chunk).erase(middle, chunk(place.chunk).end());
    insert_chunk(place.chunk + 1, std::move(upper));
    if (place.slot > kMost / 2) place = {place.chunk + 1, place.slot - kMost / 2};
  }
  std::vector<Segment>& segments = chunk(place.chunk);
  segments.insert(segments.begin() + static_cast<std::ptrdiff_t>(place.slot), segment);
  order_[place.chunk].begin = segments.front().begin;
  return place;
}

Segments::Place Segments::cut(Place place, uint64_t address) {
  Segment upper = *at(place);
  upper.begin = at(place)->end = address;
  return insert(next(place), upper);
}

Segments::Place Segments::split(uint64_t address, size_t near) {
  const Place place = first_ending_after(address, near);
  const Segment* segment = at(place);
  return segment == nullptr || segment->begin >= address ? place : cut(place, address);
}

void Segments::erase(Place first, uint64_t address) {
  if (at(first) == nullptr || at(first)->begin >= address) return;
  const auto erase_in = [&](size_t index, size_t slot) {
    std::vector<Segment>& segments = chunk(index);
    const auto from = segments.begin() + static_cast<std::ptrdiff_t>(slot);
    const auto kept = std::find_if(from, segments.end(), [&](const Segment& s) { return s.end > address; });
    if (kept != segments.end()) kept->begin = std::max(kept->begin, address);
    segments.erase(from, kept);
  };
  // Whole chunks at once.
  const size_t whole = first.slot == 0 ? first.chunk : first.chunk + 1;
  if (first.slot != 0) erase_in(first.chunk, first.slot);
  size_t last = whole;
  for (; last < order_.size() && chunk(last).back().end <= address; ++last) {
    std::vector<Segment>().swap(chunk(last));
  }
  order_.erase(order_.begin() + static_cast<std::ptrdiff_t>(whole), order_.begin() + static_cast<std::ptrdiff_t>(last));
  if (whole >= order_.size() || order_[whole].begin >= address) return;
  erase_in(whole, 0);
  order_[whole].begin = chunk(whole).front().begin;
}

}  // namespace nodewright
