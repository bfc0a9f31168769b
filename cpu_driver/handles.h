// Handles that carry a generation: a destroyed one is distinguished from a live one and never dereferenced. Guarded by
// the driver's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace nodewright::cpu {

// `Handle` is one of CUDA's pointer types; `kKind` keeps the kinds apart. Bits: 0-19 slot + 1, 20-39 generation, 40-46
// kind.
template <class T, class Handle, uint64_t kKind>
class HandleTable {
 public:
  Handle add(std::shared_ptr<T> object) {
    uint64_t slot;
    if (free_.empty()) {
      slot = slots_.size();
      slots_.emplace_back();
    } else {
      slot = free_.back();
      free_.pop_back();
    }
    slots_[slot].object = std::move(object);
    return reinterpret_cast<Handle>(kKind << 40 | (slots_[slot].generation & 0xfffff) << 20 | (slot + 1));
  }

  // Null: never made, or destroyed.
  std::shared_ptr<T> find(Handle handle) const {
    const uint64_t slot = slot_of(handle);
    return slot < slots_.size() ? slots_[slot].object : nullptr;
  }

  // Makes the handle invalid and returns what it named.
  std::shared_ptr<T> take(Handle handle) {
    const uint64_t slot = slot_of(handle);
    if (slot >= slots_.size()) return nullptr;
    ++slots_[slot].generation;
    free_.push_back(slot);
    return std::move(slots_[slot].object);
  }

 private:
  struct Slot {
    std::shared_ptr<T> object;
    uint64_t generation = 1;
  };

  uint64_t slot_of(Handle handle) const {
    const auto bits = reinterpret_cast<uint64_t>(handle);
    const uint64_t slot = (bits & 0xfffff) - 1, generation = bits >> 20 & 0xfffff;
    const bool live = bits >> 40 == kKind && slot < slots_.size() && slots_[slot].object != nullptr &&
                      (slots_[slot].generation & 0xfffff) == generation;
    return live ? slot : ~0ull;
  }

  std::vector<Slot> slots_;
  std::vector<uint64_t> free_;
};

}  // namespace nodewright::cpu
