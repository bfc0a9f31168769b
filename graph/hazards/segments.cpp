#include "graph/hazards/segments.h"

#include <algorithm>

namespace nodewright {

Segments::Place Segments::first_ending_after(uint64_t address) const {
  if (chunks_.empty()) return {};
  const auto above = std::upper_bound(begins_.begin(), begins_.end(), address);
  const size_t chunk = above == begins_.begin() ? 0 : static_cast<size_t>(above - begins_.begin()) - 1;
  const std::vector<Segment>& segments = chunks_[chunk];
  const auto found = std::upper_bound(segments.begin(), segments.end(), address,
                                      [](uint64_t at, const Segment& segment) { return at < segment.end; });
  return found == segments.end() ? Place{chunk + 1, 0} : Place{chunk, static_cast<size_t>(found - segments.begin())};
}

Segments::Place Segments::insert(Place place, const Segment& segment) {
  if (place.slot == 0 && place.chunk > 0) place = {place.chunk - 1, chunks_[place.chunk - 1].size()};
  if (chunks_.empty() || (place.chunk + 1 == chunks_.size() && place.slot == kMost)) {
    chunks_.push_back({segment});
    begins_.push_back(segment.begin);
    return {chunks_.size() - 1, 0};
  }
  if (chunks_[place.chunk].size() == kMost) {
    const auto chunk = static_cast<std::ptrdiff_t>(place.chunk);
    const auto middle = chunks_[place.chunk].begin() + kMost / 2;
    std::vector<Segment> upper(middle, chunks_[place.chunk].end());
    chunks_[place.chunk].erase(middle, chunks_[place.chunk].end());
    begins_.insert(begins_.begin() + chunk + 1, upper.front().begin);
    chunks_.insert(chunks_.begin() + chunk + 1, std::move(upper));
    if (place.slot > kMost / 2) place = {place.chunk + 1, place.slot - kMost / 2};
  }
  std::vector<Segment>& segments = chunks_[place.chunk];
  segments.insert(segments.begin() + static_cast<std::ptrdiff_t>(place.slot), segment);
  begins_[place.chunk] = segments.front().begin;
  return place;
}

Segments::Place Segments::cut(Place place, uint64_t address) {
  Segment upper = *at(place);
  upper.begin = at(place)->end = address;
  return insert(next(place), upper);
}

Segments::Place Segments::split(uint64_t address) {
  const Place place = first_ending_after(address);
  const Segment* segment = at(place);
  return segment == nullptr || segment->begin >= address ? place : cut(place, address);
}

void Segments::erase(Place first, uint64_t address) {
  if (at(first) == nullptr) return;
  const auto begin_of = [&](size_t chunk) { return chunks_.begin() + static_cast<std::ptrdiff_t>(chunk); };
  // Whole chunks at once: those from `whole` on whose successors begin before the address, too.
  const size_t whole = first.slot == 0 ? first.chunk : first.chunk + 1;
  const auto erase_in = [&](size_t chunk, size_t slot) {
    std::vector<Segment>& segments = chunks_[chunk];
    const auto from = segments.begin() + static_cast<std::ptrdiff_t>(slot);
    segments.erase(from, std::find_if(from, segments.end(), [&](const Segment& s) { return s.begin >= address; }));
  };
  if (first.slot != 0) erase_in(first.chunk, first.slot);
  size_t last = whole;
  while (last < chunks_.size() && chunks_[last].back().begin < address) ++last;
  chunks_.erase(begin_of(whole), begin_of(last));
  begins_.erase(begins_.begin() + static_cast<std::ptrdiff_t>(whole),
                begins_.begin() + static_cast<std::ptrdiff_t>(last));
  if (whole >= chunks_.size()) return;
  erase_in(whole, 0);
  begins_[whole] = chunks_[whole].front().begin;
}

}  // namespace nodewright
