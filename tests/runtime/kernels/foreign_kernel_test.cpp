// How kernels of others are loaded and borrowed, and what is refused.
#include "runtime/kernels/foreign_kernel.h"

#include <gtest/gtest.h>

#include <optional>

#include "runtime/compilers/nvrtc.h"
#include "runtime/device_selection.h"
#include "runtime/memory/memory.h"
#include "runtime/stream.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

struct Pair {
  uint32_t a;
  double b;
};
void gather_on_host(char, Pair pair, const uint32_t* from, uint16_t add, uint32_t* to) {
  *to = *from + pair.a + static_cast<uint32_t>(pair.b) + add;
}
constexpr const char* kGatherText = R"(
struct Pair { unsigned a; double b; };
extern "C" __global__ void gather(char, Pair pair, const unsigned* from, unsigned short add, unsigned* to) {
  *to = *from + pair.a + static_cast<unsigned>(pair.b) + add;
}
)";

class LoadForeignKernelTest : public ::testing::Test {
 protected:
  // A cubin on a GPU; nothing on the CPU driver, which does not look.
  static std::vector<std::byte> image(Device& device) {
    if (device.driver().is_cpu()) return {};
    const DeviceProperties& properties = device.properties();
    return Nvrtc::load()
        ->compile({"gather.cu", kGatherText, {}}, nvrtc_options(properties.cc_major, properties.cc_minor))
        .cubin;
  }
  uint32_t run(const ForeignKernel& kernel) {
    const DeviceBuffer words(device_, "words", 8);
    const uint32_t before[2] = {1000, 0};
    write_device(device_, words.address(), std::as_bytes(std::span(before)), "words");
    char skipped = 0;
    Pair pair{.a = 200, .b = 30};
    CUdeviceptr from = words.address(), to = words.address() + 4;
    uint16_t add = 4;
    void* parameters[] = {&skipped, &pair, &from, &add, &to};
    const Stream stream(device_, "test");
    CUlaunchConfig config{};
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1;
    config.hStream = stream.get();
    const Driver& driver = device_.driver();
    driver.check(driver.cuLaunchKernelEx(&config, kernel.loaded().function, parameters, nullptr), "cuLaunchKernelEx",
                 "launch", kernel.name());
    stream.synchronize();
    uint32_t after[2];
    read_device(device_, std::as_writable_bytes(std::span(after)), words.address(), "words");
    return after[1];
  }

  OpenedDevice opened_ = open_device(test::test_device(), Observe::yes);
  Device& device_ = *opened_.device;
};

TEST_F(LoadForeignKernelTest, ALoadedKernelTellsItsParametersAndRuns) {
  const ForeignKernel kernel = load_kernel(device_, image(device_), "gather", gather_on_host);
  EXPECT_EQ(kernel.name(), "gather");
  EXPECT_EQ(kernel.loaded().parameters, (std::vector<KernelParameter>{{0, 1}, {8, 16}, {24, 8}, {32, 2}, {40, 8}}));
  EXPECT_FALSE(kernel.loaded().waits_for_inputs);
  EXPECT_GE(kernel.loaded().max_threads, 256);
  EXPECT_EQ(run(kernel), 1234u);
}

TEST_F(LoadForeignKernelTest, AFileIsLoadedAsItsBytesAre) {
  const std::vector<std::byte> bytes = image(device_);
  const ScratchFolder folder;
  const auto file = folder.write("gather.cubin", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  EXPECT_EQ(run(load_kernel_file(device_, file, "gather", gather_on_host)), 1234u);
}

TEST_F(LoadForeignKernelTest, ABorrowedKernelStaysItsOwners) {
  const ForeignKernel owner = load_kernel(device_, image(device_), "gather", gather_on_host);
  const uint64_t libraries = opened_.interposer->live_count(HandleKind::library);
  {
    const ForeignKernel by_function = borrow_kernel(device_, owner.loaded().function, "theirs", gather_on_host);
    const ForeignKernel by_kernel = borrow_kernel(device_, owner.loaded().kernel, "theirs", gather_on_host);
    EXPECT_EQ(by_function.name(), "theirs");
    EXPECT_EQ(by_function.loaded().parameters, owner.loaded().parameters);
    EXPECT_EQ(by_kernel.loaded().parameters, owner.loaded().parameters);
    EXPECT_EQ(run(by_function), 1234u);
    EXPECT_EQ(run(by_kernel), 1234u);
  }
  EXPECT_EQ(opened_.interposer->live_count(HandleKind::library), libraries);
  EXPECT_EQ(run(owner), 1234u);
}

TEST_F(LoadForeignKernelTest, MovingAKernelLeavesWhatPlansReferToWhereItIs) {
  ForeignKernel kernel = load_kernel(device_, image(device_), "gather", gather_on_host);
  const LoadedKernel* held = &kernel.loaded();
  const ForeignKernel moved = std::move(kernel);
  EXPECT_EQ(&moved.loaded(), held);
  EXPECT_EQ(run(moved), 1234u);
}

TEST_F(LoadForeignKernelTest, EachDriverCallOfALoadMayFailAndLeavesNothingBehind) {
  const std::vector<std::byte> bytes = image(device_);
  const uint64_t libraries = opened_.interposer->live_count(HandleKind::library);
  const uint64_t before = opened_.interposer->calls();
  std::optional<ForeignKernel> loaded = load_kernel(device_, bytes, "gather", gather_on_host);
  const uint64_t calls = opened_.interposer->calls() - before;
  loaded.reset();
  ASSERT_GT(calls, 10u);
  for (uint64_t n = 0; n < calls; ++n) {
    opened_.interposer->fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
    expect_error([&] { load_kernel(device_, bytes, "gather", gather_on_host); }, {"gather"});
    opened_.interposer->fail_none();
    EXPECT_EQ(opened_.interposer->live_count(HandleKind::library), libraries) << "call " << n;
  }
}

class LoadForeignKernelOnCpuDriver : public LoadForeignKernelTest {};

TEST_F(LoadForeignKernelOnCpuDriver, AKernelWithoutAStandInIsRefusedByName) {
  expect_error([&] { load_kernel(device_, {}, "attend"); },
               {"attend", "has no stand-in", "pass a function of the host"});
  expect_error([&] { borrow_kernel(device_, CUfunction(nullptr), "theirs"); }, {"theirs", "has no stand-in"});
}

}  // namespace
}  // namespace nodewright
