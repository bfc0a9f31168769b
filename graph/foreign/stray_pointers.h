// Addresses among a kernel's scalars and structs that no memory field and no reads(), writes(), updates(), frozen() or
// opaque() stands for. A CUdeviceptr is an integer: without a word of what the kernel does there, the plan would miss
// an edge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "graph/launch_arguments.h"

namespace nodewright {

// No system maps anything below; most scalars are smaller.
inline constexpr uint64_t kFirstAddress = 64 << 10;
// Addresses of the host and of devices have 57 bits at most (five-level paging).
inline constexpr unsigned kAddressBits = 57;

// What an error says of such an address: what it points into, and what to write.
struct StrayPointer {
  std::string detail, advice;
};

// The declared range that holds an address, or null.
using DeclaredAt = std::function<const NamedRange*(uint64_t address)>;

// The first address in the bytes `value` of argument number `argument` that lies in a declared range (a condition is
// one), in a buffer of the device, or in memory that the driver knows, and in none of the ranges that `uses` has for
// that argument. Looks at every eight bytes from a multiple of four on, as packed structs hold pointers. `foreign`: of
// a foreign kernel, not of an argument struct.
std::optional<StrayPointer> find_stray_pointer(const Device& device, const FieldInfo& field, size_t argument,
                                               std::span<const std::byte> value, std::span<const ArgumentUse> uses,
                                               bool foreign, const DeclaredAt& declared);

}  // namespace nodewright
