// Devices, contexts, streams and events of several owners on one thread.
#include <gtest/gtest.h>

#include "runtime/calls/cpu_driver_api.h"
#include "runtime/context_guard.h"
#include "runtime/device_selection.h"
#include "runtime/event.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"
#include "tests/support/error_text.h"
#include "tests/support/two_devices.h"

namespace nodewright {
namespace {

class ContextsTest : public ::testing::Test {
 protected:
  // Whatever tests before have left current on this thread.
  void SetUp() override {
    ASSERT_EQ(driver_->cuInit(0), CUDA_SUCCESS);
    ASSERT_EQ(driver_->cuCtxSetCurrent(nullptr), CUDA_SUCCESS);
  }
  CUcontext current() const { return driver_->current_context(); }

  std::unique_ptr<Driver> driver_ = test::driver_of_several_devices();
};

TEST_F(ContextsTest, ADeviceLeavesTheContextOfItsThreadAlone) {
  ASSERT_EQ(current(), nullptr);
  {
    Device device(*driver_, 0);
    EXPECT_EQ(current(), nullptr);
    const Stream stream(device, "s");
    const Event event(device, "e");
    const DeviceBuffer buffer(device, "b", 256);
    const PinnedBuffer pinned(device, "p", 256);
    fill_device(device, buffer.address(), std::byte{7}, 256, "b");
    read_device_async(stream, pinned.data(), buffer.address(), 256, "b");
    event.record(stream);
    event.synchronize();
    EXPECT_TRUE(event.done());
    EXPECT_EQ(pinned.as<uint8_t>()[255], 7);
    EXPECT_GT(device.free_bytes(), 0u);
    device.synchronize();
    EXPECT_EQ(current(), nullptr);
  }
  EXPECT_EQ(current(), nullptr);
}

TEST_F(ContextsTest, AGuardSetsAContextAndPutsTheOneBeforeBack) {
  Device device(*driver_, 0);
  {
    const ContextGuard outer(device);
    EXPECT_EQ(current(), device.context());
    {
      const ContextGuard inner(device);
      EXPECT_EQ(current(), device.context());
    }
    EXPECT_EQ(current(), device.context());
  }
  EXPECT_EQ(current(), nullptr);
}

// NVIDIA's driver looks into a context before it knows it: a wrong one ends the process.
TEST(ContextGuardOnCpuDriver, RefusesWhatIsNoContext) {
  const std::unique_ptr<Driver> driver = Driver::load_cpu({});
  ASSERT_EQ(driver->cuInit(0), CUDA_SUCCESS);
  expect_error([&] { ContextGuard(*driver, reinterpret_cast<CUcontext>(uint64_t{1} << 60), "no device"); },
               {"make current", "no device"});
  expect_error([&] { Device::adopt(*driver, reinterpret_cast<CUcontext>(uint64_t{1} << 60)); }, {"adopted"});
}

class TwoDevicesContextsTest : public ContextsTest {};

TEST_F(TwoDevicesContextsTest, TwoDevicesOnOneThreadKeepTheirMemoryStreamsAndKernelsApart) {
  ASSERT_GE(test::device_count(*driver_), 2);
  Device a(*driver_, 0), b(*driver_, 1);
  ASSERT_NE(a.context(), b.context());
  const ContextGuard framework(b);  // another library's, current throughout
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  const uint64_t free_a = a.free_bytes(), free_b = b.free_bytes();
  const DeviceBuffer on_a(a, "on a", kBytes);
  EXPECT_LE(a.free_bytes() + kBytes, free_a);
  EXPECT_EQ(b.free_bytes(), free_b);
  const DeviceBuffer on_b(b, "on b", kBytes);
  EXPECT_LE(b.free_bytes() + kBytes, free_b);

  const Stream stream_a(a, "a"), stream_b(b, "b");
  const Event ready(a, "ready");
  const PinnedBuffer from_a(a, "from a", 256), from_b(b, "from b", 256);
  for (int round = 0; round < 3; ++round) {
    const auto value = static_cast<std::byte>(10 + round);
    fill_device(a, on_a.address(), value, 256, "on a");
    fill_device(b, on_b.address(), std::byte{99}, 256, "on b");
    read_device_async(stream_a, from_a.data(), on_a.address(), 256, "on a");
    ready.record(stream_a);
    stream_b.wait(ready);
    read_device_async(stream_b, from_b.data(), on_b.address(), 256, "on b");
    stream_b.synchronize();
    EXPECT_TRUE(ready.done());
    EXPECT_EQ(from_a.as<std::byte>()[255], value);
    EXPECT_EQ(from_b.as<std::byte>()[255], std::byte{99});
  }
  EXPECT_EQ(current(), b.context());
}

TEST_F(ContextsTest, AnAdoptedContextIsUsedAndStaysItsOwners) {
  Device owner(*driver_, 0);
  {
    Device adopted = Device::adopt(*driver_, owner.context());
    EXPECT_EQ(adopted.context(), owner.context());
    EXPECT_EQ(adopted.get(), owner.get());
    EXPECT_EQ(adopted.properties().ordinal, 0);
    EXPECT_EQ(adopted.properties().sm_count, owner.properties().sm_count);
    EXPECT_EQ(current(), nullptr);
    const DeviceBuffer buffer(adopted, "b", 256);
    fill_device(adopted, buffer.address(), std::byte{1}, 256, "b");
  }
  const Stream still_there(owner, "s");
  still_there.synchronize();
}

TEST_F(ContextsTest, BorrowedStreamsAndEventsAreNotDestroyed) {
  Device device(*driver_, 0);
  Stream stream(device, "owner's");
  Event event(device, "owner's", true);
  {
    Stream borrowed = Stream::borrow(device, stream.get(), "borrowed");
    EXPECT_EQ(borrowed.get(), stream.get());
    Event note = Event::borrow(device, event.get(), "note");
    note.record(borrowed);
    const Stream moved(std::move(borrowed));
    moved.synchronize();
    EXPECT_TRUE(note.done());
    const Event moved_note(std::move(note));
    Stream assigned(device, "own");
    assigned = Stream::borrow(device, stream.get(), "borrowed");
    assigned.synchronize();
    const Stream legacy = Stream::borrow(device, nullptr, "legacy");
    legacy.synchronize();
  }
  event.record(stream);
  stream.synchronize();
  EXPECT_TRUE(event.done());
}

class ContextsOnCpuDriver : public ContextsTest {};

// As CUDA: a stream belongs to a context.
TEST_F(ContextsOnCpuDriver, ACallUnderTheContextOfAnotherDeviceIsRefused) {
  Device a(*driver_, 0), b(*driver_, 1);
  const Stream stream(a, "a");
  const Event event(a, "e");
  const ContextGuard other(b);
  EXPECT_EQ(driver_->cuStreamSynchronize(stream.get()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver_->cuMemsetD8Async(0, 0, 0, stream.get()), CUDA_ERROR_INVALID_HANDLE);
  const Stream own(b, "b");
  EXPECT_EQ(driver_->cuEventRecord(event.get(), own.get()), CUDA_ERROR_INVALID_HANDLE);
  EXPECT_EQ(driver_->cuStreamWaitEvent(own.get(), event.get(), 0), CUDA_SUCCESS);
}

TEST_F(ContextsOnCpuDriver, AsManyDevicesAsAskedForCanBeOpened) {
  EXPECT_EQ(test::device_count(*driver_), 2);
  expect_error([&] { Device(*driver_, 2); }, {"the driver has 2 devices", "cpu:0 to cpu:1"});
  driver_.reset();
  expect_error([] { open_device("cpu:devices=9"); }, {"devices=9", "1 to 8"});
}

TEST_F(ContextsTest, AnOpenedDeviceIsCurrentUntilItIsClosed) {
  OpenedDevice opened = open_device(test::test_device());
  EXPECT_EQ(opened.driver->current_context(), opened.device->context());
  opened.current.reset();
  EXPECT_EQ(opened.driver->current_context(), nullptr);
}

}  // namespace
}  // namespace nodewright
