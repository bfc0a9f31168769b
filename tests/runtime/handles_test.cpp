// Device, stream, event and memory: what they do, what they say when they cannot, and that nothing stays behind.
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "runtime/context_guard.h"
#include "runtime/device_selection.h"
#include "runtime/error.h"
#include "runtime/event.h"
#include "runtime/memory/memory.h"
#include "runtime/memory/staging_buffer.h"
#include "runtime/stream.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

class Handles : public testing::Test {
 protected:
  // The text of the Error that `make` throws when its first driver call fails with `result`.
  template <class Function>
  std::string failing(CUresult result, Function&& make) {
    interposer_.fail_call(0, result);
    std::string text = "no error";
    try {
      make();
    } catch (const Error& error) {
      text = error.what();
    }
    interposer_.fail_none();
    EXPECT_EQ(interposer_.live().size(), 1u) << interposer_.describe_live();
    return text;
  }

  OpenedDevice opened_ = open_device(test::test_device(), Observe::yes);
  Device& device_ = *opened_.device;
  Interposer& interposer_ = *opened_.interposer;
};

TEST_F(Handles, DeviceTellsItsProperties) {
  const DeviceProperties& properties = device_.properties();
  EXPECT_FALSE(properties.name.empty());
  EXPECT_GE(properties.sm_count, 4);
  EXPECT_GE(properties.cc_major, 8);
  EXPECT_EQ(properties.max_threads_per_block, 1024);
  EXPECT_LT(properties.greatest_priority, properties.least_priority) << "lower numbers go first";
  EXPECT_GT(properties.total_bytes, 0u);
  EXPECT_GE(properties.shared_optin_bytes, 48u * 1024);
  EXPECT_LE(device_.free_bytes(), properties.total_bytes);
}

TEST_F(Handles, DeviceOfAnotherNumberIsAUsageErrorThatCountsTheDevices) {
  try {
    Device other(*opened_.driver, 1000);
    FAIL();
  } catch (const Error& error) {
    const std::string name = opened_.driver->is_cpu() ? "'cpu:1000'" : "'cuda:1000'";
    EXPECT_NE(std::string(error.what()).find("cannot open device " + name + ": the driver has "), std::string::npos)
        << error.what();
    EXPECT_EQ(error.parts().fault, Fault::usage);
  }
}

TEST_F(Handles, TheCpuDriverNamesBuffersAsTheirOwnersDo) {
  Driver& driver = *opened_.driver;
  if (!driver.is_cpu()) return;  // a GPU's driver knows addresses
  const DeviceBuffer scores(device_, "scores", 64);
  try {
    driver.check(driver.cuMemFree(scores.address() + 4), "cuMemFree", "free", "it");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("at byte 4 of buffer 'scores' (0x"), std::string::npos) << error.what();
  }
}

TEST_F(Handles, MemoryComesBackAsItWasWritten) {
  const DeviceBuffer buffer(device_, "b", 1000 * sizeof(float));
  std::vector<float> sent(1000), got(1000);
  std::iota(sent.begin(), sent.end(), 1.0f);
  const View<float> view = view_of<float>(buffer);
  write_view<float>(device_, view, sent, "b");
  read_view<float>(device_, got, view, "b");
  EXPECT_EQ(got, sent);
  fill_device(device_, buffer.address(), std::byte{0}, 4 * sizeof(float), "b");
  read_view<float>(device_, std::span(got).first(5), view, "b");
  EXPECT_EQ(got[3], 0.0f);
  EXPECT_EQ(got[4], 5.0f);
  EXPECT_THROW(write_view<float>(device_, view.subview(0, 999), sent, "b"), Error);
}

TEST_F(Handles, AsynchronousCopiesRunInStreamOrder) {
  const Stream stream(device_, "s");
  const Event copied(device_, "copied", true), start(device_, "start", true);
  const DeviceBuffer buffer(device_, "b", 64);
  PinnedBuffer out(device_, "out", 64), back(device_, "back", 64);
  std::iota(out.as<uint8_t>().begin(), out.as<uint8_t>().end(), uint8_t{1});
  start.record(stream);
  write_device_async(stream, buffer.address(), out.data(), 64, "b");
  read_device_async(stream, back.data(), buffer.address(), 64, "b");
  copied.record(stream);
  copied.synchronize();
  EXPECT_TRUE(copied.done());
  EXPECT_EQ(back.as<uint8_t>()[63], 64);
  EXPECT_GE(copied.ms_since(start), 0.0f);
  const Stream other(device_, "other");
  other.wait(copied);
  other.synchronize();
  EXPECT_TRUE(other.done());
}

TEST_F(Handles, MovedFromHandlesReleaseNothing) {
  Stream stream(device_, "s");
  Stream moved = std::move(stream);
  EXPECT_NE(moved.get(), nullptr);
  EXPECT_EQ(moved.name(), "s");
  DeviceBuffer a(device_, "a", 256), b(device_, "b", 512);
  a = std::move(b);
  EXPECT_EQ(a.bytes(), 512u);
  EXPECT_EQ(interposer_.live_count(HandleKind::device_memory), 1u);
  Event event(device_, "e"), other(device_, "f");
  other = std::move(event);
  EXPECT_EQ(interposer_.live_count(HandleKind::event), 1u);
  PinnedBuffer pinned(device_, "p", 256);
  const PinnedBuffer kept = std::move(pinned);
  EXPECT_EQ(kept.bytes(), 256u);
}

TEST_F(Handles, EmptyBuffersMakeNoCall) {
  const uint64_t before = interposer_.calls();
  const DeviceBuffer buffer(device_, "b", 0);
  const PinnedBuffer pinned(device_, "p", 0);
  EXPECT_EQ(buffer.address(), 0u);
  EXPECT_EQ(interposer_.calls(), before);
}

TEST_F(Handles, OutOfMemoryNamesTheBufferAndTheBytesNeededAndFree) {
  try {
    const DeviceBuffer buffer(device_, "kv pool", uint64_t{1} << 50);
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cannot allocate device memory 'kv pool': needs 1125899906842624 bytes, "), std::string::npos)
        << text;
    EXPECT_NE(text.find(std::to_string(device_.free_bytes()) + " of "), std::string::npos) << text;
    EXPECT_NE(text.find("cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (2)"), std::string::npos) << text;
  }
  EXPECT_EQ(interposer_.live_count(HandleKind::device_memory), 0u);
}

TEST_F(Handles, EveryFailedCreationNamesItsObjectAndTheDriversWords) {
  const std::string memory = failing(CUDA_ERROR_OUT_OF_MEMORY, [&] { DeviceBuffer(device_, "weights", 4096); });
  EXPECT_NE(memory.find("'weights': needs 4096 bytes, "), std::string::npos) << memory;
  const std::string pinned = failing(CUDA_ERROR_OUT_OF_MEMORY, [&] { PinnedBuffer(device_, "staging", 4096); });
  EXPECT_NE(pinned.find("'staging': needs 4096 bytes"), std::string::npos) << pinned;
  const std::string stream = failing(CUDA_ERROR_UNKNOWN, [&] { Stream(device_, "compute"); });
  EXPECT_NE(stream.find("cannot create stream 'compute'"), std::string::npos) << stream;
  EXPECT_NE(stream.find("cuStreamCreate: CUDA_ERROR_UNKNOWN (999)"), std::string::npos) << stream;
  const std::string event = failing(CUDA_ERROR_UNKNOWN, [&] { Event(device_, "step done"); });
  EXPECT_NE(event.find("cannot create event 'step done'"), std::string::npos) << event;
}

TEST_F(Handles, OutOfMemoryIsReportedEvenWhenFreeBytesCannotBeRead) {
  interposer_.fail_from(0, CUDA_ERROR_OUT_OF_MEMORY);
  try {
    const DeviceBuffer buffer(device_, "kv", 4096);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("free bytes unknown"), std::string::npos) << error.what();
  }
  interposer_.fail_none();
}

// Item 1 of the fault catalogue for this folder: every call of a start-up fails once, and nothing is left behind.
TEST(HandlesUnderFaults, EachCallOfAStartUpMayFail) {
  std::vector<std::string> calls;  // of the start-up that was made last
  // Whether a start-up whose n-th call fails throws Error.
  const auto fails = [&](std::optional<uint64_t> n) {
    const auto driver = std::move(open_device(test::test_device()).driver);
    driver->cuInit(0);
    driver->cuCtxSetCurrent(nullptr);  // one that could not be put back
    Interposer interposer(*driver);
    calls.clear();
    size_t made = 0;
    interposer.trace_to([&](std::string_view line) {
      const size_t begin = line.find(' ') + 1;
      calls.emplace_back(line.substr(begin, line.find('(') - begin));
    });
    if (n) interposer.fail_call(*n, CUDA_ERROR_UNKNOWN);
    bool failed = false;
    try {
      Device device(*driver, 0);
      const ContextGuard current(device);
      const Stream stream(device, "s");
      const Event event(device, "e");
      const DeviceBuffer buffer(device, "b", 256);
      const PinnedBuffer pinned(device, "p", 256);
      event.record(stream);
      stream.synchronize();
      made = calls.size();
    } catch (const Error&) {
      failed = true;
    }
    EXPECT_EQ(interposer.failures_injected(), n ? 1u : 0u);
    EXPECT_TRUE(interposer.live().empty()) << n.value_or(0) << ": " << interposer.describe_live();
    if (made != 0) calls.resize(made);  // without those of destructors
    return failed;
  };
  ASSERT_FALSE(fails(std::nullopt));
  const std::vector<std::string> whole = calls;
  ASSERT_GT(whole.size(), 10u);
  for (size_t n = 0; n < whole.size(); ++n) {
    const bool failed = fails(n);
    // A context that is put back by a destructor, which has nobody to tell.
    EXPECT_TRUE(failed || whole[n] == "cuCtxSetCurrent") << "call " << n << ", " << whole[n];
  }
}

TEST_F(Handles, AStagingBufferIsWrittenBeforeItIsPinnedAndCopiedFromAfter) {
  Stream stream(device_, "staging");
  const DeviceBuffer target(device_, "target", 5000);
  {
    StagingBuffer staging(device_, "staging", 5000);
    std::memset(staging.data(), 0x3c, staging.bytes());
    staging.pin();
    staging.pin();  // once
    StagingBuffer moved(std::move(staging));
    write_device_async(stream, target.address(), moved.data(), moved.bytes(), "target");
    stream.synchronize();
  }
  std::vector<std::byte> read(5000);
  read_device(device_, read, target.address(), "target");
  EXPECT_EQ(read, std::vector<std::byte>(5000, std::byte{0x3c}));
}

TEST_F(Handles, AStagingBufferThatCannotBePinnedIsNamed) {
  EXPECT_EQ(failing(CUDA_ERROR_OUT_OF_MEMORY, [&] { StagingBuffer(device_, "weights.staging0", 4096).pin(); }),
            "cannot lock host memory 'weights.staging0': needs 4096 bytes; driver: cuMemHostRegister: "
            "CUDA_ERROR_OUT_OF_MEMORY (2), out of memory; try: free host memory, or raise the limit of locked memory");
}

}  // namespace
}  // namespace nodewright
