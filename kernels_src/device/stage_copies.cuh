// Rows of global memory on their way into stages of a block's shared memory.
//
// From compute capability 9.0 on the warps ask the copy engine for whole rows in turns, the last one first; a stage's
// barrier counts their bytes (PTX ISA, cp.async.bulk, mbarrier). A copy takes its operands from registers that a warp's
// lanes share, so copies by several lanes become a loop over these lanes. Rows that follow each
// other are one copy: a block that asks for contiguous memory reads it at the bandwidth of the device, one that asks
// for 128 bytes of 16 rows at a time at 80 % of it (docs/products.md). Before 9.0, and on the CPU driver, every thread
// copies its share of 16-byte words.
#pragma once

#include "kernels_src/device/bulk_copies.cuh"
#include "kernels_src/device/tensor.cuh"

namespace nodewright {

// `rows` of `bytes`, a multiple of 16; both strides in bytes.
struct RowsCopy {
  unsigned char* to;
  const void* from;
  int rows, bytes, to_stride;
  int64_t from_stride;
};

// How a block asks for a copy.
enum class CopyForm {
  whole,       // one copy, whose bytes no other block reads and nobody reads soon; by rows that would cost a tenth
  rows,        // one lane of each warp asks for its rows
  short_rows,  // of 2 or 3 KB: a lane asks for each, and all addresses are there at once (docs/products.md)
};

// A stage is full once each of its kParts has been requested and has arrived. kWordsOfThread: 16-byte words of a stage
// that are one thread's share at most. Every thread of the block calls everything.
template <int kThreadsOfBlock, int kStages, int kParts, int kWordsOfThread>
struct StageCopies {
#if defined(__CUDACC_RTC__) && __CUDA_ARCH__ >= NODEWRIGHT_BULK_COPIES_FROM
  static constexpr int kBytes = 128;  // of shared memory: a barrier a stage
  static constexpr int kGroups = 0;   // of `words`, that requests of stages have closed
  static_assert(kStages * 8 <= kBytes);

  CopyBarrier barriers;  // of the first stage
  uint32_t phases = 0;   // a bit a stage: of the barrier's phase that is waited for next
  AsyncCopies<1> words;  // that a thread asks for itself

  NODEWRIGHT_DEVICE explicit StageCopies(unsigned char* shared) : barriers{shared_address(shared)} {
    if (threadIdx.x == kThreadsOfBlock - 32) {
      NODEWRIGHT_UNROLL
      for (int i = 0; i < kStages; ++i) barrier_of(i).init(kParts);
      CopyBarrier::publish();
    }
    __syncthreads();
  }

  template <CopyForm kForm>
  NODEWRIGHT_DEVICE void request(int stage, const RowsCopy& copy) {
    constexpr int kWarpsOfBlock = kThreadsOfBlock / 32;
    const CopyBarrier barrier = barrier_of(stage);
    if (threadIdx.x == kThreadsOfBlock - 32) barrier.arrive_and_expect(copy.rows * copy.bytes);
    const uint32_t first = shared_address(copy.to);
    const auto copy_row = [&](int row) {
      barrier.copy(first + row * copy.to_stride, static_cast<const unsigned char*>(copy.from) + row * copy.from_stride,
                   copy.bytes);
    };
    if constexpr (kForm == CopyForm::whole) {
      if (uniform_warp() == kWarpsOfBlock - 1 && elected_lane()) barrier.copy_once(first, copy.from, copy.bytes);
    } else if constexpr (kForm == CopyForm::rows) {
      const int last = kWarpsOfBlock - 1 - uniform_warp();
      if (!elected_lane()) return;
      NODEWRIGHT_NO_UNROLL
      for (int row = last; row < copy.rows; row += kWarpsOfBlock) copy_row(row);
    } else {
      for (int row = lane_of_warp() * kWarpsOfBlock + kWarpsOfBlock - 1 - warp_of_block(); row < copy.rows;
           row += kThreadsOfBlock)
        copy_row(row);
    }
  }
  NODEWRIGHT_DEVICE void close() {}

  // All threads may read the stage then.
  NODEWRIGHT_DEVICE void wait(int stage) {
    barrier_of(stage).wait(phases >> stage);
    phases ^= 1u << stage;
  }

 private:
  NODEWRIGHT_DEVICE CopyBarrier barrier_of(int stage) const { return {barriers.address + 8 * stage}; }
#else
  static constexpr int kBytes = 128;
  static constexpr int kGroups = kStages;

  AsyncCopies<kWordsOfThread, 2 * kStages + 1> words{};

  NODEWRIGHT_DEVICE explicit StageCopies(unsigned char*) {}

  template <CopyForm>
  NODEWRIGHT_DEVICE void request(int, const RowsCopy& copy) {
    const int of_row = copy.bytes / 16;
    for (int i = static_cast<int>(threadIdx.x); i < copy.rows * of_row; i += kThreadsOfBlock) {
      const int row = i / of_row, at = i % of_row * 16;
      words.request(copy.to + row * copy.to_stride + at,
                    static_cast<const unsigned char*>(copy.from) + row * copy.from_stride + at, true);
    }
  }
  // After what is requested at once, and in the place of stages that are not: the last kStages - 1 are on their way
  // while one is waited for.
  NODEWRIGHT_DEVICE void close() { words.close_group(); }
  NODEWRIGHT_DEVICE void wait(int) {
    words.template wait<kStages - 1>();
    __syncthreads();
  }
#endif
};

}  // namespace nodewright
