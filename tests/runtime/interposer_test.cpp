// The ledger, the trace and the injected failures, over the device under test.
#include "runtime/calls/interposer.h"

#include <gtest/gtest.h>

#include <thread>

#include "runtime/context_guard.h"
#include "runtime/device_selection.h"
#include "runtime/event.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

class InterposerTest : public testing::Test {
 protected:
  OpenedDevice opened_ = open_device(test::test_device(), Observe::yes);
  Device& device_ = *opened_.device;
  Driver& driver_ = *opened_.driver;
  Interposer& interposer_ = *opened_.interposer;
};

TEST_F(InterposerTest, LedgerHoldsEveryKindOfHandleWhileItLives) {
  EXPECT_EQ(interposer_.live_count(HandleKind::primary_context), 1u);
  {
    const Stream stream(device_, "s");
    const Event event(device_, "e");
    const DeviceBuffer buffer(device_, "b", 4096);
    const PinnedBuffer pinned(device_, "p", 4096);
    CUgraph graph = nullptr, clone = nullptr;
    CUgraphExec exec = nullptr;
    ASSERT_EQ(driver_.cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    ASSERT_EQ(driver_.cuGraphClone(&clone, graph), CUDA_SUCCESS);
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    ASSERT_EQ(driver_.cuGraphInstantiateWithParams(&exec, graph, &params), CUDA_SUCCESS);
    EXPECT_EQ(interposer_.live_count(HandleKind::stream), 1u);
    EXPECT_EQ(interposer_.live_count(HandleKind::event), 1u);
    EXPECT_EQ(interposer_.live_count(HandleKind::device_memory), 1u);
    EXPECT_EQ(interposer_.live_count(HandleKind::host_memory), 1u);
    EXPECT_EQ(interposer_.live_count(HandleKind::graph), 2u);
    EXPECT_EQ(interposer_.live_count(HandleKind::graph_exec), 1u);
    EXPECT_EQ(interposer_.live()[1].created_by, "cuStreamCreate");
    EXPECT_EQ(driver_.cuGraphExecDestroy(exec), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuGraphDestroy(clone), CUDA_SUCCESS);
    EXPECT_EQ(driver_.cuGraphDestroy(graph), CUDA_SUCCESS);
  }
  opened_.device.reset();
  EXPECT_TRUE(interposer_.live().empty()) << interposer_.describe_live();
}

TEST_F(InterposerTest, ACaptureThatYieldsAGraphAddsIt) {
  const Stream stream(device_, "s");
  CUgraph graph = nullptr;
  ASSERT_EQ(driver_.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuStreamEndCapture(stream.get(), &graph), CUDA_SUCCESS);
  EXPECT_EQ(interposer_.live_count(HandleKind::graph), 1u);
  EXPECT_EQ(driver_.cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(interposer_.live_count(HandleKind::graph), 0u);
}

TEST_F(InterposerTest, TraceNumbersCallsWithTheirArgumentsAndResults) {
  std::vector<std::string> lines;
  const uint64_t first = interposer_.calls();
  interposer_.trace_to([&](std::string_view line) { lines.emplace_back(line); });
  CUdeviceptr address = 0;
  ASSERT_EQ(driver_.cuMemAlloc(&address, 4096), CUDA_SUCCESS);
  ASSERT_EQ(driver_.cuMemFree(address), CUDA_SUCCESS);
  EXPECT_NE(driver_.cuMemFree(address), CUDA_SUCCESS);
  interposer_.trace_to({});
  ASSERT_EQ(lines.size(), 3u);
  char hex[32];
  std::snprintf(hex, sizeof hex, "0x%llx", address);
  EXPECT_EQ(lines[0].find(std::to_string(first) + " cuMemAlloc(0x"), 0u) << lines[0];
  EXPECT_NE(lines[0].find(std::string(", 4096) = CUDA_SUCCESS -> ") + hex), std::string::npos) << lines[0];
  EXPECT_EQ(lines[1], std::to_string(first + 1) + " cuMemFree(" + hex + ") = CUDA_SUCCESS");
  EXPECT_NE(lines[2].find("= CUDA_ERROR_"), std::string::npos) << lines[2];
}

TEST_F(InterposerTest, FailsTheNthCallOnce) {
  CUdeviceptr a = 0, b = 0, c = 0;
  interposer_.fail_call(1, CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.cuMemAlloc(&a, 256), CUDA_SUCCESS);
  EXPECT_EQ(driver_.cuMemAlloc(&b, 256), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(driver_.cuMemAlloc(&c, 256), CUDA_SUCCESS);
  EXPECT_EQ(b, 0u) << "the driver was called";
  EXPECT_EQ(interposer_.failures_injected(), 1u);
  EXPECT_EQ(interposer_.live_count(HandleKind::device_memory), 2u);
  driver_.cuMemFree(a);
  driver_.cuMemFree(c);
}

TEST_F(InterposerTest, FailsEveryCallFromTheNthUntilTold) {
  CUdeviceptr a = 0;
  interposer_.fail_from(0, CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.cuMemAlloc(&a, 256), CUDA_ERROR_UNKNOWN);
  EXPECT_EQ(driver_.cuCtxSynchronize(), CUDA_ERROR_UNKNOWN);
  const char* name = nullptr;
  EXPECT_EQ(driver_.cuGetErrorName(CUDA_ERROR_UNKNOWN, &name), CUDA_SUCCESS) << "reading words is never failed";
  interposer_.fail_none();
  EXPECT_EQ(driver_.cuCtxSynchronize(), CUDA_SUCCESS);
}

TEST_F(InterposerTest, AFailedReleaseStillReleases) {
  const uint64_t free_before = device_.free_bytes();
  {
    const Stream stream(device_, "s");
    const DeviceBuffer buffer(device_, "b", 4096);
    EXPECT_LE(device_.free_bytes(), free_before);
    interposer_.fail_from(0, CUDA_ERROR_UNKNOWN);
  }
  EXPECT_EQ(interposer_.failures_injected(), 2u);
  interposer_.fail_none();
  EXPECT_EQ(interposer_.live().size(), 1u) << interposer_.describe_live();
  if (driver_.is_cpu()) {
    EXPECT_EQ(device_.free_bytes(), free_before) << "only the CPU driver gives memory back at once";
  }
}

TEST_F(InterposerTest, CountsCallsByEntryButNotTheReadingOfWords) {
  const uint64_t before = interposer_.calls(), asked = interposer_.calls(DriverEntry::cuMemGetInfo);
  driver_.words(CUDA_ERROR_UNKNOWN, "cuX");
  EXPECT_EQ(interposer_.calls(), before);
  device_.free_bytes();
  EXPECT_EQ(interposer_.calls(), before + 1);
  EXPECT_EQ(interposer_.calls(DriverEntry::cuMemGetInfo), asked + 1);
}

TEST_F(InterposerTest, CountsCallsOfSeveralThreads) {
  const uint64_t before = interposer_.calls();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      const ContextGuard current(device_);
      for (int i = 0; i < 100; ++i) const Event event(device_, "e");
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(interposer_.calls() - before, 4u * (2 + 200)) << "the context set and put back, 100 events";
  EXPECT_EQ(interposer_.live_count(HandleKind::event), 0u);
}

TEST(InterposerOfTwoDevices, RetainsOfOnePrimaryContextAreCounted) {
  OpenedDevice opened = open_device(test::test_device(), Observe::yes);
  auto second = std::make_unique<Device>(*opened.driver, 0);
  EXPECT_EQ(opened.interposer->live_count(HandleKind::primary_context), 1u);
  second.reset();
  EXPECT_EQ(opened.interposer->live_count(HandleKind::primary_context), 1u);
  opened.device.reset();
  EXPECT_EQ(opened.interposer->live_count(HandleKind::primary_context), 0u);
}

}  // namespace
}  // namespace nodewright
