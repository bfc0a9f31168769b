// The argument vocabulary: the type of a field says how a kernel uses that memory. One struct per kernel, declared
// once, read by g++, by NVRTC and by the host compiler that builds the kernel for the CPU driver.
// A role field is 16 bytes: a device address and a count of elements. Plain fields are scalars.
#pragma once

#ifdef __CUDACC_RTC__
namespace nodewright {
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned int;
using int32_t = int;
using uint64_t = unsigned long long;
using int64_t = long long;
}  // namespace nodewright
#else
#include <cstddef>
#include <cstdint>
#endif

namespace nodewright {

// Storage of a bfloat16; arithmetic is done in float (device/numeric.cuh converts).
struct bf16 {
  uint16_t bits;  // as in memory
};

// Storage of an IEEE 754 binary16.
struct fp16 {
  uint16_t bits;  // as in memory
};

// Never written after load (weights). Beside Settled, the only memory a kernel may touch before wait_for_inputs().
template <class T>
struct Frozen {
  using element = T;  // of the memory
  const T* data;      // device address
  uint64_t count;     // elements
};

// Written by an earlier node or by the host; read only after wait_for_inputs().
template <class T>
struct In {
  using element = T;  // of the memory
  const T* data;      // device address
  uint64_t count;     // elements
};

// As In, and may be read before wait_for_inputs(), with load_settled: whatever writes it has completed before this
// kernel starts, and not only before its wait returns. The edges of a plan see to that.
template <class T>
struct Settled {
  using element = T;  // of the memory
  const T* data;      // device address
  uint64_t count;     // elements
};

// As InOut, and may be read before wait_for_inputs(), as Settled, by the block that writes the element if one does.
template <class T>
struct SettledInOut {
  using element = T;  // of the memory
  T* data;            // device address
  uint64_t count;     // elements
};

// Every element is written. Never read.
template <class T>
struct Out {
  using element = T;  // of the memory
  T* data;            // device address
  uint64_t count;     // elements
};

// Some elements are written, as those of live rows; the rest is undefined after the launch. Never read.
template <class T>
struct PartialOut {
  using element = T;  // of the memory
  T* data;            // device address
  uint64_t count;     // elements
};

// Read and written. A block touches elements that no other block of the launch touches, except through atomics.
template <class T>
struct InOut {
  using element = T;  // of the memory
  T* data;            // device address
  uint64_t count;     // elements
};

// Eight bytes that say themselves when they have arrived: a value and the number of the exchange that it is for,
// written and read by one access of system scope each (device/packets.cuh).
struct alignas(8) Packet {
  uint32_t bits;   // of a float
  uint32_t epoch;  // grows from exchange to exchange, over all launches
};

// Memory of another device that a kernel writes with push(), and never reads. What arrives there says so itself: no
// edge leads from one device to another.
template <class T>
struct PeerOut {
  using element = T;  // of the memory, Packet
  T* data;            // device address, of the other device
  uint64_t count;     // elements
};

// Memory of this device that other devices write with push() while the kernel runs; it is read with take(), after
// wait_for_inputs().
template <class T>
struct PeerIn {
  using element = T;  // of the memory, Packet
  const T* data;      // device address
  uint64_t count;     // elements
};

// Which exchange of its plan a launch takes part in, from 0. A struct with PeerOut or PeerIn fields has one.
struct ExchangeNumber {
  uint32_t value;  // from 0
};

// Memory that a launch may leave out: `.bias = {}` or no word of it. Every other memory field is refused where it is
// empty. In the kernel it is the role that it holds, with data null and count 0 when it was left out.
template <class Role>
struct Optional : Role {
  Optional() = default;
  // From whatever becomes a Role: a view, a weight, another field.
  template <class From>
  requires requires(const From& from, void take(Role)) { take(from); }
  Optional(const From& from) : Role(static_cast<Role>(from)) {}
  template <class Data>
  Optional(Data* first, uint64_t elements) : Role{first, elements} {}
};

// A value that the kernel may set for the conditional node that obeys it: set_condition(args.field, value). Touches no
// memory of the plan. With handle 0 the value goes to `slot` instead, for a run that evaluates conditions on the host;
// an empty one is nobody's.
struct Condition {
  uint64_t handle;
  uint32_t* slot;
};

}  // namespace nodewright
