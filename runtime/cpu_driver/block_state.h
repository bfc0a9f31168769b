// The state of the block that an OS thread runs, for the three files that touch it: block_runner, access_check and
// fault_handler. All of them run on fibers, without sanitizers, and allocate nothing.
#pragma once

#include "runtime/cpu_driver/block_runner.h"

namespace nodewright::cpu {

struct Fiber : emulation::ThreadView {
  BlockRunner::State* owner;
  void* sp;  // null: not started
  uint32_t stack;
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
  Meeting meetings[kMeetings];
};

struct BlockRunner::State : emulation::BlockView {
  State();
  ~State();

  const Grid* work = nullptr;
  uint32_t threads = 0, warps = 0;
  uint32_t alive = 0, arrived = 0;  // at the barrier
  int barrier_line = 0;
  uint32_t ready_warps = 0;
  uint64_t random = 1;
  void* main_sp = nullptr;
  uint32_t free_stacks = 0;  // top of free_stack[]
  BlockFailure failure;
  emulation::Index3 laid_out{};  // block size for which the fibers' indices are set

  unsigned char* shared_end;  // followed by a guard page
  unsigned char* shared_map;
  FiberStacks stacks{kMaxBlockThreads};
  uint32_t free_stack[kMaxBlockThreads];
  uint32_t fresh_stacks = 0;  // stacks from this one on were never used in this block
  Fiber fibers[kMaxBlockThreads];
  Warp warp[kMaxBlockThreads / kWarpLanes];
};

// The running fiber, null outside kernels. Images read it through Hooks::thread_slot.
extern thread_local emulation::ThreadView* running_thread __attribute__((tls_model("initial-exec")));

inline Fiber* running_fiber() { return static_cast<Fiber*>(running_thread); }

// Leaves the block for good: records the failure (block and thread are filled in) and goes on in BlockRunner::run.
[[noreturn]] void abandon_block(const BlockFailure& failure);

}  // namespace nodewright::cpu
