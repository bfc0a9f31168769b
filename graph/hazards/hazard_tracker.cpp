#include "graph/hazards/hazard_tracker.h"

#include <algorithm>
#include <tuple>

#include "graph/edges/graph_work.h"

namespace nodewright {
void HazardTracker::place(uint32_t node, std::span<const RangeUse> uses, std::vector<RequiredOrder>& orders) {
  const auto first = static_cast<std::ptrdiff_t>(orders.size());
  readers_before_ = readers_.size();
  found_.resize(uses.size());
  for (uint32_t i = 0; i < uses.size(); ++i)
    if (const Segments* segments = find_segments(uses[i].range.buffer))
      found_[i].chunk = segments->fetch(uses[i].range.address);
  for (uint32_t i = 0; i < uses.size(); ++i)
    if (uses[i].access != Access::frozen) found_[i] = find_orders(i, uses[i], found_[i].chunk, orders);
  for (uint32_t i = 0; i < uses.size(); ++i) {
    if (uses[i].access == Access::in) record_read(node, uses[i].range, found_[i]);
    if (writes(uses[i].access)) record_write(node, uses[i], found_[i]);
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
    for (auto place = segments->first_ending_after(at);; place = segments->next(place)) {
      const Segment* segment = segments->at(place);
      if (segment == nullptr || segment->begin >= range.end()) break;
      if (segment->begin > at) return ByteRange{at, segment->begin - at, range.buffer};
      if (segment->writer == kNobody || segment->undefined)
        return ByteRange{at, std::min(range.end(), segment->end) - at, range.buffer};
      at = segment->end;
    }
  if (at < range.end()) return ByteRange{at, range.end() - at, range.buffer};
  return std::nullopt;
}

std::optional<HazardTracker::Written> HazardTracker::first_written(const ByteRange& range) const {
  const Segments* segments = find_segments(range.buffer);
  if (segments == nullptr) return std::nullopt;
  for (auto place = segments->first_ending_after(range.address);; place = segments->next(place)) {
    const Segment* segment = segments->at(place);
    if (segment == nullptr || segment->begin >= range.end()) return std::nullopt;
    if (segment->writer == kNobody) continue;
    const uint64_t begin = std::max(range.address, segment->begin);
    return Written{{begin, std::min(range.end(), segment->end) - begin, range.buffer}, segment->writer};
  }
}

Segments& HazardTracker::segments_of(uint32_t buffer) {
  if (buffer >= buffers_.size()) buffers_.resize(buffer + 1);
  return buffers_[buffer];
}

const Segments* HazardTracker::find_segments(uint32_t buffer) const {
  return buffer < buffers_.size() ? &buffers_[buffer] : nullptr;
}

Segments::Place HazardTracker::find_orders(uint32_t index, const RangeUse& use, size_t near,
                                           std::vector<RequiredOrder>& orders) const {
  const Segments* segments = find_segments(use.range.buffer);
  if (segments == nullptr) return {};
  const Segments::Place first = segments->first_ending_after(use.range.address, near);
  for (auto place = first;; place = segments->next(place)) {
    const Segment* found = segments->at(place);
    if (found == nullptr || found->begin >= use.range.end()) return first;
    ++graph_work;
    const Segment& segment = *found;
    const uint64_t begin = std::max(use.range.address, segment.begin);
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
  if (segment.readers != kNobody && segment.readers >= readers_before_) return;  // by another use of the node
  readers_.push_back({node, segment.readers});
  segment.readers = static_cast<uint32_t>(readers_.size() - 1);
}

void HazardTracker::record_read(uint32_t node, const ByteRange& range, Segments::Place near) {
  Segments& segments = segments_of(range.buffer);
  auto place = segments.split(range.address, near.chunk);
  for (uint64_t at = range.address; at < range.end(); place = segments.next(place)) {
    const Segment* segment = segments.at(place);
    if (segment == nullptr || segment->begin > at) {  // bytes that nobody has touched: live-in
      const uint64_t gap_end = segment == nullptr ? range.end() : std::min(range.end(), segment->begin);
      place = segments.insert(place, {.begin = at, .end = gap_end});
    } else if (segment->end > range.end()) {
      place = segments.before(segments.cut(place, range.end()));
    }
    add_reader(*segments.at(place), node);
    at = segments.at(place)->end;
  }
}

void HazardTracker::record_write(uint32_t node, const RangeUse& use, Segments::Place near) {
  const ByteRange& range = use.range;
  Segments& segments = segments_of(range.buffer);
  auto place = segments.split(range.address, near.chunk);
  const Segment* first = segments.at(place);
  const Segment written{range.address, range.end(), node, kNobody, use.undefined};
  if (first == nullptr || first->begin != range.address) {
    place = segments.insert(place, written);
  } else {
    if (first->end > range.end()) place = segments.before(segments.cut(place, range.end()));
    *segments.at(place) = written;
  }
  segments.erase(segments.next(place), range.end());
}

}  // namespace nodewright
