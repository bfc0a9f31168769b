// The LoRA adapters of an engine's requests.
#include <vector>

#include "engine/engine.h"
#include "runtime/error.h"

namespace nodewright {

std::shared_ptr<const AdapterImage> Engine::read_adapter(const std::filesystem::path& folder) const {
  const LoraAdapter adapter = LoraAdapter::open(folder, model_->config(), options_.max_adapter_rank);
  std::vector<AdapterPlace> ranks;
  for (size_t rank = 0; rank < slots_.ranks(); ++rank)
    ranks.push_back({&slots_.device_of(rank), &slots_.config_of(rank), &adapter_memory_.at(rank).layout,
                     adapter_memory_[rank].images});
  return std::make_shared<const AdapterImage>(adapter, ranks);
}

uint64_t Engine::adapter_image_bytes() const {
  uint64_t bytes = 0;
  for (const auto& one : adapter_memory_) bytes += one.layout.slot_bytes();
  return bytes;
}

// As many images are kept as there are slots, so that to change adapters locks no pages.
void Engine::make_adapter_memory() {
  const AdapterLimits limits = adapter_limits(options_.max_adapters, options_.max_adapter_rank);
  for (size_t rank = 0; rank < slots_.ranks(); ++rank) {
    AdapterLayout layout(slots_.config_of(rank), limits);
    auto images = std::make_shared<StagingPool>(slots_.device_of(rank), "adapter.image", layout.slot_bytes(),
                                                static_cast<size_t>(options_.max_adapters));
    adapter_memory_.push_back({std::move(layout), std::move(images)});
  }
}

void Engine::load_adapter(const std::string& name, std::shared_ptr<const AdapterImage> image) {
  adapters_.load(name, std::move(image), slots_);
}

bool Engine::unload_adapter(const std::string& name) { return adapters_.unload(name); }

// Adapters of requests that have a sequence, those of steps in flight included.
std::vector<int32_t> Engine::adapters_in_use() const {
  std::vector<int32_t> ids;
  for (const RequestId id : pipeline_.admitted())
    if (const int32_t adapter = pipeline_.find(id)->spec().adapter_id; adapter != 0) ids.push_back(adapter);
  return ids;
}

void Engine::admit() {
  try {
    if (options_.max_adapters > 0)
      adapters_.place(pipeline_.next_waiting()->spec().adapter_id, adapters_in_use(), slots_);
  } catch (const Error& error) {
    return pipeline_.fail(error.what());
  }
  pipeline_.admit();
}

}  // namespace nodewright
