// A kernel of a program that nvcc builds, by its symbol, in a plan between a fill and a kernel of Nodewright's.
#include <nodewright/nodewright.h>
#include <nodewright/runtime/cuda_symbol.h>

#include <cstdio>

using namespace nodewright;

namespace {

struct Line {
  const float* x;
  float slope, offset;
};

__global__ void line(unsigned n, Line line, float* y) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = line.slope * line.x[i] + line.offset;
}

void line_on_host(unsigned n, Line line, float* y) {
  for (unsigned i = 0; i < n; ++i) y[i] = line.slope * line.x[i] + line.offset;
}

}  // namespace

int main(int argc, char** argv) try {
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  const Stream stream(device, "main");
  KernelCache kernels(device);
  constexpr unsigned kCount = 1000, kThreads = 128;
  const auto saxpy = kernels.kernel<Saxpy>("saxpy", saxpy_shape(kCount));
  const ForeignKernel straight = kernel_of_symbol(device, line, "line", line_on_host);

  const DeviceArray<float> x(device, "x", kCount), y(device, "y", kCount);
  GraphBuilder g(device, "lines");
  g.fill("fill", x, 2.0f);
  const Line slope{x.view().data, 3.0f, 1.0f};
  g.launch("line", straight, launch_shape_1d((kCount + kThreads - 1) / kThreads, kThreads), value<"n">(kCount),
           with_uses<"line">(slope, reads<"x">(x)), writes<"y">(y));
  g.launch("saxpy", saxpy, {x, y, 10.0f});
  ExplicitGraph graph(std::move(g).finish());
  graph.launch(stream);

  const std::vector<float> result = y.read(stream);
  std::printf("%sy[0] = %g, expected 27\n", to_text(graph.plan()).c_str(), static_cast<double>(result[0]));
  for (const float value : result)
    if (value != 27.0f) return 1;
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "nvcc_kernel: %s\n", error.what());
  return 1;
}
