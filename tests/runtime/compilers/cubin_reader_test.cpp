// Reads cubins that NVRTC makes here, for both targets, and refuses every damaged one without reading outside it.
#include "runtime/compilers/cubin_reader.h"

#include <gtest/gtest.h>

#include <random>

#include "runtime/compilers/nvrtc.h"
#include "runtime/error.h"
#include "runtime/kernels/kernel_parameters.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

constexpr const char* kPlain = R"(
extern "C" __global__ void __launch_bounds__(96) plain(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; })";

constexpr const char* kWaits = R"(
struct Args { const float* x; float* y; long long rows; short odd[5]; };
extern "C" __global__ void __launch_bounds__(128) waits(const __grid_constant__ Args args) {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
  __shared__ float tile[100];
  tile[threadIdx.x % 100] = args.x[threadIdx.x];
  __syncthreads();
  args.y[threadIdx.x] = tile[99 - threadIdx.x % 100];
})";

constexpr const char* kWait = "asm volatile(\"griddepcontrol.wait;\" ::: \"memory\");";

// A kernel that begins with these statements where the target knows them.
std::string beginning_with(const std::string& statements) {
  return "extern \"C\" __global__ void begins(float* y, int n) {\n#if __CUDA_ARCH__ >= 900\n" + statements +
         "\n#endif\n  y[threadIdx.x] += 1;\n}";
}

constexpr const char* kDynamicShared = R"(
extern "C" __global__ void dynamic(float* y) {
  extern __shared__ float tile[];
  tile[threadIdx.x] = y[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = tile[31 - threadIdx.x];
})";

constexpr const char* kLocalArray = R"(
extern "C" __global__ void local_array(float* y, int n) {
  float kept[64];
  for (int i = 0; i < 64; ++i) kept[i] = y[i];
  for (int i = 0; i < n; ++i) kept[i * 7 % 64] += kept[i * 5 % 64];
  y[threadIdx.x] = kept[n];
})";

class CubinReader : public testing::Test {
 protected:
  static void SetUpTestSuite() { nvrtc_ = Nvrtc::load(); }
  static void TearDownTestSuite() { nvrtc_.reset(); }

  static std::vector<std::byte> compile(const char* text, int cc_major) {
    return nvrtc_->compile({"test.cu", text, {}}, nvrtc_options(cc_major, 0)).cubin;
  }
  static CubinKernel only_kernel(const char* text, int cc_major) {
    const std::vector<CubinKernel> kernels = read_cubin(compile(text, cc_major), "test");
    EXPECT_EQ(kernels.size(), 1u);
    return kernels.at(0);
  }

  static inline std::unique_ptr<Nvrtc> nvrtc_;
};

TEST_F(CubinReader, FindsNameThreadsAndParameters) {
  for (const int cc_major : {8, 9}) {
    const CubinKernel kernel = only_kernel(kPlain, cc_major);
    EXPECT_EQ(kernel.name, "plain");
    EXPECT_EQ(kernel.max_threads, 96);
    EXPECT_GT(kernel.registers, 4);
    EXPECT_LT(kernel.registers, 40);
    EXPECT_EQ(kernel.stack_bytes, 0u);
    EXPECT_EQ(kernel.shared_bytes, 0u);
    EXPECT_EQ(kernel.waits, 0);
    EXPECT_GT(kernel.code_bytes, 0u);
    EXPECT_LT(kernel.code_bytes, only_kernel(kLocalArray, cc_major).code_bytes);
    ASSERT_EQ(kernel.parameters.size(), 2u);
    EXPECT_EQ(kernel.parameters[0].bytes, 8u);
    EXPECT_EQ(kernel.parameters[1].offset, 8u);
    EXPECT_EQ(kernel.parameters[1].ordinal, 1u);
  }
}

TEST_F(CubinReader, TheParametersOfAKernelAreFoundByItsName) {
  const auto cubin = compile(kPlain, 9);
  EXPECT_EQ(parameters_in(cubin, "plain"), (std::vector<KernelParameter>{{0, 8}, {8, 8}}));
  expect_error([&] { parameters_in(cubin, "plane"); }, {"plane", "no such kernel"});
}

TEST_F(CubinReader, SeesTheWaitWhereTheTargetHasOne) {
  EXPECT_EQ(only_kernel(kWaits, 8).waits, 0);
  const CubinKernel kernel = only_kernel(kWaits, 9);
  EXPECT_EQ(kernel.waits, 1);
  EXPECT_EQ(kernel.shared_bytes, 400u);
  ASSERT_EQ(kernel.parameters.size(), 1u);
  EXPECT_EQ(kernel.parameters[0].bytes, 40u);
  EXPECT_EQ(only_kernel(kWaits, 8).shared_bytes, 400u);
}

TEST_F(CubinReader, CountsWaitsWhateverTheirPredicates) {
  EXPECT_EQ(only_kernel(beginning_with(kWait).c_str(), 9).waits, 1);
  const std::string perhaps = std::string("if (blockIdx.x < n) { y[n] = 2; ") + kWait + " }" + kWait;
  EXPECT_EQ(only_kernel(beginning_with(perhaps).c_str(), 9).waits, 2);
  EXPECT_EQ(only_kernel(beginning_with(perhaps).c_str(), 8).waits, 0);
}

TEST_F(CubinReader, CountsDynamicSharedMemoryAsNone) {
  for (const int cc_major : {8, 9}) {
    EXPECT_EQ(only_kernel(kDynamicShared, cc_major).shared_bytes, 0u);
    EXPECT_EQ(only_kernel(kDynamicShared, cc_major).max_threads, 0);
  }
}

TEST_F(CubinReader, CountsLocalArrays) {
  for (const int cc_major : {8, 9}) EXPECT_EQ(only_kernel(kLocalArray, cc_major).stack_bytes, 256u);
}

TEST_F(CubinReader, FindsEveryKernelOfAFile) {
  const std::string both = std::string(kPlain) + kWaits;
  const std::vector<CubinKernel> kernels = read_cubin(compile(both.c_str(), 9), "both");
  ASSERT_EQ(kernels.size(), 2u);
  for (const CubinKernel& kernel : kernels) EXPECT_EQ(kernel.waits, kernel.name == "waits" ? 1 : 0);
}

TEST_F(CubinReader, RefusesWhatIsNoCubin) {
  const std::string text = "not an ELF file at all, though longer than the sixty-four bytes of its header are.";
  try {
    read_cubin(std::as_bytes(std::span(text)), "kernels/x.cubin");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("cannot read cubin 'kernels/x.cubin': not a 64-bit"), std::string::npos)
        << error.what();
  }
  EXPECT_THROW(read_cubin({}, "empty"), Error);
}

TEST_F(CubinReader, SurvivesAFileCutAnywhere) {
  const std::vector<std::byte> whole = compile(kWaits, 9);
  for (size_t length = 0; length < whole.size(); ++length) {
    const std::vector<std::byte> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
    try {
      read_cubin(cut, "cut");
    } catch (const Error&) {
    }
  }
}

TEST_F(CubinReader, SurvivesRandomDamage) {
  const std::vector<std::byte> whole = compile(kWaits, 9);
  std::mt19937 random(20261120);
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::byte> damaged = whole;
    for (unsigned i = 0; i <= random() % 8; ++i)
      damaged[random() % damaged.size()] = static_cast<std::byte>(random() % 2 == 0 ? 0xff : random());
    try {
      read_cubin(damaged, "damaged");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace nodewright
