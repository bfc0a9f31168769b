#include "graph/run/buffer_watch.h"

#include <fmt/format.h>

#include "runtime/device.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

void check_unused(const Plan& plan, uint32_t gone) {
  for (const PlanNode& node : plan.nodes)
    for (const Use& use : node.uses)
      if (use.buffer == gone)
        throw Error(
            {.doing = "launch plan",
             .object = plan.name,
             .detail = fmt::format("buffer '{}' was freed after the plan was built; node '{}' touches it, field '{}'",
                                   plan.buffers[gone].range.name, node.name, use.field),
             .advice = "keep the buffers of a plan for as long as it is launched"});
}

}  // namespace

void BufferWatch::check(const Plan& plan) {
  const LiveBuffers& live = plan.device->buffers();
  const uint64_t removed = live.removed();
  if (removed == seen_) return;
  for (uint32_t i = 0; i < plan.buffers.size(); ++i) {
    const Buffer& buffer = plan.buffers[i];
    if (buffer.serial != 0 && live.at(buffer.range.address).serial != buffer.serial) check_unused(plan, i);
  }
  seen_ = removed;
}

}  // namespace nodewright
