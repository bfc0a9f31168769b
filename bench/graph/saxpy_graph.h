// Plans of a chosen shape and size, made of one small kernel: what building and launching graphs is measured with.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph_builder.h"
#include "kernels_src/saxpy.h"
#include "kernels_src/step/repeat_until.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/memory/memory.h"

namespace nodewright {

// chain: every node follows the one before it. fork_join: a trunk node, eight branches that read it, a trunk node that
// reads them all, eight branches, and so on.
enum class GraphShape : uint8_t { chain, fork_join };
// tiny: 1 block of 32 threads. full: as many blocks as the device has SMs, of 256 threads.
enum class KernelWidth : uint8_t { tiny, full };

std::string_view to_string(GraphShape shape);
std::string_view to_string(KernelWidth width);

inline constexpr uint32_t kBranches = 8;

// The memory, the kernel and the node names of one shape, width and length; plans of it are built again and again.
class SaxpyGraph {
 public:
  // Throws Error for fewer than one node.
  SaxpyGraph(Device& device, KernelCache& kernels, GraphShape shape, KernelWidth width, int nodes);

  // Declares the buffers and launches the nodes: all that the builder sees before finish().
  std::vector<Node<Saxpy>> add_to(GraphBuilder& g, float a) const;
  Plan plan(EdgePolicy policy, float a) const;

  // A WHILE node around the nodes and a kernel that counts the rounds, after one that zeroes the count.
  Plan loop(EdgePolicy policy, float a, int32_t rounds) const;
  int32_t rounds_done() const;  // by the last run of a loop; waits for nothing

  // Puts the values at the start back: ones everywhere. Waits for nothing: the device must be idle.
  void reset();
  std::vector<float> values() const;  // of trunk, then of the branches

  // The kernel of the nodes, or the same code compiled as another one.
  const Kernel<Saxpy>& kernel(bool other) const { return other ? other_saxpy_ : saxpy_; }
  const LaunchShape& launch_shape() const { return saxpy_.shape; }
  int nodes() const { return static_cast<int>(names_.size()); }
  const std::string& name() const { return name_; }

 private:
  void declare_buffers(GraphBuilder& g) const;
  std::vector<Node<Saxpy>> launch_nodes(GraphBuilder& g, float a) const;

  Device& device_;
  GraphShape shape_;
  std::string name_;
  std::vector<std::string> names_;
  Kernel<Saxpy> saxpy_, other_saxpy_;
  Kernel<RepeatUntil> repeat_until_;
  DeviceBuffer ones_, trunk_, branches_, rounds_;
};

}  // namespace nodewright
