// The memory of slots and cache, given back as a whole and taken again.
#include "engine/device/step_slots.h"
#include "graph/run/stopwatch.h"

namespace nodewright {

void StepSlots::release() {
  if (is_released()) return;
  compute_.synchronize();
  copies_.synchronize();
  released_ = memory_;
  released_pages_ = cache_->pages();
  slots_.clear();
  cache_.reset();
  adapters_.reset();
  memory_ = {};
}

void StepSlots::restore(const DecoderModel& model, const StepSlotsOptions& options) {
  if (!is_released()) return;
  try {
    built_ = {};
    make_slots(model, options);
    make_adapters(model, options);
    memory_.graphs = released_.graphs;
    make_cache(model, options, released_pages_);
    build(model, options);
    Stopwatch watch;
    model.wait();
    built_.waited_ms = watch.lap_ms();
  } catch (...) {
    slots_.clear();
    cache_.reset();
    adapters_.reset();
    memory_ = {};
    throw;
  }
}

void StepSlots::make_cache(const DecoderModel& model, const StepSlotsOptions& options, int64_t pages) {
  cache_ = std::make_unique<KvCache>(device_, model.config(), pages, options.window_pages);
  memory_.pages = cache_->bytes();
}

}  // namespace nodewright
