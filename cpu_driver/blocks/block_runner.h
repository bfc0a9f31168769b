// Runs one cluster of a kernel's blocks, mostly a single block, on the calling OS thread: its threads as fibers, its
// barriers and warp collectives as rendezvous. Neither distributes clusters (worker_pool) nor knows CUDA objects.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "cpu_driver/blocks/fiber.h"
#include "cpu_driver/kernel_abi.h"
#include "runtime/calls/cpu_driver_api.h"

namespace nodewright::cpu {

inline constexpr uint32_t kMaxBlockThreads = 1024;
inline constexpr uint32_t kWarpLanes = 32;
// CUDA C++ Programming Guide, "Thread Block Clusters": an H100 takes 16 when the function allows it.
inline constexpr uint32_t kMaxClusterBlocks = 16;
inline constexpr uint32_t kMaxSharedBytes = 227 << 10;  // opt-in limit of compute capability 9.0

// What came of running a cluster: waiting, all threads that have not ended wait for packets or for others that do.
enum class BlockEnd : uint32_t { finished, failed, waiting };

// Eight bytes on their way to another device; without an address a fence, after which nothing arrives before what its
// cluster has stored until then.
struct PeerStore {
  uint64_t address, value;
};
// Those that a cluster may have on their way before somebody takes them (BlockRunner::take_stores).
inline constexpr uint32_t kMaxStores = 4096;

// What a thread waits for: a packet that is not `seen` any more, or an abort word that is not 0. Without an address:
// for its stores to be taken.
struct Watch {
  const void* address = nullptr;
  uint64_t seen = 0;
  uint32_t epoch = 0;
  const uint32_t* abort_word = nullptr;
};
// Whether the thread can go on.
bool has_come(const Watch& watch);

// The first of the threads that wait for packets, and how many do.
struct Waiting {
  Watch watch{};
  emulation::Index3 block{}, thread{};
  uint32_t threads = 0;
};

enum class BlockFault : uint32_t {
  none,
  illegal_address,  // SIGSEGV or SIGBUS: 700
  bad_access,       // an access that the arguments do not declare: 719
  deadlock,         // threads wait for each other, diverged, or name absent lanes: 719
  trap,             // the kernel gave up, or divided by zero: 719
  timeout,          // 702
};

// What went wrong, by value: it is filled on a fiber or in a signal handler, where nothing may be allocated.
struct BlockFailure {
  BlockFault fault = BlockFault::none;
  const char* what = nullptr;  // static text
  uint64_t address = 0;
  uint32_t bytes = 0;
  uint32_t access = 0;  // emulation::Access
  int field = -1;       // of the access rules
  emulation::Index3 block{}, thread{};
};

struct AccessRules;
struct Conditional;

// One grid as its blocks see it.
struct Grid {
  void (*entry)(const void*) = nullptr;
  const void* args = nullptr;
  uint32_t args_bytes = 0;
  emulation::Index3 grid{}, block{};
  emulation::Index3 cluster{1, 1, 1};  // blocks, at most kMaxClusterBlocks; each divides the grid's
  bool device_has_clusters = true;
  uint32_t shared_bytes = 0;
  CpuSchedule schedule = CpuSchedule::forward;
  uint64_t seed = 0;
  const AccessRules* rules = nullptr;          // null: accesses are not checked
  bool threads_wait = false;                   // checked: each of them, before it ends
  bool meets_peers = false;                    // has PeerOut or PeerIn fields: its blocks may wait
  std::span<Conditional* const> conditionals;  // of the Condition arguments: what set_condition() may set

  uint64_t blocks() const { return uint64_t{grid.x} * grid.y * grid.z; }
  uint32_t cluster_blocks() const { return cluster.x * cluster.y * cluster.z; }
  uint64_t clusters() const { return blocks() / cluster_blocks(); }
};

class BlockRunner {
 public:
  BlockRunner();
  ~BlockRunner();
  BlockRunner(const BlockRunner&) = delete;
  BlockRunner& operator=(const BlockRunner&) = delete;

  // Runs cluster number `index` (x fastest) until it has ended, waits, or was abandoned: failure() says why.
  BlockEnd run(const Grid& grid, uint64_t index);
  const BlockFailure& failure() const;
  // Resumes a waiting cluster's threads whose packets have come. On the thread that ran it.
  BlockEnd resume();
  bool can_go_on() const;
  Waiting waiting() const;
  // What it has stored in peers since the last call; valid until it goes on.
  std::span<const PeerStore> take_stores();

  struct State;  // block_state.h

 private:
  BlockEnd go_on(uint32_t from_rank);

  std::unique_ptr<PeerStore[]> stores_;         // of a grid that meets peers
  std::vector<std::unique_ptr<State>> states_;  // by rank in the cluster; the first is always there
};

// The hooks that images call.
emulation::Hooks block_hooks();

}  // namespace nodewright::cpu
