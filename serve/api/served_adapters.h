// The LoRA adapters that a server has under names of their own, as clients see them: models whose parent is the base.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace nodewright {

struct ServedAdapter {
  std::string name;
  std::filesystem::path folder;
  int64_t created = 0;  // seconds since 1970
};

// Limits of the adapters that clients load. Each adapter stays in host memory, whether or not it has a device slot.
struct AdapterLoadLimits {
  size_t adapters = 256;
  uint64_t bytes_each = 0;      // of host memory, whatever its rank
  uint64_t bytes = UINT64_MAX;  // of all together
  size_t name_bytes = 255;
};

// Thread-safe. The engine reports its adapters here once it has them.
class ServedAdapters {
 public:
  // In the order of their names.
  std::vector<ServedAdapter> list() const;
  bool has(const std::string& name) const;
  void limit(const AdapterLoadLimits& limits);
  // Keeps a place for an adapter that is about to be read, until add() or give_up(). Returns why there is none, with
  // the numbers and what to try; empty: it is kept.
  std::string reserve(const std::string& name);
  void give_up(const std::string& name);
  void add(const std::string& name, const std::filesystem::path& folder);
  // Takes it out before the engine lets it go, so that no new call finds it; restore() puts it back where the engine
  // keeps it. Nothing where there is none.
  std::optional<ServedAdapter> withdraw(const std::string& name);
  void restore(const ServedAdapter& adapter);

 private:
  mutable std::mutex mutex_;
  std::map<std::string, ServedAdapter> adapters_;
  std::set<std::string> coming_;  // reserved
  AdapterLoadLimits limits_;
};

}  // namespace nodewright
