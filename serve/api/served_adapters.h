// The LoRA adapters that a server has under names of their own, as clients see them: models whose parent is the base.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace nodewright {

struct ServedAdapter {
  std::string name;
  std::filesystem::path folder;
  int64_t created = 0;  // seconds since 1970
};

// Thread-safe. What the engine has is told here when it has it.
class ServedAdapters {
 public:
  // In the order of their names.
  std::vector<ServedAdapter> list() const;
  bool has(const std::string& name) const;
  void add(const std::string& name, const std::filesystem::path& folder);
  void remove(const std::string& name);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ServedAdapter> adapters_;
};

}  // namespace nodewright
