#include "engine/device/page_budget.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/kv_cache.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

std::string list_of(const MemoryUse& use) {
  return fmt::format("weights take {} bytes, inputs and activations {}, graphs about {}{}", use.weights, use.state,
                     use.graphs, use.adapters > 0 ? fmt::format(", slots of adapters {}", use.adapters) : "");
}

uint64_t left_of(uint64_t bytes, uint64_t taken) { return bytes > taken ? bytes - taken : 0; }

}  // namespace

int64_t pages_within(const PageBudget& b) {
  const std::string uses =
      list_of(b.use) + (b.window_bytes > 0 ? fmt::format(", pages of windowed layers {}", b.window_bytes) : "");
  const bool is_limited = b.limit > 0;
  const uint64_t of_limit = is_limited ? left_of(b.limit, b.use.total() + b.window_bytes) : UINT64_MAX;
  const uint64_t of_device = left_of(b.free, b.use.graphs + b.window_bytes);
  constexpr uint64_t kMostPages = INT32_MAX;
  const auto room = static_cast<int64_t>(
      b.page_bytes == 0 ? kMostPages : std::min(std::min(of_limit, of_device) / b.page_bytes, kMostPages));
  const bool limit_forbids = of_limit <= of_device;
  const auto refuse = [&](const char* option, int64_t pages, const std::string& what, const std::string& or_less) {
    const uint64_t needed = b.use.total() + b.window_bytes + static_cast<uint64_t>(pages) * b.page_bytes;
    throw Error({.doing = "use option",
                 .object = option,
                 .detail = fmt::format("{} need {} page{} of {} bytes, and {} {} leaves room for {}: {}", what, pages,
                                       pages == 1 ? "" : "s", b.page_bytes,
                                       limit_forbids ? "a memory limit of" : "free device memory of",
                                       limit_forbids ? b.limit : b.free, room, uses),
                 .advice = limit_forbids ? fmt::format("a memory limit of {}, or {}", needed, or_less) : or_less,
                 .fault = Fault::usage});
  };
  if (b.wanted > room)
    refuse("pages", b.wanted, fmt::format("{} pages", b.wanted),
           fmt::format("{} pages, or a smaller max batch or max context", room));
  if (b.wanted > 0) return b.wanted;
  if (const int64_t least = pages_for(b.max_context); room < least)
    refuse("max context", least, fmt::format("{} tokens", b.max_context),
           room > 0 ? fmt::format("a max context of {} tokens, or fewer or smaller buckets", room * kPageTokens)
                    : "fewer or smaller buckets");
  return room;
}

void check_within(uint64_t limit, const MemoryUse& use) {
  if (limit == 0 || use.total() <= limit) return;
  throw Error(
      {.doing = "use option",
       .object = "memory limit",
       .detail = fmt::format("{} bytes, and {} are needed: {}, pages {}", limit, use.total(), list_of(use), use.pages),
       .advice = "fewer or smaller buckets",
       .fault = Fault::usage});
}

}  // namespace nodewright
