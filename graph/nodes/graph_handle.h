// Owners of the driver's two graph objects. Used by the explicit and the captured run.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "runtime/device.h"

namespace nodewright {

class GraphHandle {
 public:
  explicit GraphHandle(const Driver& driver, CUgraph graph = nullptr) : driver_(&driver), graph_(graph) {}
  ~GraphHandle() {
    if (graph_ != nullptr) driver_->cuGraphDestroy(graph_);
  }
  GraphHandle(GraphHandle&& other) noexcept : driver_(other.driver_), graph_(std::exchange(other.graph_, nullptr)) {}
  GraphHandle& operator=(GraphHandle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(graph_, other.graph_);
    return *this;
  }
  CUgraph get() const { return graph_; }
  // Another graph owns it from now on.
  void release() { graph_ = nullptr; }

 private:
  const Driver* driver_;
  CUgraph graph_;
};

class GraphExecHandle {
 public:
  explicit GraphExecHandle(const Driver& driver, CUgraphExec exec = nullptr) : driver_(&driver), exec_(exec) {}
  ~GraphExecHandle() {
    if (exec_ != nullptr) driver_->cuGraphExecDestroy(exec_);
  }
  GraphExecHandle(GraphExecHandle&& other) noexcept
      : driver_(other.driver_), exec_(std::exchange(other.exec_, nullptr)) {}
  GraphExecHandle& operator=(GraphExecHandle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(exec_, other.exec_);
    return *this;
  }
  CUgraphExec get() const { return exec_; }

 private:
  const Driver* driver_;
  CUgraphExec exec_;
};

// CUgraphInstantiate_flags, and the stream of an upload where they say so.
struct InstantiateHow {
  cuuint64_t flags = 0;
  CUstream upload = nullptr;
};

// Throws Error with the driver's reason and, through `name_of`, the node it names.
GraphExecHandle instantiate(const Driver& driver, CUgraph graph, const std::string& plan_name,
                            const std::function<std::string(CUgraphNode)>& name_of, const InstantiateHow& how = {});

}  // namespace nodewright
