#include "engine/device/step_device.h"

#include <algorithm>
#include <string>

#include "engine/device/page_budget.h"
#include "engine/device/step_limits.h"
#include "graph/exec_budget.h"

namespace nodewright {

StepDevice::StepDevice(const ModelPlace& place, const StepSlotsOptions& options, const StepDevice* first)
    : device_(*place.device),
      kernels_(*place.kernels),
      model_(place.model),
      collectives_(place.collectives),
      first_(first),
      page_bytes_(KvCache::page_bytes(place.model->config())),
      compute_(device_, "steps"),
      copies_(device_, "tokens") {
  begin(options);
}

void StepDevice::begin(const StepSlotsOptions& options) {
  group_of_layer_.clear();
  for (int64_t layer = 0; layer < config().layers; ++layer) group_of_layer_.push_back(config().page_group(layer));
  StepSlotsOptions suited = options;
  // Without clusters no registers hold rows of more than one tile, and a library takes what a tile of 8 or 16 may.
  if (!suited.products_from && !device_.properties().has_clusters()) suited.products_from = kProductsFromRows;
  bind_kernels(suited);
  make_slots(suited);
}

void StepDevice::make_slots(const StepSlotsOptions& options) {
  const DecodeLimits limits = limits_of(options, collectives_);
  for (int i = 0; i < kSlots; ++i) {
    const std::string name = "slot" + std::to_string(i);
    slots_.push_back({.memory = memory_of_slot(limits, i),
                      .choices = has_choices(options) ? choices_of_slot(limits, i) : nullptr,
                      .scores = nullptr,
                      .tables = nullptr,
                      .sampled = Event(device_, name + ".sampled"),
                      .copied = Event(device_, name + ".copied"),
                      .graphs = {}});
    Slot& slot = slots_.back();
    slot.tables = std::make_unique<TableUpdates>(device_, kernels_, slot.memory->state(1), compute_);
    if (!has_choices(options)) continue;
    slot.scores = i == 0 ? std::make_unique<ScoreSlot>(device_, config(), score_limits_of(device_, *model_, options),
                                                       *slot.memory)
                         : std::make_unique<ScoreSlot>(*slots_[0].scores, *slot.memory);
  }
  hidden_ = config().hidden;
  memory_.weights = model_->weights().bytes();
  memory_.state = 0;
  for (const Slot& slot : slots_)
    memory_.state +=
        slot.memory->bytes() + (slot.choices ? slot.choices->bytes() : 0) + (slot.scores ? slot.scores->bytes() : 0);
}

std::unique_ptr<DecodeSlot> StepDevice::memory_of_slot(const DecodeLimits& limits, int slot) const {
  if (first_ != nullptr) {
    const DecodeSlot& host = *first_->slot(slot).memory;
    return slot == 0 ? DecodeSlot::of_rank(device_, config(), limits, host) : slots_[0].memory->another(host);
  }
  return slot == 0 ? std::make_unique<DecodeSlot>(device_, config(), limits)
                   : std::make_unique<DecodeSlot>(*slots_[0].memory);
}

// Every rank of a team makes the host's choices; of a pipeline, the last stage alone.
std::unique_ptr<ChoiceSlot> StepDevice::choices_of_slot(const DecodeLimits& limits, int slot) const {
  if (first_ != nullptr && config().shard.is_part()) {
    const ChoiceSlot& host = *first_->slot(slot).choices;
    return slot == 0 ? ChoiceSlot::of_rank(device_, config(), limits, host) : slots_[0].choices->another(host);
  }
  return slot == 0 ? std::make_unique<ChoiceSlot>(device_, config(), limits)
                   : std::make_unique<ChoiceSlot>(*slots_[0].choices);
}

void StepDevice::make_adapters(const StepSlotsOptions& options) {
  memory_.adapters = 0;
  if (!options.adapters.any()) return;
  adapters_ = std::make_unique<AdapterSlots>(device_, config(), options.adapters);
  memory_.adapters = adapters_->bytes();
}

void StepDevice::make_cache(const StepSlotsOptions& options, int64_t pages) {
  cache_ = std::make_unique<KvCache>(device_, config(), pages, options.window_pages);
  memory_.pages = cache_->bytes();
}

int64_t StepDevice::pages_within_limits(const StepSlotsOptions& options) const {
  const auto bytes_of = [&](int64_t group) {
    return static_cast<uint64_t>(config().layers_of_group(group)) * page_bytes_;
  };
  const uint64_t page = bytes_of(0) + (options.window_pages ? 0 : bytes_of(1));
  return pages_within({.wanted = options.pages,
                       .page_bytes = page,
                       .max_context = options.request_pages > 0
                                          ? std::min(options.max_context, options.request_pages * kPageTokens)
                                          : options.max_context,
                       .limit = options.memory_limit,
                       .free = device_.free_bytes(),
                       .use = memory_,
                       .window_bytes = static_cast<uint64_t>(options.window_pages.value_or(0)) * bytes_of(1)});
}

void StepDevice::drop_memory() {
  cache_.reset();
  adapters_.reset();
  memory_ = {};
}

void StepDevice::begin_launch(const StepLaunch& launch) {
  Slot& slot = this->slot(launch.slot);
  slot.bucket = launch.bucket;
  slot.tokens = launch.sampled;
  slot.hidden = static_cast<uint64_t>(launch.hidden * hidden_);
}

void StepDevice::submit_changes(const StepLaunch& launch) {
  for (const PageCopy& copy : launch.copies)
    for (size_t layer = 0; layer < group_of_layer_.size(); ++layer) {
      if (group_of_layer_[layer] != copy.group) continue;
      const CUdeviceptr pages = cache_->layer(static_cast<int64_t>(layer)).address();
      copy_device_async(compute_, pages + static_cast<uint64_t>(copy.to) * page_bytes_,
                        pages + static_cast<uint64_t>(copy.from) * page_bytes_, page_bytes_, "kv");
    }
  slot(launch.slot).tables->submit(launch.tables);
}

void StepDevice::launch(const StepLaunch& launch) const {
  slot(launch.slot).graphs.at(launch.bucket).step(launch.prompt, launch.adapted).launch();
}

void StepDevice::write_table(int32_t sequence, std::span<const int32_t> pages) const {
  slots_[0].memory->write_table(sequence, 0, pages);
}

void StepDevice::set_counts(int32_t sequence, std::span<const int32_t> counts) const {
  const ChoiceState& choice = slots_[0].graphs.begin()->second.choice;
  const auto first = static_cast<uint64_t>(sequence * choice.counts_stride);
  write_view(device_, choice.counts.subview(first, counts.size()), counts, "counts");
}

void StepDevice::fill_pages(std::byte value) const {
  const DeviceBuffer& pages = cache_->buffer();
  fill_device(device_, pages.address(), value, pages.bytes(), pages.name());
}

void StepDevice::poison(int index) {
  Slot& slot = this->slot(index);
  slot.memory->poison();
  if (slot.choices) slot.choices->poison();
  if (slot.scores) slot.scores->poison();
}

}  // namespace nodewright
