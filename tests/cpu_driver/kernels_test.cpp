// What a kernel sees on the CPU driver: indices, barriers, warp collectives, atomics, shared memory, faults.
#include <cmath>

#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {
namespace {

struct FloatsIo {
  In<float> x;
  Out<float> y;
};

const std::string kFloatsIo = "namespace nodewright { struct FloatsIo { In<float> x; Out<float> y; }; }\n";

const std::string kRotate = kFloatsIo + R"(
NODEWRIGHT_KERNEL(rotate, FloatsIo, 1024) {  // through shared memory: every value moves one thread on
  float* scratch = reinterpret_cast<float*>(shared_memory());
  wait_for_inputs();
  const unsigned i = threadIdx.x, n = blockDim.x;
  scratch[i] = args.x.data[blockIdx.x * n + i];
  __syncthreads();
  args.y.data[blockIdx.x * n + i] = scratch[(i + 1) % n];
})";

const std::string kWarp = kFloatsIo + R"(
NODEWRIGHT_KERNEL(warp, FloatsIo, 64) {  // y: 7 values a thread
  wait_for_inputs();
  const unsigned i = threadIdx.x, lane = i % 32;
  const float v = args.x.data[i];
  float* y = args.y.data + i * 7;
  y[0] = __shfl_sync(0xffffffffu, v, 5);
  y[1] = __shfl_xor_sync(0xffffffffu, v, 3);
  y[2] = __shfl_down_sync(0xffffffffu, v, 4);
  y[3] = static_cast<float>(__ballot_sync(0xffffffffu, lane % 2) == 0xaaaaaaaau);
  float two[2] = {v, 2.0f * v};
  warp_sums(two);
  float butterfly = v;
  for (int offset = 16; offset > 0; offset /= 2) butterfly += __shfl_xor_sync(0xffffffffu, butterfly, offset);
  y[4] = two[0] - butterfly;
  y[5] = two[1];
  y[6] = warp_max(v);
})";

const std::string kHalfWarps = kFloatsIo + R"(
NODEWRIGHT_KERNEL(half_warps, FloatsIo, 32) {  // both halves of the warp are in a collective of their own
  wait_for_inputs();
  float v = args.x.data[threadIdx.x];
  const unsigned mask = threadIdx.x < 16 ? 0xffffu : 0xffff0000u;
  for (int offset = 8; offset > 0; offset /= 2) v += __shfl_xor_sync(mask, v, offset);
  __syncwarp();
  args.y.data[threadIdx.x] = v;
})";

const std::string kCount = R"(
namespace nodewright { struct Count { InOut<unsigned> n; InOut<float> sum; }; }
NODEWRIGHT_KERNEL(count, Count, 128) {
  wait_for_inputs();
  atomicAdd(args.n.data, 1u);
  atomicMax(args.n.data + 1, blockIdx.x * blockDim.x + threadIdx.x);
  atomicInc(args.n.data + 2, 9u);
  atomicAdd(args.sum.data, 0.5f);
})";

const std::string kSharedNan = kFloatsIo + R"(
NODEWRIGHT_KERNEL(shared_nan, FloatsIo, 32) {
  wait_for_inputs();
  float* scratch = reinterpret_cast<float*>(shared_memory());
  args.y.data[blockIdx.x * 32 + threadIdx.x] = scratch[threadIdx.x];
  scratch[threadIdx.x] = 1.0f;
})";

const std::string kIndices = R"(
namespace nodewright { struct Indices { Out<unsigned> y; }; }
NODEWRIGHT_KERNEL(indices, Indices, 64) {
  wait_for_inputs();
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  args.y.data[block * 24 + thread] = block * 1000 + thread;
})";

const std::string kDivergent = kFloatsIo + R"(
NODEWRIGHT_KERNEL(divergent, FloatsIo, 64) {
  wait_for_inputs();
  if (threadIdx.x == 7) {
    __syncthreads();
    args.y.data[0] = 1;
  } else {
    __syncthreads();
    args.y.data[0] = 2;
  }
})";

const std::string kStuck = kFloatsIo + R"(
NODEWRIGHT_KERNEL(stuck, FloatsIo, 64) {
  wait_for_inputs();
  if (threadIdx.x < 32) __syncthreads();
  else if (threadIdx.x != 40) args.y.data[threadIdx.x] = __shfl_sync(0xffffffffu, 1.0f, 0);
  else __syncthreads();
})";

const std::string kAbsent = kFloatsIo + R"(
NODEWRIGHT_KERNEL(absent, FloatsIo, 64) {
  wait_for_inputs();
  args.y.data[threadIdx.x] = warp_sum(1.0f);
})";

const std::string kMisaligned = R"(
#include "kernels_src/device/numeric.cuh"
)" + kFloatsIo + R"(
NODEWRIGHT_KERNEL(misaligned, FloatsIo, 32) {
  wait_for_inputs();
  args.y.data[threadIdx.x] = bits_to_float(load_16(args.x.data + 1).x);
})";

const std::string kEndless = kFloatsIo + R"(
NODEWRIGHT_KERNEL(endless, FloatsIo, 32) {
  wait_for_inputs();
  volatile float* x = const_cast<volatile float*>(args.x.data);
  while (*x == 0.0f) {}
})";

const std::string kCopyPast = kFloatsIo + R"(
NODEWRIGHT_KERNEL(copy_past, FloatsIo, 128) {
  wait_for_inputs();
  args.y.data[threadIdx.x] = args.x.data[threadIdx.x];
})";

using KernelTest = CpuDriverTest;

std::vector<float> counting(size_t n) {
  std::vector<float> values(n);
  for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) + 0.25f;
  return values;
}

TEST_F(KernelTest, ABarrierSeparatesWritesFromReadsForEveryBlockSizeAndSchedule) {
  for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::reverse, CpuSchedule::seeded})
    for (const unsigned threads : {1u, 32u, 33u, 100u, 256u, 1024u}) {
      start({.schedule = schedule, .seed = threads});
      const CUfunction rotate = load("rotate", kRotate);
      const auto x = counting(3 * threads);
      const float* in = upload(x);
      float* out = allocate<float>(x.size());
      ASSERT_OK(launch(rotate, 3, threads, FloatsIo{{in, x.size()}, {out, x.size()}}, threads * 4));
      ASSERT_OK(synchronize());
      const auto y = download(out, x.size());
      for (unsigned i = 0; i < x.size(); ++i)
        ASSERT_EQ(x[i / threads * threads + (i % threads + 1) % threads], y[i]) << i << " of " << threads;
    }
}

TEST_F(KernelTest, WarpCollectivesGiveTheValuesOfTheGpu) {
  for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::reverse, CpuSchedule::seeded}) {
    start({.schedule = schedule});
    std::vector<float> x(64);
    for (size_t i = 0; i < 64; ++i) x[i] = std::sin(static_cast<float>(i)) * 1e3f;
    const float* in = upload(x);
    float* out = allocate<float>(64 * 7);
    ASSERT_OK(launch(load("warp", kWarp), 1, 64, FloatsIo{{in, 64}, {out, 64 * 7}}));
    ASSERT_OK(synchronize());
    const auto y = download(out, 64 * 7);
    for (size_t i = 0; i < 64; ++i) {
      const size_t first = i / 32 * 32, lane = i % 32;
      EXPECT_EQ(x[first + 5], y[i * 7]);
      EXPECT_EQ(x[i ^ 3], y[i * 7 + 1]);
      EXPECT_EQ(x[lane + 4 < 32 ? i + 4 : i], y[i * 7 + 2]);
      EXPECT_EQ(1.0f, y[i * 7 + 3]);
      EXPECT_EQ(0.0f, y[i * 7 + 4]) << "one collective and five shuffles differ in a bit";
      EXPECT_EQ(y[first * 7 + 5], y[i * 7 + 5]);
      EXPECT_EQ(*std::max_element(x.begin() + static_cast<long>(first), x.begin() + static_cast<long>(first) + 32),
                y[i * 7 + 6]);
    }
  }
}

TEST_F(KernelTest, TwoHalvesOfAWarpMayBeInCollectivesOfTheirOwn) {
  const auto x = counting(32);
  const float* in = upload(x);
  float* out = allocate<float>(32);
  ASSERT_OK(launch(load("half_warps", kHalfWarps), 1, 32, FloatsIo{{in, 32}, {out, 32}}));
  ASSERT_OK(synchronize());
  const auto y = download(out, 32);
  EXPECT_EQ(124.0f, y[0]);
  EXPECT_EQ(380.0f, y[31]);
}

TEST_F(KernelTest, AtomicsAddUpOverBlocksOnSeveralThreads) {
  start({.workers = 4});
  struct Count {
    InOut<unsigned> n;
    InOut<float> sum;
  };
  unsigned* n = upload(std::vector<unsigned>{0, 0, 0});
  float* sum = upload(std::vector<float>{0});
  ASSERT_OK(launch(load("count", kCount), 100, 128, Count{{n, 3}, {sum, 1}}));
  ASSERT_OK(synchronize());
  EXPECT_EQ((std::vector<unsigned>{12800, 12799, 0}), download(n, 3));
  EXPECT_EQ(6400.0f, download(sum, 1)[0]);
}

TEST_F(KernelTest, SharedMemoryIsNanAtTheStartOfEveryBlock) {
  start({.workers = 1});
  float* out = allocate<float>(96);
  ASSERT_OK(launch(load("shared_nan", kSharedNan), 3, 32, FloatsIo{{out, 0}, {out, 96}}, 128));
  ASSERT_OK(synchronize());
  for (const float v : download(out, 96)) EXPECT_TRUE(std::isnan(v));
}

TEST_F(KernelTest, IndicesCoverGridAndBlockInThreeDimensions) {
  struct Indices {
    Out<unsigned> y;
  };
  unsigned* out = allocate<unsigned>(24 * 30);
  Indices args{{out, 24 * 30}};
  void* params[] = {&args};
  const CUlaunchConfig config{.gridDimX = 2,
                              .gridDimY = 3,
                              .gridDimZ = 5,
                              .blockDimX = 4,
                              .blockDimY = 3,
                              .blockDimZ = 2,
                              .sharedMemBytes = 0,
                              .hStream = stream_,
                              .attrs = nullptr,
                              .numAttrs = 0};
  ASSERT_OK(api().cuLaunchKernelEx(&config, load("indices", kIndices), params, nullptr));
  ASSERT_OK(synchronize());
  const auto y = download(out, 24 * 30);
  for (unsigned i = 0; i < y.size(); ++i) ASSERT_EQ(i / 24 * 1000 + i % 24, y[i]);
}

TEST_F(KernelTest, ABarrierReachedOnTwoLinesIsReported) {
  float* out = allocate<float>(64);
  ASSERT_OK(launch(load("divergent", kDivergent), 1, 64, FloatsIo{{out, 64}, {out, 64}}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("divergent barrier")) << api().report();
}

TEST_F(KernelTest, ThreadsThatWaitForEachOtherAreADeadlockNotAHang) {
  float* out = allocate<float>(64);
  ASSERT_OK(launch(load("stuck", kStuck), 1, 64, FloatsIo{{out, 64}, {out, 64}}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("de")) << api().report();
}

TEST_F(KernelTest, ACollectiveOverAnAbsentLaneIsReported) {
  float* out = allocate<float>(64);
  ASSERT_OK(launch(load("absent", kAbsent), 1, 40, FloatsIo{{out, 64}, {out, 64}}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("absent lane")) << api().report();
}

TEST_F(KernelTest, AVectorLoadThatAGpuWouldRefuseIsReported) {
  float* x = allocate<float>(64);
  ASSERT_OK(launch(load("misaligned", kMisaligned), 1, 32, FloatsIo{{x, 64}, {x, 64}}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("not aligned")) << api().report();
}

TEST_F(KernelTest, AKernelThatNeverEndsTimesOut) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call that it intercepts";
#endif
  start({.launch_timeout_ms = 100});
  float* x = upload(std::vector<float>{0});
  api().label("spin");
  ASSERT_OK(launch(load("endless", kEndless), 3, 32, FloatsIo{{x, 1}, {x, 1}}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("node 'spin', kernel endless")) << api().report();
  EXPECT_EQ(std::string::npos, api().report().find("address")) << api().report();
}

TEST_F(KernelTest, AQueryComesBackFromAKernelThatDoesNotEnd) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread sanitizer holds signals back until the next call that it intercepts";
#endif
  start({.launch_timeout_ms = 1000});
  float* x = upload(std::vector<float>{0});
  ASSERT_OK(launch(load("endless", kEndless), 3, 32, FloatsIo{{x, 1}, {x, 1}}));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, api().cuStreamQuery(stream_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, api().cuStreamQuery(stream_));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, synchronize());
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, api().cuStreamQuery(stream_));
}

TEST_F(KernelTest, AnOverrunIsAnIllegalAddressThatSticksAndNamesWhere) {
  const auto x = counting(64);
  const float* in = upload(x);
  float* out = allocate<float>(128);
  api().label("l3.copy");
  ASSERT_OK(launch(load("copy_past", kCopyPast), 1, 128, FloatsIo{{in, 64}, {out, 128}}));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, synchronize());
  const std::string report = api().report();
  for (const char* part : {"node 'l3.copy'", "kernel copy_past", "illegal address", "0 bytes beyond the end of buffer",
                           "block (0,0,0)", "thread (64,0,0)"})
    EXPECT_NE(std::string::npos, report.find(part)) << part << " in: " << report;
  CUdeviceptr more = 0;
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, api().cuMemAlloc(&more, 4));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, api().cuCtxSynchronize());
  EXPECT_OK(api().cuMemFree(memory_.back())) << "giving back works after a fault";
  memory_.pop_back();
  start({});
  EXPECT_OK(api().cuCtxSynchronize()) << "a new context starts without the error";
}

TEST_F(KernelTest, MemoryIsNanWhenAllocatedAndGoneWhenFreed) {
  float* in = allocate<float>(64);
  for (const float v : download(in, 64)) EXPECT_TRUE(std::isnan(v));
  float* out = allocate<float>(64);
  ASSERT_OK(api().cuMemFree(memory_[0]));
  memory_.erase(memory_.begin());
  ASSERT_OK(launch(load("copy_past", kCopyPast), 1, 64, FloatsIo{{in, 64}, {out, 64}}));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, synchronize());
  EXPECT_NE(std::string::npos, api().report().find("which was freed")) << api().report();
}

TEST_F(KernelTest, OutOfMemoryNamesWhatWasAskedForAndWhatIsFree) {
  start({.memory_bytes = 1 << 20});
  CUdeviceptr address = 0;
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, api().cuMemAlloc(&address, (1 << 20) + 1));
  EXPECT_NE(std::string::npos, api().report().find("1048577 bytes, 1048576 of 1048576 are free")) << api().report();
  EXPECT_EQ(0u, address);
}

}  // namespace
}  // namespace nodewright
