// The LoRA adapters of an engine: by which names requests know them, which are in a slot of the device, and which makes
// room for another.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "engine/topology/step_slots.h"
#include "models/adapters/adapter_image.h"
#include "runtime/event.h"
#include "runtime/stream.h"

namespace nodewright {

struct LoadedAdapter {
  std::string name;
  int32_t id = 0;                // 1, 2, ... in the order of loading
  std::filesystem::path folder;  // it was read from
  int64_t rank = 0;
  int slot = -1;         // of the device; -1: none yet
  int64_t requests = 0;  // open, that have it
  bool operator==(const LoadedAdapter&) const = default;
};

// Not thread-safe. Copies go over streams of its own, one a device; steps that use an adapter wait for its copies,
// others do not. Where several devices share the model, an adapter is in the same slot of all or in none.
class AdapterTable {
 public:
  // `slots`: of each device of `devices`, which are those of StepSlots, by rank.
  AdapterTable(std::span<Device* const> devices, int slots);
  ~AdapterTable();  // waits for copies
  AdapterTable(const AdapterTable&) = delete;
  AdapterTable& operator=(const AdapterTable&) = delete;

  // Adds the adapter under a new id. Where a slot is free it goes there at once. Throws Error where the name is empty
  // or taken, the image is for another number of devices, or a copy fails; then there is no such adapter, on no device.
  void load(const std::string& name, std::shared_ptr<const AdapterImage> image, StepSlots& slots);
  // Frees the name; the adapter is dropped when no open request has it. False where no adapter has this name.
  bool unload(const std::string& name);
  int32_t find(const std::string& name) const;  // the id, or 0
  std::vector<LoadedAdapter> list() const;      // those that have a name, in the order of loading

  // A request has the adapter, from its submission until its end has been reported.
  void opened(int32_t id) { ++entries_.at(id).requests; }
  void closed(int32_t id);

  // `in_use`: the adapters of requests that have a sequence, which stay where they are. Whether the adapter is in a
  // slot or can get one; 0, no adapter, needs none.
  bool may_place(int32_t id, std::span<const int32_t> in_use) const;
  // Submits the adapter's copies to a slot unless it is in one: to a free slot, or to that whose adapter was used least
  // recently. Throws Error where a copy fails: then nobody has the slot.
  void place(int32_t id, std::span<const int32_t> in_use, StepSlots& slots);
  // The slot that the adapter is in. Work that is launched from now on, on any device, waits for the copy there.
  int32_t use(int32_t id, StepSlots& slots);

  // Called when the slots have other memory: all adapters are copied again when they are used.
  void lose_slots();

 private:
  struct Entry {
    std::string name;  // empty: unloaded
    std::shared_ptr<const AdapterImage> image;
    int slot = -1;
    int64_t requests = 0;
    uint64_t last_use = 0;
    bool awaited = false;  // steps launched from now on find its copies done
  };
  struct Copies {
    Stream stream;
    std::vector<Event> copied;  // of each slot
  };
  int free_slot(std::span<const int32_t> in_use) const;  // or whose adapter makes room; -1: none
  void erase(int32_t id);
  void wait_for_copies() const;

  std::vector<Copies> copies_;    // of each device, where there are slots
  std::vector<int32_t> holders_;  // of each slot; 0: nobody
  std::map<int32_t, Entry> entries_;
  std::map<std::string, int32_t, std::less<>> names_;
  int32_t last_id_ = 0;
  uint64_t uses_ = 0;
};

}  // namespace nodewright
