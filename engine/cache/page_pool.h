// Who owns which page of the key/value cache: a free list and a ledger. Knows no memory.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace nodewright {

class PagePool {
 public:
  explicit PagePool(int64_t pages);

  // A page nobody owns, or nothing when all are taken. The lowest index first, so runs repeat.
  std::optional<int32_t> take();
  // Throws Error when the page is not taken: a page is given back exactly once.
  void give_back(int32_t page);

  bool is_taken(int32_t page) const;
  int64_t total() const { return static_cast<int64_t>(taken_.size()); }
  int64_t taken() const { return total() - static_cast<int64_t>(free_.size()); }

 private:
  std::vector<int32_t> free_;  // the next to take is last
  std::vector<bool> taken_;
};

}  // namespace nodewright
