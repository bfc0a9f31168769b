// A kernel that includes the toolkit's headers: rows of __half, summed with CUB. NVRTC compiles it with folders, a
// header, a macro and constants of other types than int; the CPU driver calls a function of the host in its place.
#include <nodewright/nodewright.h>

#include <cmath>
#include <cstdio>

using namespace nodewright;

namespace {

constexpr std::string_view kText = R"(
  #include <cub/block/block_reduce.cuh>
  using namespace nodewright;  // the constants

  extern "C" __global__ void half_row_sums(const Element* x, unsigned columns, float* sums) {
    using Reduce = cub::BlockReduce<float, kThreads>;
    __shared__ typename Reduce::TempStorage storage;
    float sum = 0;
    for (unsigned i = threadIdx.x; i < columns; i += kThreads)
      sum += static_cast<float>(x[blockIdx.x * columns + i]);
    sum = Reduce(storage).Sum(sum);
    if (threadIdx.x == 0) sums[blockIdx.x] = kScaled ? SCALE * sum : sum;
  })";
constexpr unsigned kThreads = 128, kRows = 5, kColumns = 300;
constexpr fp16 kOneAndAHalf{0x3e00};  // IEEE 754 binary16

// Normal numbers alone.
float to_float(fp16 half) {
  const float fraction = 1.0f + static_cast<float>(half.bits & 0x3ff) / 1024.0f;
  const int exponent = (half.bits >> 10 & 0x1f) - 15;
  return (half.bits >> 15 != 0 ? -1.0f : 1.0f) * std::ldexp(fraction, exponent);
}

void half_row_sums(const fp16* x, unsigned columns, float* sums) {
  for (unsigned row = 0; row < kRows; ++row) {
    sums[row] = 0;
    for (unsigned i = 0; i < columns; ++i) sums[row] += 0.5f * to_float(x[row * columns + i]);
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  const Stream stream(device, "main");

  const std::vector<std::string> folders = cuda_include_folders("cub/block/block_reduce.cuh");
  if (folders.empty() && !device.driver->is_cpu()) {
    std::puts("half_row_sums: skipped, no CUDA toolkit or wheel with the headers of CUB is on this machine");
    return 0;
  }
  KernelCache kernels(device);
  kernels.add({"kernels_src/half_row_sums.cu", kText});
  const KernelRequest request{.name = "half_row_sums",
                              .constants = {{"kThreads", kThreads}, {"kScaled", true}, {"Element", TypeName{"__half"}}},
                              .defines = {{"SCALE", "0.5f"}},
                              .headers = {"cuda_fp16.h"},
                              .include_folders = folders};
  const ForeignKernel row_sums = compile_kernel(kernels, request, half_row_sums);

  const DeviceArray<fp16> x(device, "x", kRows * kColumns);
  const DeviceArray<float> sums(device, "sums", kRows);
  GraphBuilder g(device, "row_sums");
  g.fill("fill", x, kOneAndAHalf);
  g.launch("sum", row_sums, launch_shape_1d(kRows, kThreads), reads<"x">(x), value<"columns">(kColumns),
           writes<"sums">(sums));
  ExplicitGraph graph(std::move(g).finish());
  graph.launch(stream);

  const std::vector<float> result = sums.read(stream);
  constexpr float kExpected = 0.5f * 1.5f * kColumns;  // exact: multiples of 0.25 below 2^22
  std::printf("%ssums[0] = %g, expected %g\n", to_text(graph.plan()).c_str(), static_cast<double>(result[0]),
              static_cast<double>(kExpected));
  for (const float sum : result)
    if (sum != kExpected) return 1;
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "half_row_sums: %s\n", error.what());
  return 1;
}
