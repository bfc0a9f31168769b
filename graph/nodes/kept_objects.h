// The objects that plans keep (GraphBuilder::keep), as user objects of the driver's graphs.
#pragma once

#include <vector>

#include "graph/node.h"
#include "runtime/driver.h"

namespace nodewright {

// Whether objects of plans that are children count as the graph's.
enum class KeptInside : uint8_t { bodies, bodies_and_children };

// Which graphs of the driver refer to which objects, so that they can let go.
class KeptObjects {
 public:
  explicit KeptObjects(const Driver& driver) : driver_(&driver) {}

  // `graph` refers to the objects of the plan, of the bodies in it and, if asked for, of the children.
  void retain(const Plan& plan, CUgraph graph, KeptInside inside);
  // Those graphs let go of what was retained before `count`. They must still exist.
  void release_first(size_t count);
  void forget_from(size_t count) { retained_.resize(count); }  // graphs that are gone
  size_t count() const { return retained_.size(); }

 private:
  struct Retained {
    CUgraph graph = nullptr;
    CUuserObject object = nullptr;
  };
  const Driver* driver_;
  std::vector<Retained> retained_;
};

}  // namespace nodewright
