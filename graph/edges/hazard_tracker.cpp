#include "graph/edges/hazard_tracker.h"

#include <algorithm>
#include <iterator>
#include <tuple>

#include "graph/edges/graph_work.h"

namespace nodewright {
namespace {

// The first segment that ends after `address`.
template <class Segments>
auto first_ending_after(Segments& segments, uint64_t address) {
  const auto above = segments.upper_bound(address);
  if (above == segments.begin()) return above;
  const auto below = std::prev(above);
  return below->second.end > address ? below : above;
}

// Two of the segment at `it`, the later one from `address` on; returns that.
template <class Segments, class Iterator>
auto cut(Segments& segments, Iterator it, uint64_t address) {
  auto upper = it->second;
  it->second.end = address;
  return segments.emplace_hint(std::next(it), address, upper);
}

// Makes `address` a boundary; returns the first segment at or after it.
template <class Segments>
auto split(Segments& segments, uint64_t address) {
  const auto it = first_ending_after(segments, address);
  return it == segments.end() || it->first >= address ? it : cut(segments, it, address);
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
  if (const Segments* segments = find_segments(range.buffer))
    for (auto it = first_ending_after(*segments, at); it != segments->end() && it->first < range.end(); ++it) {
      const auto& [begin, segment] = *it;
      if (begin > at) return ByteRange{at, begin - at, range.buffer};
      if (segment.writer == kNobody || segment.undefined)
        return ByteRange{at, std::min(range.end(), segment.end) - at, range.buffer};
      at = segment.end;
    }
  if (at < range.end()) return ByteRange{at, range.end() - at, range.buffer};
  return std::nullopt;
}

std::optional<HazardTracker::Written> HazardTracker::first_written(const ByteRange& range) const {
  const Segments* segments = find_segments(range.buffer);
  if (segments == nullptr) return std::nullopt;
  for (auto it = first_ending_after(*segments, range.address); it != segments->end() && it->first < range.end(); ++it) {
    if (it->second.writer == kNobody) continue;
    const uint64_t begin = std::max(range.address, it->first);
    return Written{{begin, std::min(range.end(), it->second.end) - begin, range.buffer}, it->second.writer};
  }
  return std::nullopt;
}

HazardTracker::Segments& HazardTracker::segments_of(uint32_t buffer) {
  while (buffer >= buffers_.size()) buffers_.emplace_back(memory_.get());
  return buffers_[buffer];
}

const HazardTracker::Segments* HazardTracker::find_segments(uint32_t buffer) const {
  return buffer < buffers_.size() ? &buffers_[buffer] : nullptr;
}

void HazardTracker::find_orders(uint32_t index, const RangeUse& use, std::vector<RequiredOrder>& orders) const {
  const Segments* segments = find_segments(use.range.buffer);
  if (segments == nullptr) return;
  for (auto it = first_ending_after(*segments, use.range.address); it != segments->end() && it->first < use.range.end();
       ++it) {
    ++graph_work;
    const Segment& segment = it->second;
    const uint64_t begin = std::max(use.range.address, it->first);
    const uint64_t bytes = std::min(use.range.end(), segment.end) - begin;
    if (segment.writer != kNobody) {
      const Hazard hazard = use.access == Access::out ? Hazard::waw : Hazard::raw;
      orders.push_back({segment.writer, hazard, index, begin, bytes});
    }
    if (!writes(use.access)) continue;
    for (uint32_t reader = segment.readers; reader != kNobody; reader = readers_[reader].earlier, ++graph_work)
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
  auto it = split(segments, range.address);
  for (uint64_t at = range.address; at < range.end(); at = it->second.end, ++it) {
    if (it == segments.end() || it->first > at) {  // bytes that nobody has touched: live-in
      const uint64_t gap_end = it == segments.end() ? range.end() : std::min(range.end(), it->first);
      it = segments.emplace_hint(it, at, Segment{.end = gap_end});
    } else if (it->second.end > range.end()) {
      cut(segments, it, range.end());
    }
    add_reader(it->second, node);
  }
}

void HazardTracker::record_write(uint32_t node, const RangeUse& use) {
  const ByteRange& range = use.range;
  Segments& segments = segments_of(range.buffer);
  const Segment written{range.end(), node, kNobody, use.undefined};
  auto it = split(segments, range.address);
  if (it == segments.end() || it->first != range.address)
    it = segments.emplace_hint(it, range.address, written);
  else if (it->second.end > range.end())
    cut(segments, it, range.end());
  it->second = written;
  for (++it; it != segments.end() && it->first < range.end(); it = segments.erase(it))
    if (it->second.end > range.end()) cut(segments, it, range.end());
}

}  // namespace nodewright
