#include "engine/cache/page_pool.h"

#include <string>

#include "runtime/error.h"

namespace nodewright {

PagePool::PagePool(int64_t pages) : taken_(static_cast<size_t>(pages), false) {
  free_.reserve(static_cast<size_t>(pages));
  for (int64_t page = pages - 1; page >= 0; --page) free_.push_back(static_cast<int32_t>(page));
}

std::optional<int32_t> PagePool::take() {
  if (free_.empty()) return std::nullopt;
  const int32_t page = free_.back();
  free_.pop_back();
  taken_[static_cast<size_t>(page)] = true;
  return page;
}

void PagePool::give_back(int32_t page) {
  if (!is_taken(page))
    throw Error({.doing = "give back page", .object = std::to_string(page), .detail = "nobody owns it"});
  taken_[static_cast<size_t>(page)] = false;
  free_.push_back(page);  // cannot throw: the capacity covers every page
}

bool PagePool::is_taken(int32_t page) const { return page >= 0 && page < total() && taken_[static_cast<size_t>(page)]; }

}  // namespace nodewright
