#include "cli/serve/plan_times.h"

#include <algorithm>
#include <vector>

#include "bench/steps/read_bandwidth.h"
#include "graph/timing/node_timer.h"
#include "models/kv_cache.h"
#include "runtime/calls/cpu_driver_api.h"
#include "runtime/memory/memory.h"

namespace nodewright::cli {
namespace {

constexpr int64_t kTimedContext = 1024;  // as `bench nodes` has it

// A page of this number and below is in the cache of every layer.
int64_t pages_of_each_layer(const StepSlots& slots) {
  const int64_t pages = slots.cache().pages(0), side = slots.cache().pages(1);
  return side == 0 ? pages : std::min(pages, side);  // a model may have no layers of the second kind
}

// A step of `rows` sequences that attend to `context` keys each, launched once: later launches of the graph read the
// same inputs.
void launch_once(StepSlots& slots, int bucket, int rows, int64_t context) {
  const DeviceBuffer& cache = slots.cache().buffer();
  fill_device(slots.stream().device(), cache.address(), std::byte{0}, cache.bytes(), "kv");
  const auto all = static_cast<int32_t>(pages_of_each_layer(slots));
  std::vector<int32_t> pages(static_cast<size_t>(pages_for(context)));
  int32_t next = 0;
  for (int32_t row = 0; row < rows; ++row) {
    for (int32_t& page : pages) page = next++ % all;
    slots.write_table(row, pages);
    write_row(slots.inputs(0, bucket), row,
              {.token = 1, .position = context - 1, .sequence = row, .output = 0, .sampling = {}});
  }
  slots.launch({.slot = 0, .bucket = bucket, .live = rows, .sampled = rows, .copies = {}, .chooses_again = false});
  slots.sample(0);
  slots.wait(0);
}

}  // namespace

int decode_bucket(const StepSlots& slots, int rows) {
  int found = 0;
  for (const BuiltBucket& built : slots.built().graphs)
    if (built.bucket >= rows && slots.plan(built.bucket) != nullptr && (found == 0 || built.bucket < found))
      found = built.bucket;
  return found;
}

int64_t timed_context(const Engine& engine, int rows) {
  const int64_t pages = std::max<int64_t>(pages_of_each_layer(engine.slots()) / rows, 1);
  return std::min({kTimedContext, engine.pipeline().options().max_context, pages * kPageTokens});
}

PlanTimings time_plan(Session& session, Engine& engine, int bucket, int rows) {
  Device& device = session.device();
  if (device.driver().is_cpu() && device.driver().cpu_options().poison)
    throw Error({.doing = "time the nodes of a step on",
                 .object = device.name(),
                 .detail = "it overwrites pinned memory once a copy has read it, and the step is launched again",
                 .advice = "--device cpu",
                 .fault = Fault::usage});
  StepSlots& slots = engine.slots();
  launch_once(slots, bucket, rows, timed_context(engine, rows));
  const uint64_t read_bytes = std::min(usual_read_bytes(device), device.free_bytes() / 2);  // the cache has the rest
  ReadBandwidth ceiling(device, session.stream(), session.kernels(), read_bytes);
  NodeTimer timer(*slots.plan(bucket), session.kernels(), session.stream());
  return timer.measure({.before_launch = {}, .read_peak = [&] { return ceiling.sample(); }});
}

}  // namespace nodewright::cli
