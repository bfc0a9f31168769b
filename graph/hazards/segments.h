// Disjoint byte ranges of one buffer in the order of their addresses, each with its last writer and its readers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace nodewright {

inline constexpr uint32_t kNobody = UINT32_MAX;

struct Segment {
  uint64_t begin = 0, end = 0;  // addresses
  uint32_t writer = kNobody;
  uint32_t readers = kNobody;  // since the write, the latest first: the head of a list that HazardTracker keeps
  bool undefined = false;      // by the writer
};

// In chunks of neighbours, so that a search among many meets few cache lines. A search costs the logarithm of the
// segments, an insertion a chunk and a part of the list of chunks.
class Segments {
 public:
  struct Place {
    size_t chunk = 0, slot = 0;
  };

  // Null at the end.
  const Segment* at(Place place) const {
    return place.chunk < chunks_.size() ? &chunks_[place.chunk][place.slot] : nullptr;
  }
  Segment* at(Place place) { return const_cast<Segment*>(std::as_const(*this).at(place)); }
  Place next(Place place) const {
    return ++place.slot < chunks_[place.chunk].size() ? place : Place{place.chunk + 1, 0};
  }

  Place first_ending_after(uint64_t address) const;
  // Before `place`; returns where it is.
  Place insert(Place place, const Segment& segment);
  // Makes two of the segment at `place`, the later one from `address` on; returns that.
  Place cut(Place place, uint64_t address);
  // Makes `address` a boundary; returns the first segment at or after it.
  Place split(uint64_t address);
  // Those from `first` on that begin before `address`.
  void erase(Place first, uint64_t address);

 private:
  static constexpr size_t kMost = 64;  // in a chunk

  std::vector<std::vector<Segment>> chunks_;  // none is empty
  std::vector<uint64_t> begins_;              // of each chunk's first segment
};

}  // namespace nodewright
