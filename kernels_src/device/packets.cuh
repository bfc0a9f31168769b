// Packets between devices: one relaxed access of system scope each, of eight bytes that carry a value and the epoch of
// its exchange, so that what has arrived says so itself. Nothing is cleared and nothing else is ordered by a packet.
// A kernel pushes all that it has before it takes anything, takes from its own device's memory only, and runs as one
// wave: a block may wait for a block of the peer that has yet to push.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

// How a thread learns that the host has given up an exchange. The host's word is behind PCIe, where looks of all
// threads of a device at once may take milliseconds: the likely cause of steps of 25 to 35 ms instead of 1.3 (two H200,
// driver 580.159.04, bench/results/2026-11-26-h200x2-exchange.txt), in which each side kept the other waiting. So each
// thread looks there at a moment of its own, once in 2^14 looks at its packet, some 10 ms, and not before 2^10; what
// one has found is in a word of the device, at which all look in every 64th.
struct AbortWords {
  const uint32_t* host;  // pinned memory
  uint32_t* device;      // of this device
};
constexpr uint32_t kLookNear = 64, kLookFarFrom = 1u << 10, kLookFar = 1u << 14;

NODEWRIGHT_DEVICE uint64_t packet_bits(Packet packet) {
  return static_cast<uint64_t>(packet.epoch) << 32 | packet.bits;
}
NODEWRIGHT_DEVICE Packet packet_of(uint64_t bits) {
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32)};
}

// Sends `value` to `at`, in a peer's memory.
NODEWRIGHT_DEVICE void push(Packet* at, float value, uint32_t epoch) {
  const uint64_t bits = packet_bits({__float_as_uint(value), epoch});
#ifdef __CUDACC_RTC__
  asm volatile("st.relaxed.sys.global.b64 [%0], %1;" ::"l"(at), "l"(bits) : "memory");
#else
  emulation::store_in_peer(at, bits);
#endif
}

// The packet at `at` as it is now, arrived or not.
NODEWRIGHT_DEVICE Packet look(const Packet* at) {
#ifdef __CUDACC_RTC__
  uint64_t bits;
  asm volatile("ld.relaxed.sys.global.b64 %0, [%1];" : "=l"(bits) : "l"(at) : "memory");
  return packet_of(bits);
#else
  return packet_of(emulation::load_from_peer(at));
#endif
}

#ifdef __CUDACC_RTC__
NODEWRIGHT_DEVICE bool is_set(const uint32_t* at) {
  uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(at) : "memory");
  return word != 0;
}

NODEWRIGHT_DEVICE bool is_given_up(uint32_t looks, const AbortWords& words) {
  if (looks % kLookNear != 0) return false;
  if (is_set(words.device)) return true;
  const uint32_t moment = (blockIdx.x * blockDim.x + threadIdx.x) * kLookNear;
  if (looks < kLookFarFrom || (looks + moment) % kLookFar != 0 || !is_set(words.host)) return false;
  atomicExch(words.device, 1u);
  return true;
}
#endif

// The value at `at` once it carries `epoch`; `packet` is what a first look has seen there. NaN when the exchange is
// given up.
NODEWRIGHT_DEVICE float take(const Packet* at, Packet packet, uint32_t epoch, const AbortWords& words) {
#ifdef __CUDACC_RTC__
  for (uint32_t looks = 1; packet.epoch != epoch; packet = look(at), ++looks)
    if (is_given_up(looks, words)) return __uint_as_float(0x7fffffffu);
#else
  for (; packet.epoch != epoch; packet = look(at)) {
    if (*static_cast<const volatile uint32_t*>(words.host) != 0) return __uint_as_float(0x7fffffffu);
    emulation::hooks.wait_for_packet(at, packet_bits(packet), epoch, words.host);
  }
#endif
  return __uint_as_float(packet.bits);
}

// Sixteen bytes that a flag will say have come: sent by any threads of a block, a barrier after them, then by one
// thread fence_peers() and the flag's push(). `at`: in a peer's memory.
NODEWRIGHT_DEVICE void push_word(uint4* at, const uint4& word) {
#ifdef __CUDACC_RTC__
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(word.x), "r"(word.y), "r"(word.z), "r"(word.w)
               : "memory");
#else
  auto* const halves = reinterpret_cast<uint64_t*>(at);
  emulation::store_in_peer(halves, packet_bits({word.x, word.y}));
  emulation::store_in_peer(halves + 1, packet_bits({word.z, word.w}));
#endif
}

// What the block has sent to peers before its last barrier arrives before what this thread sends from now on.
NODEWRIGHT_DEVICE void fence_peers() {
#ifdef __CUDACC_RTC__
  asm volatile("fence.acq_rel.sys;" ::: "memory");
#else
  emulation::fence_peers();
#endif
}

// Until the flag carries `epoch` and `count` at least; what was sent before it is there then, for this thread. False
// when the exchange is given up.
NODEWRIGHT_DEVICE bool wait_for_flag(const Packet* at, uint32_t count, uint32_t epoch, const AbortWords& words) {
  for (uint32_t looks = 1;; ++looks) {
#ifdef __CUDACC_RTC__
    uint64_t bits;
    asm volatile("ld.acquire.sys.global.b64 %0, [%1];" : "=l"(bits) : "l"(at) : "memory");
    const Packet flag = packet_of(bits);
    if (flag.epoch == epoch && flag.bits >= count) return true;
    if (is_given_up(looks, words)) return false;
#else
    const Packet flag = look(at);
    if (flag.epoch == epoch && flag.bits >= count) return true;
    if (*static_cast<const volatile uint32_t*>(words.host) != 0) return false;
    emulation::hooks.wait_for_packet(at, packet_bits(flag), epoch, words.host);
#endif
  }
}

// A word that a flag has said is there; of this device's memory.
NODEWRIGHT_DEVICE uint4 load_word(const uint4* at) {
#ifdef __CUDACC_RTC__
  uint4 word;
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];"
               : "=r"(word.x), "=r"(word.y), "=r"(word.z), "=r"(word.w)
               : "l"(at)
               : "memory");
  return word;
#else
  const auto* const halves = reinterpret_cast<const uint64_t*>(at);
  const Packet low = packet_of(emulation::load_from_peer(halves)),
               high = packet_of(emulation::load_from_peer(halves + 1));
  return make_uint4(low.bits, low.epoch, high.bits, high.epoch);
#endif
}

}  // namespace nodewright
