// The barrier of a cluster and the memory of its other blocks: barrier.cluster and mapa of the PTX ISA. Like
// block_runner, it runs on fibers: built without sanitizers.
#include "cpu_driver/blocks/block_state.h"

namespace nodewright::cpu {
namespace {

using State = BlockRunner::State;

[[noreturn]] void misuse(const char* what) { abandon_block({.fault = BlockFault::deadlock, .what = what}); }

State& state_with_clusters(Fiber* me) {
  if (!me->owner->work->device_has_clusters)
    abandon_block({.fault = BlockFault::trap, .what = "a kernel asks for its cluster below compute capability 9.0"});
  return *me->owner;
}

// Both instructions are .aligned: all lanes of a warp execute the same one.
void meet_at(Warp::ClusterCall& call, uint32_t phase, int line) {
  if (call.phase == phase && call.line != line)
    misuse("divergent cluster barrier: lanes of one warp arrive or wait in different lines");
  call = {phase, line};
}

// The barrier is complete: who waits for it goes on.
void release(Cluster& cluster) {
  cluster.arrived = 0;
  ++cluster.phase;
  for (uint32_t rank = 0; rank < cluster.size; ++rank) {
    State& s = *cluster.blocks[rank];
    for (uint32_t w = 0; w < s.warps; ++w) {
      set_ready(s, w, s.warp[w].in_cluster_wait);
      s.warp[w].in_cluster_wait = 0;
    }
  }
}

}  // namespace

uint32_t alive_threads(const Cluster& cluster) {
  uint32_t threads = 0;
  for (uint32_t rank = 0; rank < cluster.size; ++rank) threads += cluster.blocks[rank]->alive;
  return threads;
}

void leave_cluster(Cluster& cluster, const Fiber* me) {
  if (me->awaits > cluster.phase) --cluster.arrived;
  if (cluster.arrived > 0 && cluster.arrived == alive_threads(cluster)) release(cluster);
}

int cluster_rank() { return static_cast<int>(state_with_clusters(running_fiber()).rank); }

void cluster_arrive(int line) {
  Fiber* me = running_fiber();
  State& s = state_with_clusters(me);
  Cluster& cluster = *s.cluster;
  if (me->awaits != 0) misuse("cluster_arrive() twice without cluster_wait() in between");
  me->awaits = cluster.phase + 1;
  meet_at(s.warp[me->warp].arrives, me->awaits, line);
  if (++cluster.arrived == alive_threads(cluster)) release(cluster);
}

void cluster_wait(int line) {
  Fiber* me = running_fiber();
  State& s = state_with_clusters(me);
  if (me->awaits == 0) misuse("cluster_wait() without cluster_arrive() before it");
  const uint32_t phase = me->awaits;
  me->awaits = 0;
  meet_at(s.warp[me->warp].waits, phase, line);
  if (s.cluster->phase >= phase) return;
  s.warp[me->warp].in_cluster_wait |= 1u << me->lane;
  wait_for_others(s, me);
}

unsigned char* shared_of_block(int rank, const void* own, size_t bytes, emulation::Access access) {
  const State& s = state_with_clusters(running_fiber());
  const auto refuse = [&](const char* what) {
    abandon_block({.fault = BlockFault::bad_access,
                   .what = what,
                   .bytes = static_cast<uint32_t>(bytes),
                   .access = static_cast<uint32_t>(access)});
  };
  if (rank < 0 || static_cast<uint32_t>(rank) >= s.cluster->size) refuse("a block rank outside the cluster");
  const auto begin = reinterpret_cast<uintptr_t>(own), shared = reinterpret_cast<uintptr_t>(s.shared);
  if (begin < shared || begin + bytes > shared + s.work->shared_bytes)
    refuse("an access to another block by an address outside the calling block's shared memory");
  const State& other = *s.cluster->blocks[rank];
  if (&other != &s && s.cluster->phase == 0)
    refuse("an access to another block's shared memory before the cluster's first barrier");
  if (other.alive == 0) refuse("an access to the shared memory of a block whose threads have all ended");
  return other.shared + (begin - shared);
}

}  // namespace nodewright::cpu
