#include "graph/edges/hazard_tracker.h"

#include <algorithm>
#include <tuple>

namespace nodewright {
namespace {

// The first of `segments`, which are disjoint and by address, that ends after `address`; nearly always there are few.
template <class Segments>
auto first_ending_after(Segments& segments, uint64_t address) {
  return std::upper_bound(segments.begin(), segments.end(), address,
                          [](uint64_t at, const auto& segment) { return at < segment.end; });
}

// Makes `address` a boundary; returns the first segment at or after it.
template <class Segments>
auto split(Segments& segments, uint64_t address) {
  auto it = first_ending_after(segments, address);
  if (it == segments.end() || it->begin >= address) return it;
  auto lower = *it;
  lower.end = it->begin = address;
  return segments.insert(it, lower) + 1;
}

}  // namespace

void HazardTracker::place(uint32_t node, std::span<const RangeUse> uses, std::vector<RequiredOrder>& orders) {
  const auto first = static_cast<std::ptrdiff_t>(orders.size());
  for (uint32_t i = 0; i < uses.size(); ++i)
    if (uses[i].access != Access::frozen) find_orders(i, uses[i], orders);
  for (const RangeUse& use : uses) {
    if (use.access == Access::in) record_read(node, use.range);
    if (writes(use.access)) record_write(node, use);
  }

  const auto begin = orders.begin() + first;
  if (orders.end() - begin < 2) return;
  std::sort(begin, orders.end(), [](const RequiredOrder& a, const RequiredOrder& b) {
    return std::tie(a.before, a.use, a.hazard, a.address) < std::tie(b.before, b.use, b.hazard, b.address);
  });
  auto last = begin;  // of those that are joined
  for (auto order = begin; order != orders.end(); ++order) {
    if (order == begin) continue;
    if (last->before == order->before && last->use == order->use && last->hazard == order->hazard &&
        last->address + last->bytes == order->address)
      last->bytes += order->bytes;
    else
      *++last = *order;
  }
  orders.erase(last + 1, orders.end());
}

std::optional<ByteRange> HazardTracker::first_unwritten(const ByteRange& range) const {
  uint64_t at = range.address;
  for (const Segment& segment : touching(range)) {
    if (segment.begin > at) return ByteRange{at, segment.begin - at, range.buffer};
    if (segment.writer == kNobody || segment.undefined)
      return ByteRange{at, std::min(range.end(), segment.end) - at, range.buffer};
    at = segment.end;
  }
  if (at < range.end()) return ByteRange{at, range.end() - at, range.buffer};
  return std::nullopt;
}

std::optional<HazardTracker::Written> HazardTracker::first_written(const ByteRange& range) const {
  for (const Segment& segment : touching(range)) {
    if (segment.writer == kNobody) continue;
    const uint64_t begin = std::max(range.address, segment.begin);
    return Written{{begin, std::min(range.end(), segment.end) - begin, range.buffer}, segment.writer};
  }
  return std::nullopt;
}

HazardTracker::Segments& HazardTracker::segments_of(uint32_t buffer) {
  if (buffer >= buffers_.size()) buffers_.resize(buffer + 1);
  return buffers_[buffer];
}

// The segments that share bytes with the range.
std::span<const HazardTracker::Segment> HazardTracker::touching(const ByteRange& range) const {
  if (range.buffer >= buffers_.size()) return {};
  const Segments& segments = buffers_[range.buffer];
  const auto first = first_ending_after(segments, range.address);
  auto last = first;
  while (last != segments.end() && last->begin < range.end()) ++last;
  return {first, last};
}

void HazardTracker::find_orders(uint32_t index, const RangeUse& use, std::vector<RequiredOrder>& orders) const {
  for (const Segment& segment : touching(use.range)) {
    const uint64_t begin = std::max(use.range.address, segment.begin);
    const uint64_t bytes = std::min(use.range.end(), segment.end) - begin;
    if (segment.writer != kNobody) {
      const Hazard hazard = use.access == Access::out ? Hazard::waw : Hazard::raw;
      orders.push_back({segment.writer, hazard, index, begin, bytes});
    }
    if (!writes(use.access)) continue;
    for (uint32_t reader = segment.readers; reader != kNobody; reader = readers_[reader].earlier)
      orders.push_back({readers_[reader].node, Hazard::war, index, begin, bytes});
  }
}

void HazardTracker::add_reader(Segment& segment, uint32_t node) {
  if (segment.readers != kNobody && readers_[segment.readers].node == node) return;
  readers_.push_back({node, segment.readers});
  segment.readers = static_cast<uint32_t>(readers_.size() - 1);
}

void HazardTracker::record_read(uint32_t node, const ByteRange& range) {
  Segments& segments = segments_of(range.buffer);
  split(segments, range.end());
  auto it = split(segments, range.address);
  for (uint64_t at = range.address; at < range.end(); at = it->end, ++it) {
    if (it == segments.end() || it->begin > at) {  // bytes that nobody has touched: live-in
      const uint64_t gap_end = it == segments.end() ? range.end() : std::min(range.end(), it->begin);
      it = segments.insert(it, {at, gap_end});
    }
    add_reader(*it, node);
  }
}

void HazardTracker::record_write(uint32_t node, const RangeUse& use) {
  const ByteRange& range = use.range;
  const Segment written{range.address, range.end(), node, kNobody, use.undefined};
  Segments& segments = segments_of(range.buffer);
  split(segments, range.end());
  const auto first = split(segments, range.address);
  auto last = first;
  while (last != segments.end() && last->begin < range.end()) ++last;
  if (first == last) {
    segments.insert(first, written);
    return;
  }
  *first = written;
  segments.erase(first + 1, last);
}

}  // namespace nodewright
