#include "runtime/memory/array_places.h"

#include <algorithm>

#include "runtime/driver.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr unsigned kDeviceShift = 52;  // of an address: the device, then the array's number
constexpr uint64_t kMostDevices = 16, kMostArrays = (uint64_t{1} << kDeviceShift) / kArrayBytes;

// 0: a format that is no plain one.
uint64_t channel_bytes(CUarray_format format) {
  switch (format) {
    case CU_AD_FORMAT_UNSIGNED_INT8:
    case CU_AD_FORMAT_SIGNED_INT8:
      return 1;
    case CU_AD_FORMAT_UNSIGNED_INT16:
    case CU_AD_FORMAT_SIGNED_INT16:
    case CU_AD_FORMAT_HALF:
      return 2;
    case CU_AD_FORMAT_UNSIGNED_INT32:
    case CU_AD_FORMAT_SIGNED_INT32:
    case CU_AD_FORMAT_FLOAT:
      return 4;
    default:
      return 0;
  }
}

}  // namespace

uint64_t ArrayPlaces::address_of(CUarray array, int ordinal, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  const uint64_t number = numbers_.try_emplace(array, numbers_.size()).first->second;
  if (number >= kMostArrays)
    throw Error({.doing = "place an array in a plan",
                 .detail = "the device has had " + std::to_string(kMostArrays) + " arrays in plans",
                 .advice = "keep arrays, and copy other contents into them"});
  bytes_.resize(numbers_.size());
  bytes_[number] = bytes;
  return kArrayBase + ((static_cast<uint64_t>(ordinal) % kMostDevices) << kDeviceShift) + number * kArrayBytes;
}

uint64_t ArrayPlaces::bytes_at(uint64_t address) {
  const std::lock_guard lock(mutex_);
  return bytes_.at(address % (uint64_t{1} << kDeviceShift) / kArrayBytes);
}

ArrayShape array_shape(const Driver& driver, CUarray array, const char* doing, const std::string& name) {
  CUDA_ARRAY3D_DESCRIPTOR descriptor{};
  driver.check(driver.cuArray3DGetDescriptor(&descriptor, array), "cuArray3DGetDescriptor", doing, name);
  const uint64_t element_bytes = channel_bytes(descriptor.Format) * descriptor.NumChannels;
  const ArrayShape shape{.row_bytes = descriptor.Width * element_bytes,
                         .rows = std::max<uint64_t>(descriptor.Height, 1),
                         .slices = std::max<uint64_t>(descriptor.Depth, 1),
                         .element_bytes = element_bytes};
  if (element_bytes == 0 || shape.bytes() > kArrayBytes)
    throw Error({.doing = doing,
                 .object = name,
                 .detail = element_bytes == 0 ? "format " + std::to_string(descriptor.Format) + " is no plain one"
                                              : "the array has " + std::to_string(shape.bytes()) + " bytes",
                 .advice = "use channels of 8, 16 or 32 bits, and at most 256 GiB"});
  return shape;
}

}  // namespace nodewright
