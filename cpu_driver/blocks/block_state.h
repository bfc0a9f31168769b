// The state of the blocks that an OS thread runs, for the four files that touch it: block_runner, cluster, access_check
// and fault_handler. All of them run on fibers, without sanitizers, and allocate nothing.
#pragma once

#include "cpu_driver/blocks/block_runner.h"

namespace nodewright::cpu {

struct Fiber : emulation::ThreadView {
  BlockRunner::State* owner;
  void* sp;  // null: not started
  uint32_t stack;
  Watch watch;      // while its bit is in Warp::polling
  uint32_t awaits;  // the phase of the cluster's barrier, from 1, that it has arrived for; 0 once it waits for it
};

// Lanes that meet in one collective: the same mask and the same kind.
struct Meeting {
  uint32_t mask = 0, arrived = 0;  // mask 0: free
  emulation::WarpBody body = nullptr;
  void* lanes[kWarpLanes];
};

struct Warp {
  static constexpr int kMeetings = 4;  // disjoint masks under way at once
  uint32_t ready, alive;
  uint32_t in_cluster_wait;  // lanes
  uint32_t polling;          // lanes that wait for packets
  struct ClusterCall {
    uint32_t phase;  // 0: none yet
    int line;
  } arrives, waits;  // the latest
  Meeting meetings[kMeetings];
};

// The blocks that run together, and their barrier. A launch without clusters has them of one block.
struct Cluster {
  uint32_t size = 1;
  uint32_t arrived = 0;  // threads, in this phase
  uint32_t phase = 0;    // barriers passed
  BlockRunner::State* blocks[kMaxClusterBlocks];
  void* main_sp = nullptr;
  PeerStore* stores = nullptr;  // kMaxStores of them; null: the grid meets no peers
  uint32_t store_count = 0;
  BlockFailure failure;
};

struct BlockRunner::State : emulation::BlockView {
  State();
  ~State();

  const Grid* work = nullptr;
  Cluster* cluster = nullptr;
  uint32_t rank = 0;  // in it
  uint32_t threads = 0, warps = 0;
  uint32_t alive = 0, arrived = 0;  // at the barrier
  int barrier_line = 0;
  uint32_t ready_warps = 0;
  bool alone = true;  // in its cluster
  uint64_t random = 1;
  uint32_t free_stacks = 0;      // top of free_stack[]
  emulation::Index3 laid_out{};  // block size for which the fibers' indices are set

  unsigned char* shared_end;  // followed by a guard page
  unsigned char* shared_map;
  FiberStacks stacks{kMaxBlockThreads};
  uint32_t free_stack[kMaxBlockThreads];
  uint32_t fresh_stacks = 0;  // stacks from this one on were never used in this block
  Fiber fibers[kMaxBlockThreads];
  Warp warp[kMaxBlockThreads / kWarpLanes];
  Cluster own_cluster;  // of the first block of a cluster
};

// The running fiber, null outside kernels. Images read it through Hooks::thread_slot.
extern thread_local emulation::ThreadView* running_thread __attribute__((tls_model("initial-exec")));

inline Fiber* running_fiber() { return static_cast<Fiber*>(running_thread); }

inline void set_ready(BlockRunner::State& s, uint32_t warp, uint32_t lanes) {
  s.warp[warp].ready |= lanes;
  if (s.warp[warp].ready != 0) s.ready_warps |= 1u << warp;
}

// Goes on in another thread of the cluster until someone has set this one ready; abandons it when none can go on.
void wait_for_others(BlockRunner::State& s, Fiber* me);

// Threads of its blocks that wait for packets.
uint32_t polling_threads(const Cluster& cluster);

// Threads of its blocks that have not ended: those that its barrier is for (PTX ISA, barrier.cluster).
uint32_t alive_threads(const Cluster& cluster);

// A thread has ended while others have arrived at the barrier.
void leave_cluster(Cluster& cluster, const Fiber* me);

// Hooks, by their names.
int cluster_rank();
void cluster_arrive(int line);
void cluster_wait(int line);
void store_in_peer(void* address, uint64_t value);
void wait_for_packet(const void* address, uint64_t seen, uint32_t epoch, const uint32_t* abort_word);
unsigned char* shared_of_block(int rank, const void* own, size_t bytes, emulation::Access access);

// Leaves the cluster for good: records the failure (block and thread are filled in) and goes on in BlockRunner::run.
[[noreturn]] void abandon_block(const BlockFailure& failure);

}  // namespace nodewright::cpu
