// The LoRA adapters of an engine's requests.
#include <vector>

#include "engine/engine.h"
#include "runtime/error.h"

namespace nodewright {

std::shared_ptr<const AdapterImage> Engine::read_adapter(const std::filesystem::path& folder) const {
  const LoraAdapter adapter = LoraAdapter::open(folder, model_->config(), options_.max_adapter_rank);
  const AdapterLimits limits = adapter_limits(options_.max_adapters, options_.max_adapter_rank);
  std::vector<AdapterLayout> layouts;
  layouts.reserve(slots_.ranks());
  std::vector<AdapterPlace> ranks;
  for (size_t rank = 0; rank < slots_.ranks(); ++rank) {
    const ModelConfig& config = slots_.config_of(rank);
    ranks.push_back({&slots_.device_of(rank), &config, &layouts.emplace_back(config, limits)});
  }
  return std::make_shared<const AdapterImage>(adapter, ranks);
}

void Engine::load_adapter(const std::string& name, std::shared_ptr<const AdapterImage> image) {
  adapters_.load(name, std::move(image), slots_);
}

bool Engine::unload_adapter(const std::string& name) { return adapters_.unload(name); }

// Of requests that have a sequence, those of steps in flight among them.
std::vector<int32_t> Engine::adapters_in_use() const {
  std::vector<int32_t> ids;
  for (const RequestId id : pipeline_.admitted())
    if (const int32_t adapter = pipeline_.find(id)->spec().adapter_id; adapter != 0) ids.push_back(adapter);
  return ids;
}

void Engine::admit() {
  try {
    if (options_.max_adapters > 0)
      adapters_.place(pipeline_.find(pipeline_.waiting().front())->spec().adapter_id, adapters_in_use(), slots_);
  } catch (const Error& error) {
    return pipeline_.fail(error.what());
  }
  pipeline_.admit();
}

}  // namespace nodewright
