// What a node that brings no argument struct does with memory: reads(x), writes(y), updates(z), frozen(w). For the
// arguments of foreign kernels (graph/launch_arguments.h), for nodes that list their uses, and for values nodes.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <type_traits>

#include "graph/node.h"
#include "runtime/memory/array_places.h"
#include "runtime/memory/memory.h"

namespace nodewright {

// A name as part of a type: reads<"x">(view). It lasts as long as the program.
template <size_t N>
struct FixedName {
  char text[N];                                                                     // with its end
  consteval FixedName(const char (&literal)[N]) { std::copy_n(literal, N, text); }  // of a literal
  constexpr std::string_view view() const { return {text, N - 1}; }
};

// One end of a copy: device memory, pinned host memory, or a place in an array (ArrayRange::at).
struct CopyEnd {
  uint64_t address = 0, bytes = 0;  // the range
  bool host = false;                // pinned host memory
  bool weight = false;              // which no node writes
  CUarray array = nullptr;          // or null; then the address is one of ArrayPlaces
  ArrayShape array_shape = {};      // of the whole array

  // The whole of a view, a weight or a buffer, or a range by its address.
  template <class T>
  CopyEnd(const View<T>& view) : address(view.address()), bytes(view.bytes()) {}
  template <class T>
  CopyEnd(const Weight<T>& weight) : address(weight.address()), bytes(weight.bytes()), weight(true) {}
  CopyEnd(const DeviceBuffer& buffer) : address(buffer.address()), bytes(buffer.bytes()) {}
  CopyEnd(const PinnedBuffer& buffer)
      : address(reinterpret_cast<uint64_t>(buffer.data())), bytes(buffer.bytes()), host(true) {}
  CopyEnd(uint64_t address, uint64_t bytes, bool host) : address(address), bytes(bytes), host(host) {}
};

// A CUDA array in a plan (GraphBuilder::declare_array): a buffer of kind "array", row after row from `address` on,
// which is one of ArrayPlaces. The array still belongs to its owner and must outlive all graphs of the plan.
struct ArrayRange {
  CUarray array = nullptr;  // the driver's handle
  uint64_t address = 0;     // of its first byte in the plan
  ArrayShape shape;         // of the whole

  // An end of copy_box, copy_rows or copy: byte x_bytes of row y of slice z.
  CopyEnd at(uint64_t x_bytes = 0, uint64_t y = 0, uint64_t z = 0) const;
  // All of it, for lists of uses and with_uses(texture, reads(array.bytes())): no node gets its address.
  View<uint8_t> bytes() const { return {reinterpret_cast<uint8_t*>(address), shape.bytes()}; }
};

// What a node without arguments does with a range: the function of a host node, the streams on the other side of an
// event.
struct DeclaredUse {
  std::string_view field;      // "": its place in the list
  CopyEnd range;               // the memory
  Access access = Access::in;  // what the node does there
  uint64_t align_bytes = 1;    // the address is a multiple
};

// `count` elements of T at `address`, what the node does with them, and the name that reports call them by; "" for
// their place in the list. element, kAccess, kField and kPeer are the type's parameters.
template <class T, Access kDoes, FixedName kName, PeerUse kBetween = PeerUse::none>
struct MemoryArgument {
  using element = T;
  static constexpr Access kAccess = kDoes;
  static constexpr PeerUse kPeer = kBetween;
  static constexpr std::string_view kField = kName.view();

  uint64_t address = 0, count = 0;
  uint64_t widest_address = 0, widest_count = 0;  // what patches may reach: edges come from this range

  static MemoryArgument of(const auto& view) { return {view.address(), view.count, view.address(), view.count}; }

  // Lets patches take any part of `range`, which contains the elements.
  MemoryArgument within(const View<T>& range) const { return {address, count, range.address(), range.count}; }

  // For nodes that list their uses, none of which is of packets. Edges come from the widest range here, too.
  operator DeclaredUse() const requires(kBetween == PeerUse::none) {
    return {kField, CopyEnd(widest_address, widest_count * sizeof(T), false), kDoes, sizeof(T)};
  }
};

// Read, and not written.
template <FixedName kName = "", class T>
auto reads(const View<T>& view) {
  return MemoryArgument<T, Access::in, kName>::of(view);
}
template <FixedName kName = "", class T>
auto reads(const Weight<T>& weight) {
  return MemoryArgument<T, Access::in, kName>::of(weight);
}
// Every byte is written, and none read.
template <FixedName kName = "", class T>
auto writes(const View<T>& view) {
  return MemoryArgument<T, Access::out, kName>::of(view);
}
// Read and written.
template <FixedName kName = "", class T>
auto updates(const View<T>& view) {
  return MemoryArgument<T, Access::inout, kName>::of(view);
}
// The same for a whole array.
template <FixedName kName = "", class T>
auto reads(const DeviceArray<T>& array) {
  return reads<kName>(array.view());
}
template <FixedName kName = "", class T>
auto writes(const DeviceArray<T>& array) {
  return writes<kName>(array.view());
}
template <FixedName kName = "", class T>
auto updates(const DeviceArray<T>& array) {
  return updates<kName>(array.view());
}
// Packets in another device's memory that a kernel writes, and packets here that another device writes meanwhile, in
// the exchange that NodeOptions::exchange names: PeerOut and PeerIn of kernels_src/args.h.
template <FixedName kName = "">
auto sends(const View<Packet>& view) {
  return MemoryArgument<Packet, Access::out, kName, PeerUse::out>::of(view);
}
template <FixedName kName = "">
auto takes(const View<Packet>& view) {
  return MemoryArgument<Packet, Access::in, kName, PeerUse::in>::of(view);
}
// Read; nothing in the plan writes it.
template <FixedName kName = "", class T>
auto frozen(const Weight<T>& weight) {
  return MemoryArgument<T, Access::frozen, kName>::of(weight);
}

// A word that an operation may wait for or write.
template <class T>
concept Word = std::same_as<T, uint32_t> || std::same_as<T, uint64_t>;

// Waits until the first element of `at` compares with `value` as `until` says. A view of pinned memory has the host's
// address.
template <Word T>
ValueOperation wait_until(const View<T>& at, Until until, std::type_identity_t<T> value) {
  return {.waits = true, .bytes = sizeof(T), .until = until, .address = at.address(), .value = value};
}
// Writes the first element of `at`, after all predecessors of the node.
template <Word T>
ValueOperation write_to(const View<T>& at, std::type_identity_t<T> value) {
  return {.waits = false, .bytes = sizeof(T), .until = {}, .address = at.address(), .value = value};
}

}  // namespace nodewright
