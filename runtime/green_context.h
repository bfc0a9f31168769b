// A share of a device's multiprocessors, for kernel nodes that leave the rest to others: CUDA's green contexts.
//
//   auto [prefill, decode] = split_multiprocessors(device, 32);
//   g.launch("attend", attend, args, {.attributes = {.green = prefill.place()}});
#pragma once

#include <cuda.h>

#include <utility>

#include "runtime/device.h"

namespace nodewright {

// Where a kernel node runs. The default: on all multiprocessors, in the device's primary context.
struct GreenPlace {
  CUcontext context = nullptr;     // of cuCtxFromGreenCtx: not owned; must outlive graphs with nodes in it
  unsigned multiprocessors = 0;    // of it; 0: no green context
  const Device* device = nullptr;  // that it is a context of; null: not known
  bool operator==(const GreenPlace&) const = default;
};

// Owns a green context. Must outlive every graph with nodes in it.
class GreenContext {
 public:
  GreenContext(GreenContext&& other) noexcept;
  GreenContext& operator=(GreenContext&& other) noexcept;
  ~GreenContext();

  const GreenPlace& place() const { return place_; }                   // for KernelAttributes::green
  unsigned multiprocessors() const { return place_.multiprocessors; }  // at least one

 private:
  friend std::pair<GreenContext, GreenContext> split_multiprocessors(Device& device, unsigned multiprocessors);
  GreenContext(Device& device, const CUdevResource& share);

  CUgreenCtx green_ = nullptr;
  GreenPlace place_;
};

// Two shares of the device: of `multiprocessors` or a few more, as the driver groups them (on Hopper multiples of 8),
// and of all others. Throws Error with the numbers when there are too few for both.
std::pair<GreenContext, GreenContext> split_multiprocessors(Device& device, unsigned multiprocessors);

}  // namespace nodewright
