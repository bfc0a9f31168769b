// Finds ids by their names, which live elsewhere: one flat table, nothing allocated for a name.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

namespace nodewright {

class NameTable {
 public:
  static constexpr uint32_t kNone = UINT32_MAX;

  static uint32_t hash_of(std::string_view name) { return static_cast<uint32_t>(std::hash<std::string_view>()(name)); }

  // The id whose name is `name`, or kNone. name_of(id) is a name that was inserted.
  template <class NameOf>
  uint32_t find(std::string_view name, const NameOf& name_of) const {
    return find(hash_of(name), name, name_of);
  }
  template <class NameOf>
  uint32_t find(uint32_t hash, std::string_view name, const NameOf& name_of) const {
    if (slots_.empty()) return kNone;
    for (size_t at = hash & (slots_.size() - 1); slots_[at].id != kNone; at = (at + 1) & (slots_.size() - 1))
      if (slots_[at].hash == hash && name_of(slots_[at].id) == name) return slots_[at].id;
    return kNone;
  }

  // Room for `names` in all.
  void reserve(size_t names) {
    while (2 * names > slots_.size()) grow();
  }

  // `name` is not in the table yet; `id` is not kNone.
  void insert(std::string_view name, uint32_t id) { insert(hash_of(name), id); }
  void insert(uint32_t hash, uint32_t id) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    place({hash, id});
    ++count_;
  }

 private:
  struct Slot {
    uint32_t hash = 0, id = kNone;
  };

  void place(const Slot& slot) {
    size_t at = slot.hash & (slots_.size() - 1);
    while (slots_[at].id != kNone) at = (at + 1) & (slots_.size() - 1);
    slots_[at] = slot;
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 64 : 2 * slots_.size());
    old.swap(slots_);
    for (const Slot& slot : old)
      if (slot.id != kNone) place(slot);
  }

  std::vector<Slot> slots_;  // a power of two, at least half of them empty
  size_t count_ = 0;
};

}  // namespace nodewright
