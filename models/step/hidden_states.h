// What leaves a step besides its tokens: the hidden states after the final norm, what a head multiplies. A property of
// a plan, since it is a node and a buffer more, or none.
#pragma once

#include <cstdint>
#include <string_view>

namespace nodewright {

// last: of the rows that choose a token. full: of every row. Each gives what those before it give.
enum class HiddenStates : uint8_t { none, last, full };

constexpr std::string_view name_of(HiddenStates hidden) {
  return hidden == HiddenStates::none ? "none" : hidden == HiddenStates::last ? "last" : "full";
}

}  // namespace nodewright
