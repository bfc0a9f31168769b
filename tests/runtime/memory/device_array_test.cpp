// Typed device memory: what is written is read, and counts that no memory has are refused.
#include <gtest/gtest.h>

#include "runtime/device_selection.h"
#include "runtime/error.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

TEST(DeviceArray, IsReadBehindWhatTheStreamWasGiven) {
  const OpenedDevice device = open_device(test::test_device());
  const Stream stream(device, "s");
  const DeviceArray<uint32_t> from(device, "from", 3), to(device, "to", 3);
  from.write({{1, 2, 3}});
  copy_device_async(stream, to.address(), from.address(), from.bytes(), "to");
  EXPECT_EQ(to.read(stream), (std::vector<uint32_t>{1, 2, 3}));
  from.write({{9}});
  EXPECT_EQ(from.read(stream), (std::vector<uint32_t>{9, 2, 3})) << "the first elements alone";
  EXPECT_THROW(from.write({{1, 2, 3, 4}}), Error);
  EXPECT_EQ(from.count(), 3u);
  EXPECT_EQ(View<uint32_t>(from), from.view());
  const Optional<In<uint32_t>> field = from;
  EXPECT_EQ(field.count, 3u);
}

TEST(DeviceArray, RefusesMoreBytesThanAnAddressCounts) {
  const OpenedDevice device = open_device(test::test_device());
  expect_error([&] { DeviceArray<uint32_t>(device, "huge", UINT64_MAX / 2); }, {"'huge'", "elements of 4 bytes"});
}

TEST(LiveBuffers, KnowNamesUntilTheBufferIsGone) {
  const OpenedDevice device = open_device(test::test_device());
  const LiveBuffers& buffers = device.device->buffers();
  uint64_t address = 0;
  {
    DeviceArray<float> first(device, "first", 4);
    address = first.address();
    EXPECT_EQ(buffers.name_at(address + 15), "first");
    const DeviceBuffer moved = std::move(first);
    EXPECT_EQ(buffers.name_at(address), "first");
  }
  EXPECT_EQ(buffers.name_at(address), "");
}

}  // namespace
}  // namespace nodewright
