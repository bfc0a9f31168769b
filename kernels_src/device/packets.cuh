// Packets between devices: one relaxed access of system scope each, of eight bytes that carry a value and the epoch of
// its exchange, so that what has arrived says so itself. Nothing is cleared and nothing else is ordered by a packet.
// A kernel pushes all that it has before it takes anything, takes from its own device's memory only, and runs as one
// wave: a block may wait for a block of the peer that has yet to push.
#pragma once

#include "kernels_src/device/dialect.cuh"

namespace nodewright {

// Looks at a packet before the first look at the abort word, some 45 us, and between later ones, some 10 ms: a look at
// a packet in local memory takes about 0.7 us on an H100 (the wait of 0.6 to 0.75 us in a chain of small nodes).
constexpr uint32_t kFirstLook = 64, kLookEvery = 1u << 14;

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

// Whether the host has given up the exchange.
NODEWRIGHT_DEVICE bool is_aborted(const uint32_t* abort_word) {
#ifdef __CUDACC_RTC__
  uint32_t word;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(abort_word) : "memory");
  return word != 0;
#else
  return *static_cast<const volatile uint32_t*>(abort_word) != 0;
#endif
}

// The value at `at` once it carries `epoch`; `packet` is what a first look has seen there. NaN when the exchange is
// given up.
NODEWRIGHT_DEVICE float take(const Packet* at, Packet packet, uint32_t epoch, const uint32_t* abort_word) {
#ifdef __CUDACC_RTC__
  for (uint32_t looks = 1; packet.epoch != epoch; packet = look(at), ++looks)
    if ((looks == kFirstLook || looks % kLookEvery == 0) && is_aborted(abort_word)) return __uint_as_float(0x7fffffffu);
#else
  for (; packet.epoch != epoch; packet = look(at)) {
    if (is_aborted(abort_word)) return __uint_as_float(0x7fffffffu);
    emulation::hooks.wait_for_packet(at, packet_bits(packet), epoch, abort_word);
  }
#endif
  return __uint_as_float(packet.bits);
}

}  // namespace nodewright
