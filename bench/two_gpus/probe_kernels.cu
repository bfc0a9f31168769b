// Kernels of flight.cpp, launch_skew.cpp and abandoned_step.cpp: packets without any work beside them.
#include "bench/two_gpus/packets.cuh"

// One thread a GPU: rank 0 sends the number of the round, rank 1 answers. <<<1, 1>>>
extern "C" __global__ void ping_pong(unsigned long long* peer, const unsigned long long* own, int rank, int rounds,
                                     unsigned first_epoch, AbortWords abort) {
  for (int round = 0; round < rounds; ++round) {
    const unsigned epoch = first_epoch + round;
    if (rank == 0) push(peer, 1.0f, epoch);
    if (take(own, epoch, abort) == 0) return;
    if (rank == 1) push(peer, 1.0f, epoch);
  }
}

// Stores `packets` packets into the peer, `times` over. Block b, thread t: packets b * blockDim + t and so on.
extern "C" __global__ void peer_stores(unsigned long long* peer, long packets, int times, unsigned epoch) {
  for (int i = 0; i < times; ++i)
    for (long at = static_cast<long>(blockIdx.x) * blockDim.x + threadIdx.x; at < packets;
         at += static_cast<long>(gridDim.x) * blockDim.x)
      push(peer + at, 1.0f, epoch + i);
}

// One all-reduce of `count` floats: x_next = x + peer's x; the first of a step begins with ones. Epoch: *step * 64 +
// index + 1. With `waited`, thread 0 of block 0 leaves at waited[*step % 2^17] how many ns its first packet took.
extern "C" __global__ void exchange(const float* x, float* x_next, unsigned long long* peer,
                                    const unsigned long long* own, int count, const unsigned* step, unsigned index,
                                    AbortWords abort, unsigned* waited) {
  let_next_start();
  wait_for_previous();
  const unsigned now = *static_cast<const volatile unsigned*>(step), epoch = now * 64 + index + 1;
  const int at = blockIdx.x * blockDim.x + threadIdx.x;
  const float mine = index == 0 ? 1.0f : at < count ? x[at] : 0;
  if (at < count) push(peer + (index & 1) * count + at, mine, epoch);
  const unsigned long long from = nanoseconds();
  if (at < count) x_next[at] = mine + take(own + (index & 1) * count + at, epoch, abort);
  if (waited && at == 0) waited[now % (1u << 17)] = static_cast<unsigned>(nanoseconds() - from);
}

// The last node of a graph.
extern "C" __global__ void count_step(unsigned* step) {
  if (threadIdx.x == 0) *step += 1;
}
