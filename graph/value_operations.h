// Values in memory by which a graph meets the host, other streams and other devices: operations that wait for one or
// write one, a batch of them a node.
//
//   g.wait_value("arrived", flag, Until::at_least, 3u, {writes(inputs)});
//   g.values("step", {wait_until(a, Until::equal, 1u), write_to(b, 2u)});
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <type_traits>

#include "graph/node.h"

namespace nodewright {

// A word that an operation may wait for or write.
template <class T>
concept Word = std::same_as<T, uint32_t> || std::same_as<T, uint64_t>;

// Goes on when the first element of `at` compares so with `value`. A view of pinned memory has the host's address.
template <Word T>
ValueOperation wait_until(const View<T>& at, Until until, std::type_identity_t<T> value) {
  return {.waits = true, .bytes = sizeof(T), .until = until, .address = at.address(), .value = value};
}
// Writes the first element of `at`, behind all that the node comes after.
template <Word T>
ValueOperation write_to(const View<T>& at, std::type_identity_t<T> value) {
  return {.waits = false, .bytes = sizeof(T), .until = {}, .address = at.address(), .value = value};
}

// "32 bits >= 3", "64 bits := 4": for dumps.
std::string describe(const ValueOperation& operation);

}  // namespace nodewright
