// The memory of slots and cache, given back as a whole and taken again.
#include "engine/device/step_slots.h"
#include "graph/run/stopwatch.h"

namespace nodewright {

void StepSlots::release() {
  if (is_released()) return;
  demand_one_process("give back memory");
  for_each_rank([](const StepSlots& rank) {
    rank.compute_.synchronize();
    rank.copies_.synchronize();
  });
  for_each_rank([](StepSlots& rank) { rank.released_ = rank.memory_; });
  released_pages_ = cache_->pages();
  forget_memory();
}

void StepSlots::forget_memory() {
  for_each_rank([](StepSlots& rank) { rank.slots_.clear(); });
  exchange_.reset();
  for_each_rank([](StepSlots& rank) {
    rank.cache_.reset();
    rank.adapters_.reset();
    rank.memory_ = {};
  });
}

void StepSlots::restore(const DecoderModel& model, const StepSlotsOptions& options) {
  if (!is_released()) return;
  try {
    built_ = {};
    model_ = &model;
    sampled_slot_ = -1;
    for_each_rank([&](StepSlots& rank) { rank.make_slots(*rank.model_, options); });
    if (sends_packets()) make_exchange(options);
    for_each_rank([&](StepSlots& rank) {
      rank.make_adapters(*rank.model_, options);
      rank.memory_.graphs = rank.released_.graphs;
      rank.make_cache(*rank.model_, options, released_pages_);
    });
    build(options);
    wait_for_weights();
  } catch (...) {
    forget_memory();
    throw;
  }
}

void StepSlots::make_cache(const DecoderModel& model, const StepSlotsOptions& options, int64_t pages) {
  cache_ = std::make_unique<KvCache>(device_, model.config(), pages, options.window_pages);
  memory_.pages = cache_->bytes();
}

}  // namespace nodewright
