// What the bodies of all requests may take of memory together.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <utility>

namespace nodewright {

// A share of the budget, given back when it goes. Grown by one thread at a time.
class BodyShare {
 public:
  using Used = std::shared_ptr<std::atomic<size_t>>;  // bytes of all shares

  BodyShare(Used used, size_t most) : used_(std::move(used)), most_(most) {}
  ~BodyShare() { *used_ -= bytes_; }
  BodyShare(const BodyShare&) = delete;
  BodyShare& operator=(const BodyShare&) = delete;

  // False, and the share as it was, where all together would have more than `most`.
  bool grow_to(size_t bytes) {
    if (bytes <= bytes_) return true;
    const size_t more = bytes - bytes_;
    if (used_->fetch_add(more) + more > most_) {
      *used_ -= more;
      return false;
    }
    bytes_ = bytes;
    return true;
  }

 private:
  const Used used_;
  const size_t most_;
  size_t bytes_ = 0;
};

}  // namespace nodewright
