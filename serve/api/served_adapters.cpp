#include "serve/api/served_adapters.h"

#include <ctime>

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

void ServedAdapters::add(const std::string& name, const std::filesystem::path& folder) {
  const std::lock_guard lock(mutex_);
  adapters_[name] = {name, folder, static_cast<int64_t>(std::time(nullptr))};
}

void ServedAdapters::remove(const std::string& name) {
  const std::lock_guard lock(mutex_);
  adapters_.erase(name);
}

}  // namespace nodewright
