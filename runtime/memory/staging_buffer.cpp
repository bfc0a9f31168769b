#include "runtime/memory/staging_buffer.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/context_guard.h"
#include "runtime/error.h"
#include "runtime/memory/host_heap.h"

namespace nodewright {
namespace {

uint64_t whole_pages(uint64_t bytes) { return (bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes; }

}  // namespace

StagingBuffer::StagingBuffer(Device& device, std::string name, uint64_t bytes)
    : device_(&device), name_(std::move(name)), bytes_(bytes), mapped_bytes_(whole_pages(bytes) + kHugePageBytes) {
  void* mapping = mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    throw Error({.doing = "map host memory",
                 .object = name_,
                 .detail = std::to_string(mapped_bytes_) + " bytes: " + std::strerror(errno),
                 .advice = "free host memory"});
  mapping_ = mapping;
  data_ = reinterpret_cast<std::byte*>(whole_pages(reinterpret_cast<uint64_t>(mapping)));
  madvise(data_, whole_pages(bytes), MADV_HUGEPAGE);  // a wish: small pages do as well
}

StagingBuffer::~StagingBuffer() {
  if (mapping_ == nullptr) return;
  if (pinned_) {
    const ContextGuard current(*device_, std::nothrow);
    device_->driver().cuMemHostUnregister(data_);
  }
  munmap(mapping_, mapped_bytes_);
}

StagingBuffer::StagingBuffer(StagingBuffer&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      bytes_(other.bytes_),
      mapped_bytes_(other.mapped_bytes_),
      mapping_(std::exchange(other.mapping_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      pinned_(std::exchange(other.pinned_, false)) {}

void StagingBuffer::pin() {
  if (pinned_) return;
  const ContextGuard current(*device_);
  Driver& driver = device_->driver();
  const CUresult result = driver.cuMemHostRegister(data_, bytes_, 0);
  if (result != CUDA_SUCCESS)
    driver.check(result, "cuMemHostRegister", "lock host memory", name_, "needs " + std::to_string(bytes_) + " bytes",
                 result == CUDA_ERROR_OUT_OF_MEMORY ? "free host memory, or raise the limit of locked memory" : "");
  pinned_ = true;
}

}  // namespace nodewright
