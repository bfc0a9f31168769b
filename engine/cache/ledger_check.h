// How a ledger of pages says that it contradicts itself.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "runtime/error.h"

namespace nodewright {

// Throws Error naming the `kind` of what is wrong, its number unless that is below 0, and the detail. Formats nothing
// while all is well.
template <typename... Args>
void demand_in_ledger(bool holds, const char* kind, int64_t number, fmt::format_string<Args...> detail,
                      Args&&... args) {
  if (holds) return;
  throw Error({.doing = "balance the ledger of pages",
               .object = number < 0 ? kind : fmt::format("{} {}", kind, number),
               .detail = fmt::format(detail, std::forward<Args>(args)...)});
}

}  // namespace nodewright
