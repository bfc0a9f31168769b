#include "serve/api/served_adapters.h"

#include <fmt/format.h>

#include <algorithm>
#include <ctime>
#include <utility>

#include "base/visible_text.h"
#include "engine/byte_size.h"

namespace nodewright {

std::vector<ServedAdapter> ServedAdapters::list() const {
  const std::lock_guard lock(mutex_);
  std::vector<ServedAdapter> all;
  for (const auto& [name, adapter] : adapters_) all.push_back(adapter);
  return all;
}

bool ServedAdapters::has(const std::string& name) const {
  const std::lock_guard lock(mutex_);
  return adapters_.contains(name);
}

void ServedAdapters::limit(const AdapterLoadLimits& limits) {
  const std::lock_guard lock(mutex_);
  limits_ = limits;
}

std::string ServedAdapters::reserve(const std::string& name) {
  const std::lock_guard lock(mutex_);
  if (name.size() > limits_.name_bytes)
    return fmt::format("The name of a LoRA adapter has at most {} bytes, and this one has {}.", limits_.name_bytes,
                       name.size());
  if (visible_text(name) != name || name.find_first_of("\n\t") != std::string::npos)
    return "The name of a LoRA adapter has no control characters.";
  if (coming_.contains(name)) return fmt::format("The lora adapter '{}' is being loaded.", name);
  const size_t held = adapters_.size() + coming_.size();
  if (held >= limits_.adapters)
    return fmt::format("{} LoRA adapters are loaded, as many as --max-cpu-loras allows: unload one before.", held);
  if (limits_.bytes_each > 0 && (held + 1) * limits_.bytes_each > limits_.bytes)
    return fmt::format(
        "{} LoRA adapters of {} each are loaded, and --adapter-memory allows {} in all: unload one before.", held,
        byte_size_text(limits_.bytes_each), byte_size_text(limits_.bytes));
  coming_.insert(name);
  return "";
}

void ServedAdapters::give_up(const std::string& name) {
  const std::lock_guard lock(mutex_);
  coming_.erase(name);
}

void ServedAdapters::add(const std::string& name, const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  coming_.erase(name);
  adapters_[name] = {name, folder, static_cast<int64_t>(std::time(nullptr))};
}

std::optional<ServedAdapter> ServedAdapters::withdraw(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(name);
  if (found == adapters_.end()) return std::nullopt;
  ServedAdapter adapter = std::move(found->second);
  adapters_.erase(found);
  return adapter;
}

void ServedAdapters::restore(const ServedAdapter& adapter) {
  const std::lock_guard lock(mutex_);
  adapters_.emplace(adapter.name, adapter);
}

}  // namespace nodewright
