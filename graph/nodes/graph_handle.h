// Owners of the driver's two graph objects. Used by the explicit and the captured run.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/device.h"

namespace nodewright {

// A handle of the driver, destroyed by kDestroy; null: none.
template <class Handle, auto kDestroy>
class DriverHandle {
 public:
  explicit DriverHandle(const Driver& driver, Handle handle = nullptr) : driver_(&driver), handle_(handle) {}
  ~DriverHandle() {
    if (handle_ != nullptr) (driver_->*kDestroy)(handle_);
  }
  DriverHandle(DriverHandle&& other) noexcept
      : driver_(other.driver_), handle_(std::exchange(other.handle_, nullptr)) {}
  DriverHandle& operator=(DriverHandle&& other) noexcept {
    std::swap(driver_, other.driver_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  Handle get() const { return handle_; }
  // Another owner has it from now on.
  void release() { handle_ = nullptr; }

 private:
  const Driver* driver_;
  Handle handle_;
};

using GraphHandle = DriverHandle<CUgraph, &Driver::cuGraphDestroy>;
using GraphExecHandle = DriverHandle<CUgraphExec, &Driver::cuGraphExecDestroy>;

// CUgraphInstantiate_flags, and the stream of an upload where they say so.
struct InstantiateHow {
  cuuint64_t flags = 0;
  CUstream upload = nullptr;
};

// Throws Error with the driver's reason and, through `name_of`, the node it names.
GraphExecHandle instantiate(const Driver& driver, CUgraph graph, const std::string& plan_name,
                            const std::function<std::string(CUgraphNode)>& name_of, const InstantiateHow& how = {});

// Why cuGraphExecUpdate failed.
std::string_view words_for(CUgraphExecUpdateResult result);

}  // namespace nodewright
