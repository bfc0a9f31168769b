// Which earlier nodes a node must follow, from the byte ranges that they read and write. Knows addresses and node
// numbers only: no names, no edges, no graph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "graph/hazards/segments.h"
#include "graph/node.h"

namespace nodewright {

// Bytes of one buffer. Ranges of different buffers share none, so that each buffer is looked up on its own.
struct ByteRange {
  uint64_t address = 0, bytes = 0;
  uint32_t buffer = 0;

  uint64_t end() const { return address + bytes; }
};

struct RangeUse {
  ByteRange range;
  Access access = Access::in;
  bool undefined = false;  // written with nothing: ordered as a write, and no value to read
};

// `before` must complete before the node placed, because of these bytes of its `use`-th use.
struct RequiredOrder {
  uint32_t before = 0;
  Hazard hazard = Hazard::raw;
  uint32_t use = 0;
  uint64_t address = 0, bytes = 0;
};

// Memory seen so far is kept as disjoint segments, each with its last writer and the readers since that write. Older
// nodes need not be kept: every reader was ordered after the writer before it, and every writer after those readers.
// A use costs the logarithm of its buffer's segments, and the segments that it touches.
class HazardTracker {
 public:
  // Appends the orders that `node` needs, by (before, use, hazard, address), adjoining bytes joined; records the uses.
  // `frozen` uses are not tracked. An inout use reports raw against the last writer, not waw as well. Node numbers grow
  // from call to call.
  void place(uint32_t node, std::span<const RangeUse> uses, std::vector<RequiredOrder>& orders);

  // The first bytes of the range that no placed node has written, or that the last one left undefined.
  std::optional<ByteRange> first_unwritten(const ByteRange& range) const;
  // The first bytes of the range that a placed node has written, and the last node that did.
  struct Written {
    ByteRange range;
    uint32_t node = 0;
  };
  std::optional<Written> first_written(const ByteRange& range) const;

 private:
  struct Reader {
    uint32_t node = 0;
    uint32_t earlier = kNobody;  // index in readers_; two segments may share the rest
  };
  Segments& segments_of(uint32_t buffer);
  const Segments* find_segments(uint32_t buffer) const;
  // Returns where the use's segments begin.
  Segments::Place find_orders(uint32_t index, const RangeUse& use, size_t near,
                              std::vector<RequiredOrder>& orders) const;
  void add_reader(Segment& segment, uint32_t node);
  void record_read(uint32_t node, const ByteRange& range, Segments::Place near);
  void record_write(uint32_t node, const RangeUse& use, Segments::Place near);

  std::vector<Segments> buffers_;
  std::vector<Reader> readers_;
  size_t readers_before_ = 0;           // the node that is placed
  std::vector<Segments::Place> found_;  // scratch of place(): by use
};

}  // namespace nodewright
