#include "runtime/memory/live_buffers.h"

#include <iterator>

namespace nodewright {

void LiveBuffers::add(uint64_t address, uint64_t bytes, std::string_view name) {
  const std::scoped_lock lock(mutex_);
  entries_[address] = {bytes, ++serials_, std::string(name)};
}

void LiveBuffers::remove(uint64_t address) {
  const std::scoped_lock lock(mutex_);
  entries_.erase(address);
  removed_.fetch_add(1, std::memory_order_release);
}

LiveBuffer LiveBuffers::at(uint64_t address) const {
  const std::scoped_lock lock(mutex_);
  const auto after = entries_.upper_bound(address);
  if (after == entries_.begin()) return {};
  const auto& [begin, entry] = *std::prev(after);
  const LiveBuffer below{begin, entry.bytes, entry.serial};
  return below.holds(address) ? below : LiveBuffer{};
}

std::string LiveBuffers::name_at(uint64_t address) const {
  const LiveBuffer buffer = at(address);
  const std::scoped_lock lock(mutex_);
  const auto found = entries_.find(buffer.address);
  return buffer.serial != 0 && found != entries_.end() ? found->second.name : std::string();
}

}  // namespace nodewright
