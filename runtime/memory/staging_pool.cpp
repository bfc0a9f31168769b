#include "runtime/memory/staging_pool.h"

#include <utility>

namespace nodewright {

StagingBuffer StagingPool::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      StagingBuffer buffer = std::move(free_.back());
      free_.pop_back();
      return buffer;
    }
  }
  return {*device_, name_, bytes_};
}

void StagingPool::give_back(StagingBuffer buffer) noexcept {
  const std::lock_guard lock(mutex_);
  if (free_.size() < kept_) free_.push_back(std::move(buffer));
}

}  // namespace nodewright
