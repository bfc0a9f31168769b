#include "engine/adapters/adapter_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {

AdapterTable::AdapterTable(std::span<Device* const> devices, int slots) : holders_(static_cast<size_t>(slots), 0) {
  if (slots == 0) return;
  for (Device* device : devices) {
    Copies& copies = copies_.emplace_back(Copies{Stream(*device, "adapters"), {}});
    for (int i = 0; i < slots; ++i) copies.copied.emplace_back(*device, fmt::format("adapter{}.copied", i));
  }
}

AdapterTable::~AdapterTable() { wait_for_copies(); }

void AdapterTable::wait_for_copies() const {
  for (const Copies& copies : copies_) {
    try {
      copies.stream.synchronize();
    } catch (const Error&) {  // the device is lost, and copies nothing any more
    }
  }
}

void AdapterTable::load(const std::string& name, std::shared_ptr<const AdapterImage> image, StepSlots& slots) {
  const auto refuse = [&](std::string why, const char* advice) {
    throw Error(
        {.doing = "load adapter", .object = name, .detail = std::move(why), .advice = advice, .fault = Fault::usage});
  };
  if (holders_.empty()) refuse("the engine has no slots for adapters", "--max-adapters");
  if (name.empty()) refuse("its name is empty", "");
  if (names_.contains(name)) refuse("it has already been loaded", "unload it, or another name");
  if (image->ranks() != copies_.size())
    refuse(fmt::format("it was read for {} devices, and the engine has {}", image->ranks(), copies_.size()),
           "read it with this engine");
  const int32_t id = ++last_id_;
  entries_.emplace(id, Entry{.name = name, .image = std::move(image)});
  names_.emplace(name, id);
  if (std::ranges::count(holders_, 0) == 0 || slots.is_released()) return;
  try {
    place(id, {}, slots);
  } catch (const Error&) {
    names_.erase(name);
    erase(id);
    throw;
  }
}

bool AdapterTable::unload(const std::string& name) {
  const auto found = names_.find(name);
  if (found == names_.end()) return false;
  const int32_t id = found->second;
  names_.erase(found);
  entries_.at(id).name.clear();
  if (entries_.at(id).requests == 0) erase(id);
  return true;
}

void AdapterTable::closed(int32_t id) {
  Entry& entry = entries_.at(id);
  if (--entry.requests == 0 && entry.name.empty()) erase(id);
}

// A step in flight may still read the slot: who takes it asks which are in use.
void AdapterTable::erase(int32_t id) {
  wait_for_copies();  // of its image
  entries_.erase(id);
}

int32_t AdapterTable::find(const std::string& name) const {
  const auto found = names_.find(name);
  return found == names_.end() ? 0 : found->second;
}

std::vector<LoadedAdapter> AdapterTable::list() const {
  std::vector<LoadedAdapter> all;
  for (const auto& [id, entry] : entries_)
    if (!entry.name.empty())
      all.push_back({entry.name, id, entry.image->folder(), entry.image->rank(), entry.slot, entry.requests});
  return all;
}

int AdapterTable::free_slot(std::span<const int32_t> in_use) const {
  int best = -1;
  uint64_t oldest = 0;
  for (size_t slot = 0; slot < holders_.size(); ++slot) {
    const int32_t holder = holders_[slot];
    if (holder == 0) return static_cast<int>(slot);
    if (std::ranges::count(in_use, holder) > 0) continue;
    const auto entry = entries_.find(holder);
    const uint64_t last_use = entry == entries_.end() ? 0 : entry->second.last_use;
    if (best >= 0 && last_use >= oldest) continue;
    best = static_cast<int>(slot);
    oldest = last_use;
  }
  return best;
}

bool AdapterTable::may_place(int32_t id, std::span<const int32_t> in_use) const {
  return id == 0 || entries_.at(id).slot >= 0 || free_slot(in_use) >= 0;
}

void AdapterTable::place(int32_t id, std::span<const int32_t> in_use, StepSlots& slots) {
  if (id == 0) return;
  Entry& entry = entries_.at(id);
  entry.last_use = ++uses_;
  if (entry.slot >= 0) return;
  const int slot = free_slot(in_use);
  if (slot < 0)
    throw Error({.doing = "place adapter",
                 .object = entry.name,
                 .detail = fmt::format("all {} slots are in use", holders_.size())});
  int32_t& holder = holders_[static_cast<size_t>(slot)];
  if (const auto before = entries_.find(holder); before != entries_.end()) before->second.slot = -1;
  holder = 0;  // until every device has its copy on the way
  for (size_t rank = 0; rank < copies_.size(); ++rank) {
    const Copies& copies = copies_[rank];
    slots.adapters(rank).upload(copies.stream, slot, *entry.image, rank);
    copies.copied[static_cast<size_t>(slot)].record(copies.stream);
  }
  holder = id;
  entry.slot = slot;
  entry.awaited = false;
}

int32_t AdapterTable::use(int32_t id, StepSlots& slots) {
  Entry& entry = entries_.at(id);
  entry.last_use = ++uses_;
  if (!entry.awaited)
    for (size_t rank = 0; rank < copies_.size(); ++rank)
      slots.wait_for(copies_[rank].copied[static_cast<size_t>(entry.slot)], rank);
  entry.awaited = true;
  return entry.slot;
}

void AdapterTable::lose_slots() {
  std::ranges::fill(holders_, 0);
  for (auto& [id, entry] : entries_) entry.slot = -1;
}

}  // namespace nodewright
