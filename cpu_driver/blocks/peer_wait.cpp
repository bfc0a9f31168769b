// Threads that wait for packets of other devices. A cluster of which nobody else can go on is left with its stacks as
// they are, and goes on where it was once a packet that one of its threads waits for has come. Runs on fibers in part,
// as block_runner does: built without sanitizers.
#include <utility>

#include "cpu_driver/blocks/block_state.h"

namespace nodewright::cpu {
namespace {

using State = BlockRunner::State;

void wait_for(const Watch& watch) {
  Fiber* me = running_fiber();
  State& s = *me->owner;
  if (s.cluster->stores == nullptr)
    abandon_block(
        {.fault = BlockFault::trap, .what = "push() or take() in a kernel without PeerOut and PeerIn fields"});
  me->watch = watch;
  s.warp[me->warp].polling |= 1u << me->lane;
  wait_for_others(s, me);
}

// Calls f(state, warp, fiber) for each thread that waits.
template <class Function>
void for_each_waiting(const Cluster& cluster, Function f) {
  for (uint32_t rank = 0; rank < cluster.size; ++rank) {
    State& s = *cluster.blocks[rank];
    for (uint32_t w = 0; w < s.warps; ++w)
      for (uint32_t lanes = s.warp[w].polling; lanes != 0; lanes &= lanes - 1)
        f(s, w, s.fibers[w * kWarpLanes + static_cast<uint32_t>(__builtin_ctz(lanes))]);
  }
}

}  // namespace

bool has_come(const Watch& watch) {
  if (watch.address == nullptr) return true;
  return __atomic_load_n(static_cast<const uint64_t*>(watch.address), __ATOMIC_ACQUIRE) != watch.seen ||
         __atomic_load_n(watch.abort_word, __ATOMIC_ACQUIRE) != 0;
}

uint32_t polling_threads(const Cluster& cluster) {
  uint32_t threads = 0;
  for (uint32_t rank = 0; rank < cluster.size; ++rank)
    for (uint32_t w = 0; w < cluster.blocks[rank]->warps; ++w)
      threads += static_cast<uint32_t>(__builtin_popcount(cluster.blocks[rank]->warp[w].polling));
  return threads;
}

void store_in_peer(void* address, uint64_t value) {
  Cluster& cluster = *running_fiber()->owner->cluster;
  while (cluster.stores == nullptr || cluster.store_count == kMaxStores) wait_for({});  // until they are taken
  cluster.stores[cluster.store_count++] = {reinterpret_cast<uint64_t>(address), value};
}

void wait_for_packet(const void* address, uint64_t seen, uint32_t epoch, const uint32_t* abort_word) {
  wait_for({address, seen, epoch, abort_word});
}

bool BlockRunner::can_go_on() const {
  bool can = false;
  for_each_waiting(states_[0]->own_cluster, [&](State&, uint32_t, const Fiber& f) { can = can || has_come(f.watch); });
  return can;
}

BlockEnd BlockRunner::resume() {
  uint32_t from_rank = 0;
  for_each_waiting(states_[0]->own_cluster, [&](State& s, uint32_t warp, const Fiber& f) {
    if (!has_come(f.watch)) return;
    s.warp[warp].polling &= ~(1u << f.lane);
    set_ready(s, warp, 1u << f.lane);
    from_rank = s.rank;
  });
  return go_on(from_rank);
}

Waiting BlockRunner::waiting() const {
  Waiting all;
  for_each_waiting(states_[0]->own_cluster, [&](const State& s, uint32_t, const Fiber& f) {
    if (all.threads++ == 0) all = {f.watch, s.block, f.thread, 1};
  });
  return all;
}

std::span<const PeerStore> BlockRunner::take_stores() {
  Cluster& cluster = states_[0]->own_cluster;
  return {cluster.stores, std::exchange(cluster.store_count, 0u)};
}

}  // namespace nodewright::cpu
