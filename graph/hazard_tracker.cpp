#include "graph/hazard_tracker.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace nodewright {

void HazardTracker::place(uint32_t node, std::span<const RangeUse> uses, std::vector<RequiredOrder>& orders) {
  const auto first = static_cast<std::ptrdiff_t>(orders.size());
  for (uint32_t i = 0; i < uses.size(); ++i)
    if (uses[i].access != Access::frozen) find_orders(i, uses[i], orders);
  for (const RangeUse& use : uses) {
    if (use.access == Access::in) record_read(node, use);
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

std::optional<ByteRange> HazardTracker::first_unwritten(uint64_t address, uint64_t bytes) const {
  const uint64_t end = address + bytes;
  uint64_t at = address;
  for (auto it = first_touching(address); at < end; ++it) {
    if (it == segments_.end() || it->first >= end) return ByteRange{at, end - at};
    if (it->first > at) return ByteRange{at, it->first - at};
    if (it->second.writer == kNobody) return ByteRange{at, std::min(end, it->second.end) - at};
    at = it->second.end;
  }
  return std::nullopt;
}

std::optional<HazardTracker::Written> HazardTracker::first_written(uint64_t address, uint64_t bytes) const {
  const uint64_t end = address + bytes;
  for (auto it = first_touching(address); it != segments_.end() && it->first < end; ++it) {
    if (it->second.writer == kNobody) continue;
    const uint64_t begin = std::max(address, it->first);
    return Written{{begin, std::min(end, it->second.end) - begin}, it->second.writer};
  }
  return std::nullopt;
}

std::optional<uint32_t> HazardTracker::first_reader(uint64_t address, uint64_t bytes) const {
  for (auto it = first_touching(address); it != segments_.end() && it->first < address + bytes; ++it)
    if (!it->second.readers.empty()) return it->second.readers.front();
  return std::nullopt;
}

// The first segment that ends after `address`.
HazardTracker::Segments::const_iterator HazardTracker::first_touching(uint64_t address) const {
  auto it = segments_.upper_bound(address);
  if (it != segments_.begin() && std::prev(it)->second.end > address) --it;
  return it;
}

// Makes `address` a boundary; returns the first segment at or after it.
HazardTracker::Segments::iterator HazardTracker::split(uint64_t address) {
  auto it = segments_.lower_bound(address);
  if (it == segments_.begin()) return it;
  auto before = std::prev(it);
  if (before->second.end <= address) return it;
  Segment upper = before->second;
  before->second.end = address;
  return segments_.emplace_hint(it, address, std::move(upper));
}

void HazardTracker::find_orders(uint32_t index, const RangeUse& use, std::vector<RequiredOrder>& orders) const {
  const uint64_t end = use.address + use.bytes;
  for (auto it = first_touching(use.address); it != segments_.end() && it->first < end; ++it) {
    const Segment& segment = it->second;
    const uint64_t begin = std::max(use.address, it->first);
    const uint64_t bytes = std::min(end, segment.end) - begin;
    if (segment.writer != kNobody) {
      const Hazard hazard = use.access == Access::out ? Hazard::waw : Hazard::raw;
      orders.push_back({segment.writer, hazard, index, begin, bytes});
    }
    if (!writes(use.access)) continue;
    for (const uint32_t reader : segment.readers) orders.push_back({reader, Hazard::war, index, begin, bytes});
  }
}

void HazardTracker::record_read(uint32_t node, const RangeUse& use) {
  const uint64_t end = use.address + use.bytes;
  if (const auto same = segments_.find(use.address); same != segments_.end() && same->second.end == end) {
    if (same->second.readers.empty() || same->second.readers.back() != node) same->second.readers.push_back(node);
    return;
  }
  split(end);
  uint64_t at = use.address;
  for (auto it = split(use.address); at < end; ++it) {
    if (it == segments_.end() || it->first > at) {  // bytes that nobody has touched: live-in
      const uint64_t gap_end = it == segments_.end() ? end : std::min(end, it->first);
      it = segments_.emplace_hint(it, at, Segment{gap_end, kNobody, {}});
    }
    if (it->second.readers.empty() || it->second.readers.back() != node) it->second.readers.push_back(node);
    at = it->second.end;
  }
}

void HazardTracker::record_write(uint32_t node, const RangeUse& use) {
  const uint64_t end = use.address + use.bytes;
  if (const auto same = segments_.find(use.address); same != segments_.end() && same->second.end == end) {
    same->second.writer = node;
    same->second.readers.clear();
    return;
  }
  const auto last = split(end);
  const auto first = split(use.address);
  segments_.erase(first, last);
  segments_.emplace(use.address, Segment{end, node, {}});
}

}  // namespace nodewright
