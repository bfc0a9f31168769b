#include "runtime/compilers/nvrtc.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "runtime/compilers/cubin_reader.h"
#include "runtime/error.h"
#include "runtime/libraries/cuda_library_places.h"
#include "tests/runtime/kernels/small_kernels.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

NvrtcSource nvrtc_source(const KernelRequest& request) {
  const KernelProgram program = program_of(request, small_kernels(), "cpu_driver/");
  NvrtcSource source{std::string(program.source.path), program.prelude + std::string(program.source.text), {}};
  for (const EmbeddedSource& header : program.headers)
    source.headers.push_back({std::string(header.path), std::string(header.text)});
  return source;
}

TEST(Nvrtc, CompilesTheDialectForBothTargetsWithoutACudaHeader) {
  const auto nvrtc = Nvrtc::load();
  EXPECT_GE(nvrtc->major(), 12);
  for (const int cc_major : {8, 9}) {
    const NvrtcResult result =
        nvrtc->compile(nvrtc_source({"scale", {{"kFactor", 3}}}), nvrtc_options(cc_major, 0, Spills::refused));
    EXPECT_EQ(result.log, "");
    const std::vector<CubinKernel> kernels = read_cubin(result.cubin, "scale");
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_EQ(kernels[0].name, "scale");
    EXPECT_EQ(kernels[0].max_threads, 128);
    EXPECT_EQ(kernels[0].waits, cc_major >= 9 ? 1 : 0);
    ASSERT_EQ(kernels[0].parameters.size(), 1u);
    EXPECT_EQ(kernels[0].parameters[0].bytes, sizeof(Scale));
  }
}

constexpr std::string_view kHalfSums = R"(
#include <cub/block/block_reduce.cuh>
using namespace nodewright;
extern "C" __global__ void half_sums(const Element* x, unsigned columns, float* sums) {
  using Reduce = cub::BlockReduce<float, kThreads>;
  __shared__ typename Reduce::TempStorage storage;
  float sum = 0;
  for (unsigned i = threadIdx.x; i < columns; i += kThreads) sum += static_cast<float>(x[i]);
  sum = Reduce(storage).Sum(sum);
  if (threadIdx.x == 0) *sums = kScaled ? SCALE * sum : sum;
})";

TEST(Nvrtc, CompilesTheToolkitsHeadersWithTypesMacrosAndConstants) {
  const std::vector<std::string> folders = cuda_include_folders("cub/block/block_reduce.cuh");
  if (folders.empty()) GTEST_SKIP() << "no headers of CUB on this machine";
  KernelRequest request{.name = "half_sums",
                        .constants = {{"kThreads", 128}, {"kScaled", true}, {"Element", TypeName{"__half"}}},
                        .defines = {{"SCALE", "0.5f"}},
                        .headers = {"cuda_fp16.h"},
                        .include_folders = folders};
  const EmbeddedSource source{"kernels_src/half_sums.cu", kHalfSums};
  const auto compile = [&](const KernelRequest& of) {
    const KernelProgram program = program_of(of, {&source, 1}, "");
    std::vector<std::string> options = nvrtc_options(9, 0);
    for (const std::string& folder : program.include_folders) options.push_back("--include-path=" + folder);
    return Nvrtc::load()->compile({"half_sums.cu", program.prelude + std::string(kHalfSums), {}}, options);
  };
  const std::vector<CubinKernel> kernels = read_cubin(compile(request).cubin, "half_sums");
  ASSERT_EQ(kernels.size(), 1u);
  EXPECT_EQ(kernels[0].name, "half_sums");
  EXPECT_EQ(kernels[0].parameters.size(), 3u);
  request.constants.back().value = TypeName{"NoSuchType"};
  EXPECT_THROW(compile(request), Error);
}

// The setter stays an undefined symbol of the cubin, which takes no relocatable device code: the driver has it.
TEST(Nvrtc, CompilesAKernelThatSetsAConditionForBothTargets) {
  const auto nvrtc = Nvrtc::load();
  for (const int cc_major : {8, 9}) {
    const NvrtcResult result =
        nvrtc->compile(nvrtc_source({"count_down", {}}), nvrtc_options(cc_major, 0, Spills::refused));
    EXPECT_EQ(result.log, "");
    const std::vector<CubinKernel> kernels = read_cubin(result.cubin, "count_down");
    ASSERT_EQ(kernels.size(), 1u);
    EXPECT_EQ(kernels[0].name, "count_down");
    EXPECT_EQ(kernels[0].waits, cc_major >= 9 ? 1 : 0);
    ASSERT_EQ(kernels[0].parameters.size(), 1u);
    EXPECT_EQ(kernels[0].parameters[0].bytes, sizeof(CountDown));
    const std::string_view bytes(reinterpret_cast<const char*>(result.cubin.data()), result.cubin.size());
    EXPECT_NE(bytes.find("cudaGraphSetConditional"), std::string_view::npos);
  }
}

TEST(Nvrtc, CompilesClustersForBothTargets) {
  const auto nvrtc = Nvrtc::load();
  for (const int cc_major : {8, 9}) {
    const NvrtcResult result =
        nvrtc->compile(nvrtc_source({"cluster", {}}), nvrtc_options(cc_major, 0, Spills::refused));
    EXPECT_EQ(result.log, "");
    EXPECT_EQ(read_cubin(result.cubin, "cluster").at(0).stack_bytes, 0u);
  }
}

TEST(Nvrtc, ErrorHoldsTheFirstLinesOfTheLog) {
  try {
    Nvrtc::load()->compile(nvrtc_source({"broken", {}}), nvrtc_options(9, 0));
    FAIL();
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cannot compile kernel source 'kernels_src/broken.cu'"), std::string::npos) << text;
    EXPECT_NE(text.find("this_name_is_not_declared"), std::string::npos) << text;
    EXPECT_NE(text.find("NVRTC_ERROR_COMPILATION"), std::string::npos) << text;
  }
}

TEST(Nvrtc, RefusesSpillsWhereAskedTo) {
  // 64 registers at most, and every one of 150 values lives until the end. Another text in each process: on an H100 a
  // second run on the machine got the cubin without the log, as from a cache of NVRTC's (2026-11-25, NVRTC 13.0).
  std::string text = fmt::format("// {}\n", ::getpid());
  text += "extern \"C\" __global__ void __launch_bounds__(1024) spills(float* y) {\n";
  for (int i = 0; i < 150; ++i)
    text += "float v" + std::to_string(i) + " = y[" + std::to_string(i) + " * threadIdx.x];\n";
  text += "__syncthreads();\n";
  for (int i = 0; i < 150; ++i) text += "y[" + std::to_string(i) + " * blockIdx.x] = v" + std::to_string(i) + ";\n";
  text += "}\n";
  const auto nvrtc = Nvrtc::load();
  EXPECT_THROW(nvrtc->compile({"spills.cu", text, {}}, nvrtc_options(9, 0, Spills::refused)), Error);
  const NvrtcResult warned = nvrtc->compile({"spills.cu", text, {}}, nvrtc_options(9, 0));
  EXPECT_NE(warned.log.find("pill"), std::string::npos) << warned.log;
  EXPECT_GT(read_cubin(warned.cubin, "spills").at(0).stack_bytes, 0u);
}

TEST(Nvrtc, NamesThePlacesItLookedAt) {
  const EnvironmentValue elsewhere("NODEWRIGHT_NVRTC", "/no/such/libnvrtc.so");
  try {
    Nvrtc::load();
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("/no/such/libnvrtc.so"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("NODEWRIGHT_NVRTC"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace nodewright
