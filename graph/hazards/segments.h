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
  // `chunk`: by address. Valid until segments are inserted or erased; as a hint it may be out of date.
  struct Place {
    size_t chunk = 0, slot = 0;
  };

  // Null at the end.
  const Segment* at(Place place) const {
    return place.chunk < order_.size() ? &chunk(place.chunk)[place.slot] : nullptr;
  }
  Segment* at(Place place) { return const_cast<Segment*>(std::as_const(*this).at(place)); }
  Place next(Place place) const { return ++place.slot < chunk(place.chunk).size() ? place : Place{place.chunk + 1, 0}; }
  // Not of the first.
  Place before(Place place) const {
    return place.slot > 0 ? Place{place.chunk, place.slot - 1}
                          : Place{place.chunk - 1, chunk(place.chunk - 1).size() - 1};
  }

  // `near`: the chunk where a search for about that address ended before.
  Place first_ending_after(uint64_t address, size_t near = 0) const;
  // The chunk where that search will end, on its way to the processor's cache.
  size_t fetch(uint64_t address) const;
  // Before `place`; returns where it is.
  Place insert(Place place, const Segment& segment);
  // Makes two of the segment at `place`, the later one from `address` on; returns that.
  Place cut(Place place, uint64_t address);
  // Makes `address` a boundary; returns the first segment at or after it.
  Place split(uint64_t address, size_t near = 0);
  // Takes the bytes below `address` out of the segments from `first` on.
  void erase(Place first, uint64_t address);

 private:
  static constexpr size_t kMost = 128;  // in a chunk

  struct Entry {
    uint64_t begin = 0;  // of the chunk's first segment
    uint32_t id = 0;     // its index in chunks_
  };

  size_t chunk_below(uint64_t address) const;
  std::vector<Segment>& chunk(size_t index) { return chunks_[order_[index].id]; }
  const std::vector<Segment>& chunk(size_t index) const { return chunks_[order_[index].id]; }
  void insert_chunk(size_t index, std::vector<Segment> segments);

  std::vector<std::vector<Segment>> chunks_;  // where they stay; those not in use are empty
  std::vector<Entry> order_;                  // those in use, by address
};

}  // namespace nodewright
