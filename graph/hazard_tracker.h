// Which earlier nodes a node must follow, from the byte ranges that they read and write. Knows addresses and node
// numbers only: no names, no edges, no graph.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "graph/node.h"

namespace nodewright {

struct ByteRange {
  uint64_t address = 0, bytes = 0;
};

struct RangeUse {
  uint64_t address = 0, bytes = 0;
  Access access = Access::in;
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
class HazardTracker {
 public:
  // Appends the orders that `node` needs, by (before, use, hazard, address), adjoining bytes joined; records the uses.
  // `frozen` uses are not tracked. An inout use reports raw against the last writer, not waw as well. Node numbers grow
  // from call to call.
  void place(uint32_t node, std::span<const RangeUse> uses, std::vector<RequiredOrder>& orders);

  // The first bytes of the range that no placed node has written.
  std::optional<ByteRange> first_unwritten(uint64_t address, uint64_t bytes) const;
  // The first bytes of the range that a placed node has written, and the last node that did.
  struct Written {
    ByteRange range;
    uint32_t node = 0;
  };
  std::optional<Written> first_written(uint64_t address, uint64_t bytes) const;
  // A placed node that has read some of the range since it was last written.
  std::optional<uint32_t> first_reader(uint64_t address, uint64_t bytes) const;

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Segment {
    uint64_t end = 0;  // address
    uint32_t writer = kNobody;
    std::vector<uint32_t> readers;  // since the write, ascending
  };
  using Segments = std::map<uint64_t, Segment>;  // by first address; disjoint

  Segments::iterator split(uint64_t address);
  Segments::const_iterator first_touching(uint64_t address) const;
  void find_orders(uint32_t index, const RangeUse& use, std::vector<RequiredOrder>& orders) const;
  void record_read(uint32_t node, const RangeUse& use);
  void record_write(uint32_t node, const RangeUse& use);

  Segments segments_;
};

}  // namespace nodewright
