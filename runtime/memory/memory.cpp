#include "runtime/memory/memory.h"

#include <utility>

#include "runtime/context_guard.h"
#include "runtime/moved_into.h"
#include "runtime/stream.h"

namespace nodewright {
namespace {

// "needs 4096 bytes, 1024 of 8192 are free": asked of the driver only after a failure, and itself allowed to fail.
std::string need_and_free(Device& device, uint64_t bytes) {
  std::string text = "needs " + std::to_string(bytes) + " bytes, ";
  size_t free = 0, total = 0;
  if (device.driver().cuMemGetInfo(&free, &total) != CUDA_SUCCESS) return text + "free bytes unknown";
  return text + std::to_string(free) + " of " + std::to_string(total) + " are free";
}

std::string byte_count(uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

}  // namespace

DeviceBuffer::DeviceBuffer(Device& device, std::string name, uint64_t bytes)
    : device_(&device), name_(std::move(name)), bytes_(bytes) {
  if (bytes == 0) return;
  const ContextGuard current(device);
  Driver& driver = device.driver();
  const CUresult result = driver.cuMemAlloc(&address_, bytes);
  if (result == CUDA_SUCCESS) {
    device.buffers().add(address_, bytes, name_);
    driver.name_buffer(address_, name_);
    return;
  }
  address_ = 0;
  driver.check(result, "cuMemAlloc", "allocate device memory", name_, need_and_free(device, bytes),
               result == CUDA_ERROR_OUT_OF_MEMORY ? "free memory on the device, or ask for less" : "");
}

DeviceBuffer::~DeviceBuffer() { release(); }

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)),
      address_(std::exchange(other.address_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept { return moved_into(*this, std::move(other)); }

void DeviceBuffer::release() noexcept {
  if (address_ == 0) return;
  const ContextGuard current(*device_, std::nothrow);
  device_->buffers().remove(address_);
  device_->driver().cuMemFree(std::exchange(address_, 0));
}

PinnedBuffer::PinnedBuffer(Device& device, std::string name, uint64_t bytes)
    : device_(&device), name_(std::move(name)), bytes_(bytes) {
  if (bytes == 0) return;
  const ContextGuard current(device);
  Driver& driver = device.driver();
  const CUresult result = driver.cuMemHostAlloc(&data_, bytes, 0);
  if (result == CUDA_SUCCESS) {
    device.buffers().add(reinterpret_cast<uint64_t>(data_), bytes, name_);
    driver.name_buffer(reinterpret_cast<CUdeviceptr>(data_), name_);
    return;
  }
  data_ = nullptr;
  driver.check(result, "cuMemHostAlloc", "allocate pinned host memory", name_, "needs " + byte_count(bytes),
               result == CUDA_ERROR_OUT_OF_MEMORY ? "free host memory, or raise the limit of locked memory" : "");
}

PinnedBuffer::~PinnedBuffer() { release(); }

PinnedBuffer::PinnedBuffer(PinnedBuffer&& other) noexcept
    : device_(other.device_),
      name_(std::move(other.name_)),
      bytes_(std::exchange(other.bytes_, 0)),
      data_(std::exchange(other.data_, nullptr)) {}

PinnedBuffer& PinnedBuffer::operator=(PinnedBuffer&& other) noexcept { return moved_into(*this, std::move(other)); }

void PinnedBuffer::release() noexcept {
  if (data_ == nullptr) return;
  const ContextGuard current(*device_, std::nothrow);
  device_->buffers().remove(reinterpret_cast<uint64_t>(data_));
  device_->driver().cuMemFreeHost(std::exchange(data_, nullptr));
}

void check_subview(uint64_t offset, uint64_t count, uint64_t have) {
  if (offset <= have && count <= have - offset) return;
  throw Error({.doing = "take part of a view",
               .detail = "elements " + std::to_string(offset) + " to " + std::to_string(offset) + "+" +
                         std::to_string(count) + " of " + std::to_string(have)});
}

void write_device(Device& device, CUdeviceptr to, std::span<const std::byte> from, std::string_view name) {
  if (from.empty()) return;
  const ContextGuard current(device);
  Driver& driver = device.driver();
  driver.check(driver.cuMemcpyHtoD(to, from.data(), from.size()), "cuMemcpyHtoD", "copy to device memory", name,
               byte_count(from.size()));
  // From pageable memory it returns when the bytes are staged (CUDA driver API, "API synchronization behavior"), and
  // non-blocking streams do not wait for the rest.
  driver.check(driver.cuStreamSynchronize(nullptr), "cuStreamSynchronize", "copy to device memory", name);
}

void read_device(Device& device, std::span<std::byte> to, CUdeviceptr from, std::string_view name) {
  if (to.empty()) return;
  const ContextGuard current(device);
  Driver& driver = device.driver();
  driver.check(driver.cuMemcpyDtoH(to.data(), from, to.size()), "cuMemcpyDtoH", "copy from device memory", name,
               byte_count(to.size()));
}

void read_device(const Stream& stream, std::span<std::byte> to, CUdeviceptr from, std::string_view name) {
  stream.synchronize();
  read_device(stream.device(), to, from, name);
}

uint64_t bytes_of(uint64_t count, uint64_t element_bytes, std::string_view name) {
  if (count <= std::numeric_limits<uint64_t>::max() / element_bytes) return count * element_bytes;
  throw Error({.doing = "allocate device memory",
               .object = std::string(name),
               .detail = std::to_string(count) + " elements of " + std::to_string(element_bytes) + " bytes"});
}

void fill_device(Device& device, CUdeviceptr to, std::byte value, uint64_t bytes, std::string_view name) {
  if (bytes == 0) return;
  const ContextGuard current(device);
  Driver& driver = device.driver();
  driver.check(driver.cuMemsetD8(to, static_cast<unsigned char>(value), bytes), "cuMemsetD8", "fill device memory",
               name, byte_count(bytes));
  // A fill of device memory returns before it has run, and non-blocking streams do not wait for it.
  device.synchronize();
}

void write_device_async(const Stream& stream, CUdeviceptr to, const void* from, uint64_t bytes, std::string_view name) {
  if (bytes == 0) return;
  const ContextGuard current(stream.device());
  Driver& driver = stream.device().driver();
  driver.check(driver.cuMemcpyHtoDAsync(to, from, bytes, stream.get()), "cuMemcpyHtoDAsync", "copy to device memory",
               name, byte_count(bytes) + " on stream '" + stream.name() + "'");
}

void read_device_async(const Stream& stream, void* to, CUdeviceptr from, uint64_t bytes, std::string_view name) {
  if (bytes == 0) return;
  const ContextGuard current(stream.device());
  Driver& driver = stream.device().driver();
  driver.check(driver.cuMemcpyDtoHAsync(to, from, bytes, stream.get()), "cuMemcpyDtoHAsync", "copy from device memory",
               name, byte_count(bytes) + " on stream '" + stream.name() + "'");
}

void copy_device_async(const Stream& stream, CUdeviceptr to, CUdeviceptr from, uint64_t bytes, std::string_view name) {
  if (bytes == 0) return;
  const ContextGuard current(stream.device());
  Driver& driver = stream.device().driver();
  driver.check(driver.cuMemcpyDtoDAsync(to, from, bytes, stream.get()), "cuMemcpyDtoDAsync",
               "copy within device memory", name, byte_count(bytes) + " on stream '" + stream.name() + "'");
}

}  // namespace nodewright
