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
#include <string_view>

#include "graph/launch_arguments.h"

namespace nodewright {

struct StrayPointer {
  size_t offset = 0;     // bytes from the start of the argument
  uint64_t address = 0;  // what stands there
  std::string memory;    // which it points into: "buffer 'y', 0x7f.. + 64 bytes"
};

// The declared range that holds an address, or null.
using DeclaredAt = std::function<const NamedRange*(uint64_t address)>;

// The first address in the bytes `value` of argument number `argument` that lies in a declared range, in a buffer of
// the device, or in memory that the driver knows, and in none of the ranges that `uses` has for that argument. Looks at
// every eight bytes from a multiple of four on, as packed structs hold pointers.
std::optional<StrayPointer> find_stray_pointer(const Device& device, const FieldInfo& field, size_t argument,
                                               std::span<const std::byte> value, std::span<const ArgumentUse> uses,
                                               const DeclaredAt& declared);

// "argument 'a' holds 0x7f.. at byte 8, an address in buffer 'y', ..."
std::string describe(const StrayPointer& stray, const FieldInfo& field);

inline constexpr std::string_view kStrayFieldAdvice =
    "make the field In<T>, Out<T> or InOut<T>, and pass a view: then the plan knows what the kernel does there";
inline constexpr std::string_view kStrayArgumentAdvice =
    "pass reads(view), writes(view) or updates(view), or opaque(pointer) for memory that this launch does not use; for "
    "a struct, list them in with_uses(value, ...)";

}  // namespace nodewright
