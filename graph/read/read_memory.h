// The memory that the nodes of a graph touch which was built elsewhere, as buffers: the allocations that the driver
// knows, those of the graph's own nodes, and ranges that nobody knows.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "graph/node.h"

namespace nodewright {

// The kind of a buffer that neither the driver knows nor a node of the graph allocates.
inline constexpr std::string_view kUnknownMemory = "unknown memory";

// While a graph is read, a use has its address as its offset, 0 bytes where it goes to the end of its memory, and no
// buffer. place() gives it all three.
class ReadMemory {
 public:
  explicit ReadMemory(const Device& device) : device_(device) {}

  // The memory of an allocation node of that name.
  void add_allocation(const std::string& name, uint64_t address, uint64_t bytes);
  // A use: bytes that lie in no known allocation are known from here on.
  void add(const Use& use);
  // Whether an allocation lies there.
  bool knows(uint64_t address);
  // From there to the allocation's end; 0 where none lies there.
  uint64_t bytes_from(uint64_t address);

  // Declares in `plan`, and in the plans inside it, the buffers of all uses, in the order of the nodes, and places the
  // uses in them. A node with plans inside gets their uses. Call it once all were added.
  void place(Plan& plan);

 private:
  // From the key of the map on. Those that overlap are one.
  struct Range {
    uint64_t end = 0;
    std::string name, kind;  // the name: empty until a use is placed there
    bool used = false;       // not only possibly
    bool of_graph = false;   // allocated by a node
    bool peer = false;       // memory of another device
  };
  using Ranges = std::map<uint64_t, Range>;

  Ranges::iterator join(uint64_t begin, Range range);
  Ranges::iterator holding(uint64_t address);
  void place(Plan& plan, Use& use, std::map<const Range*, uint32_t>& buffers);
  void name(uint64_t begin, Range& range);

  const Device& device_;
  Ranges ranges_;
  std::set<std::string> names_;
  std::map<std::string, size_t> numbers_;  // of the names given, by kind
};

}  // namespace nodewright
