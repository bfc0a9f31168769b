#include "cpu_driver/work/peer_deliveries.h"

#include <algorithm>
#include <cstdio>

#include "cpu_driver/driver_state.h"
#include "cpu_driver/work/report_words.h"

namespace nodewright::cpu {
namespace {

// Where nothing can go on, this part of what is on its way arrives, and one store at least: one at a time would let
// every block look at every packet for each of them.
constexpr size_t kPart = 8;

uint64_t next(uint64_t random) { return random * 6364136223846793005ull + 1442695040888963407ull; }

}  // namespace

void PeerDeliveries::send(State& state, int device, const std::string& sender, std::span<const PeerStore> stores) {
  if (stores.empty()) return;
  const auto name = std::make_shared<const std::string>(sender);
  for (const PeerStore& store : stores) {
    if (store.address == 0) {  // a fence
      deliver_all_of(state, device);
      continue;
    }
    const auto [queue, is_new] = queues_.try_emplace(store.address, Queue{{}, addresses_.size()});
    if (is_new) addresses_.push_back(store.address);
    queue->second.stores.push_back({store.value, device, name});
  }
}

// The oldest store to the address at `place`: those of one thread to one address keep their order (PTX ISA, Memory
// Consistency Model, "Coherence Order").
void PeerDeliveries::deliver(State& state, size_t place) {
  const uint64_t address = addresses_[place];
  Queue& queue = queues_.at(address);
  const OnItsWay store = std::move(queue.stores.front());
  queue.stores.pop_front();
  if (queue.stores.empty()) {
    queues_.at(addresses_.back()).place = place;
    addresses_[place] = addresses_.back();
    addresses_.pop_back();
    queues_.erase(address);
  }
  if (state.memory->find(address, sizeof store.value) == nullptr)
    return state.fail(CUDA_ERROR_ILLEGAL_ADDRESS, *store.sender + ": a store into a peer arrives at address " +
                                                      hex(address) + " " + state.memory->describe(address));
  __atomic_store_n(reinterpret_cast<uint64_t*>(address), store.value, __ATOMIC_RELEASE);
}

void PeerDeliveries::deliver_some(State& state, CpuSchedule schedule, uint64_t random) {
  if (schedule == CpuSchedule::forward)
    while (!addresses_.empty()) deliver(state, 0);
  if (schedule != CpuSchedule::seeded) return;
  for (uint64_t count = random >> 30 & 3; count > 0 && !addresses_.empty(); --count, random = next(random))
    deliver(state, (random >> 33) % addresses_.size());
}

bool PeerDeliveries::deliver_next(State& state, CpuSchedule schedule, uint64_t random) {
  if (addresses_.empty()) return false;
  for (size_t count = 1 + addresses_.size() / kPart; count > 0 && !addresses_.empty(); --count, random = next(random))
    deliver(state, schedule == CpuSchedule::reverse ? addresses_.size() - 1 : (random >> 33) % addresses_.size());
  return true;
}

void PeerDeliveries::deliver_all_of(State& state, int device) {
  for (size_t place = addresses_.size(); place-- > 0;) {
    const auto of_device = [&] {
      const auto queue = place < addresses_.size() ? queues_.find(addresses_[place]) : queues_.end();
      return queue != queues_.end() && queue->second.stores.front().device == device;
    };
    while (of_device()) deliver(state, place);
  }
}

void PeerDeliveries::drop() {
  addresses_.clear();
  queues_.clear();
}

}  // namespace nodewright::cpu
