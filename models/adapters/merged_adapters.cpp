#include "models/adapters/merged_adapters.h"

#include <limits>

#include "models/adapters/lora_adapter.h"

namespace nodewright {

MergedAdapters::MergedAdapters(std::span<const std::filesystem::path> folders, const ModelConfig& config)
    : names_(config.names) {
  for (const std::filesystem::path& folder : folders) {
    const LoraAdapter adapter = LoraAdapter::open(folder, config, std::numeric_limits<int64_t>::max());
    for (const auto& [module, of] : adapter.modules())
      deltas_[module].push_back(
          {of.rank, of.a->shape[1], static_cast<float>(of.scale), read_floats(*of.a), read_floats(*of.b)});
  }
}

void MergedAdapters::attach(std::span<WeightSource> sources) const {
  constexpr std::string_view kWeight = ".weight";
  for (WeightSource& source : sources)
    for (WeightPart& part : source.parts) {
      std::string_view name = without_prefix(part.tensor->name, names_);
      if (!name.ends_with(kWeight)) continue;
      name.remove_suffix(kWeight.size());
      if (const auto found = deltas_.find(name); found != deltas_.end()) part.deltas = &found->second;
    }
}

}  // namespace nodewright
