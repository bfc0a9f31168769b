// When the blocks of a launch ran: what the timed form of a kernel (device/dialect.cuh) leaves behind, and the argument
// struct that tells it where.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

// One block's own slot, written by its thread 0 alone: no atomics, whatever the grid, and no two blocks in one 32-byte
// sector of memory. Nanoseconds of the device's clock; on the CPU driver, of the host's.
// On one H200 (2026-11-20) that clock steps by 32 ns, and a node of 132 blocks that lasts 1.14 us takes 3 % longer with
// a slot a block, 8 % with atomics on one slot.
struct alignas(32) BlockStamps {
  uint64_t started;  // before the block's first instruction
  uint64_t waited;   // after its wait returned; 0 when the kernel does not wait
  uint64_t ended;    // after every thread's last instruction
  uint64_t sm;       // the multiprocessor on which it ended; 0 on the CPU driver
};

// The one argument struct of a timed kernel: the kernel's own, then its slots.
//
// `stamps` is the one Out field that is written before the wait: its memory belongs to one node of the plan, nothing
// else in the launch touches it, and two launches of a graph do not overlap.
template <class Args>
struct Timed {
  Args args;
  PartialOut<BlockStamps> stamps;  // [blocks], x fastest
};

// Where `stamps` lies behind an argument struct of `args_bytes` bytes: at the next multiple of a role field's
// alignment.
constexpr uint64_t timed_stamps_offset(uint64_t args_bytes) { return (args_bytes + 7) / 8 * 8; }

}  // namespace nodewright
