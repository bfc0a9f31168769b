// Packets between two GPUs: 8 bytes {bits of a float, epoch}, one relaxed store or load of system scope each, so that
// the data says itself when it has arrived. A poll that lasts ends when the abort word is set, and sets it after kMost.
// The abort word is in host memory, and a look at it goes over PCIe: where all threads of a GPU look at once, the looks
// take milliseconds, the peer waits so long, looks too, and the two hold each other up for good. So threads look at
// moments of their own, seldom, and leave what they find in a word of their own GPU, at which all others look.
#pragma once

#include "bench/two_gpus/abort_words.h"

constexpr unsigned kNearEvery = 64;       // polls between looks at the word of the own GPU, about 45 us
constexpr unsigned kFarFrom = 1024;       // polls before a look at the abort word, about 0.7 ms
constexpr unsigned kFarEvery = 1u << 14;  // and between those of one thread, about 10 ms
constexpr unsigned kMost = 1u << 20;      // polls after which the peer counts as lost, about 0.7 s

__device__ __forceinline__ void push(unsigned long long* peer, float value, unsigned epoch) {
  const unsigned long long packet = static_cast<unsigned long long>(epoch) << 32 | __float_as_uint(value);
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(peer), "l"(packet) : "memory");
}

__device__ __forceinline__ unsigned long long look(const unsigned long long* at) {
  unsigned long long packet;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(packet) : "l"(at) : "memory");
  return packet;
}

__device__ __forceinline__ bool arrived(unsigned long long packet, unsigned epoch) { return packet >> 32 == epoch; }

__device__ __forceinline__ float value_of(unsigned long long packet) {
  return __uint_as_float(static_cast<unsigned>(packet));
}

__device__ __forceinline__ unsigned read_word(const unsigned* at) {
  unsigned word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
  return word;
}
__device__ __forceinline__ void write_word(unsigned* at, unsigned word) {
  asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
}

// Whether a poll that has looked `polls` times gives up.
__device__ __forceinline__ bool gives_up(unsigned polls, const AbortWords& abort) {
  if (polls % kNearEvery != 0) return false;
  if (read_word(abort.near) != 0) return true;
  const unsigned moment = (blockIdx.x * blockDim.x + threadIdx.x) * kNearEvery;
  if (polls < kFarFrom || (polls + moment) % kFarEvery != 0) return false;
  if (polls >= kMost) write_word(abort.far, 2);
  if (read_word(abort.far) == 0) return false;
  write_word(abort.near, 1);
  return true;
}

// The value at `at` once it carries `epoch`; 0 after giving up.
__device__ __forceinline__ float take(const unsigned long long* at, unsigned epoch, const AbortWords& abort) {
  unsigned long long packet = look(at);
  for (unsigned polls = 1; !arrived(packet, epoch); packet = look(at), ++polls)
    if (gives_up(polls, abort)) return 0;
  return value_of(packet);
}

__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time)::"memory");
  return time;
}
