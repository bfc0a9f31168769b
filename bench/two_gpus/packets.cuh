// Packets between two GPUs: 8 bytes {bits of a float, epoch}, one relaxed store or load of system scope each, so that
// the data says itself when it has arrived. A poll that lasts ends when the abort word is set, and sets it after kMost.
#pragma once

constexpr unsigned kFirstLook = 64;        // polls before the first look at the abort word, about 45 us
constexpr unsigned kLookEvery = 1u << 14;  // and between the later ones, about 10 ms
constexpr unsigned kMost = 1u << 20;       // polls after which the peer counts as lost, about 0.7 s

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

// Whether a poll that has looked `polls` times gives up.
__device__ __forceinline__ bool gives_up(unsigned polls, unsigned* abort_word) {
  if (polls != kFirstLook && polls % kLookEvery != 0) return false;
  unsigned word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(abort_word) : "memory");
  if (word == 0 && polls >= kMost) {
    word = 2;
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(abort_word), "r"(word) : "memory");
  }
  return word != 0;
}

// The value at `at` once it carries `epoch`; 0 after giving up.
__device__ __forceinline__ float take(const unsigned long long* at, unsigned epoch, unsigned* abort_word) {
  unsigned long long packet = look(at);
  for (unsigned polls = 1; !arrived(packet, epoch); packet = look(at), ++polls)
    if (gives_up(polls, abort_word)) return 0;
  return value_of(packet);
}

__device__ __forceinline__ void let_next_start() { asm volatile("griddepcontrol.launch_dependents;"); }
__device__ __forceinline__ void wait_for_previous() { asm volatile("griddepcontrol.wait;" ::: "memory"); }

__device__ __forceinline__ unsigned long long nanoseconds() {
  unsigned long long time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time)::"memory");
  return time;
}
