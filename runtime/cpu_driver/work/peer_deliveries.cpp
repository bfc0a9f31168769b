#include "runtime/cpu_driver/work/peer_deliveries.h"

#include <algorithm>
#include <cstdio>

#include "runtime/cpu_driver/driver_state.h"

namespace nodewright::cpu {

void PeerDeliveries::send(int device, const std::string& sender, std::span<const PeerStore> stores) {
  for (const PeerStore& store : stores) on_their_way_.push_back({store, device, sender});
}

// Stores of the same thread to one address keep their order (PTX ISA, Memory Consistency Model, "Coherence Order"): the
// oldest to the address of the one at `place` arrives in its stead.
void PeerDeliveries::deliver(State& state, size_t place) {
  const uint64_t address = on_their_way_[place].store.address;
  const auto first = std::find_if(on_their_way_.begin(), on_their_way_.end(),
                                  [&](const OnItsWay& other) { return other.store.address == address; });
  const OnItsWay arriving = *first;
  on_their_way_.erase(first);
  if (state.memory->find(address, sizeof arriving.store.value) == nullptr) {
    char text[32];
    snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
    return state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, arriving.sender + ": a store into a peer arrives at address " + text +
                                                      " " + state.memory->describe(address));
  }
  __atomic_store_n(reinterpret_cast<uint64_t*>(address), arriving.store.value, __ATOMIC_RELEASE);
}

void PeerDeliveries::deliver_some(State& state, CpuSchedule schedule, uint64_t random) {
  if (schedule == CpuSchedule::reverse) return;
  uint64_t count = schedule == CpuSchedule::forward ? on_their_way_.size() : random % 4;
  for (; count > 0 && !empty(); --count, random = random * 0x9e3779b97f4a7c15ull + 1)
    deliver(state, schedule == CpuSchedule::forward ? 0 : (random >> 20) % on_their_way_.size());
}

bool PeerDeliveries::deliver_one(State& state, CpuSchedule schedule, uint64_t random) {
  if (empty()) return false;
  deliver(state, schedule == CpuSchedule::forward   ? 0
                 : schedule == CpuSchedule::reverse ? on_their_way_.size() - 1
                                                    : (random >> 20) % on_their_way_.size());
  return true;
}

void PeerDeliveries::deliver_all_of(State& state, int device) {
  for (size_t i = 0; i < on_their_way_.size();) {
    if (on_their_way_[i].device == device)
      deliver(state, i);
    else
      ++i;
  }
}

}  // namespace nodewright::cpu
