// A chain like SaxpyGraph's of a kernel that Nodewright has not compiled, with four parameters: what a foreign kernel
// node costs beside one of ours.
#pragma once

#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "runtime/memory/memory.h"

namespace nodewright {

inline auto launch_foreign_saxpy(GraphBuilder& g, const std::string& name, const ForeignKernel& kernel,
                                 const LaunchShape& shape, const View<float>& x, const View<float>& y, float a) {
  return g.launch(name, kernel, shape, reads<"x">(x), updates<"y">(y), value<"a">(a), value<"n">(y.count));
}

class ForeignChain {
 public:
  using Node = decltype(launch_foreign_saxpy(std::declval<GraphBuilder&>(), "", std::declval<ForeignKernel&>(),
                                             LaunchShape(), View<float>(), View<float>(), 0.0f));

  // Every node is one launch in `shape`, over one float a thread. Compiles the kernel.
  ForeignChain(Device& device, const LaunchShape& shape, int nodes);

  // Declares the buffers and launches the nodes: all that the builder sees before finish().
  std::vector<Node> add_to(GraphBuilder& g, float a) const;
  // Ones everywhere; the device must be idle.
  void reset();
  std::vector<float> values() const;

 private:
  Device& device_;
  LaunchShape shape_;
  std::vector<std::string> names_;
  ForeignKernel kernel_;
  DeviceBuffer x_, y_;
};

}  // namespace nodewright
