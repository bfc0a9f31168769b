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
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
  const Stream stream(device, "main");
  KernelCache kernels(device);
  constexpr unsigned kCount = 1000, kThreads = 128;
  const auto saxpy = typed_kernel<Saxpy>(kernels, {"saxpy", {}}, saxpy_shape(kCount));
  const ForeignKernel straight = kernel_of_symbol(device, line, "line", line_on_host);

  const DeviceBuffer x(device, "x", kCount * sizeof(float)), y(device, "y", kCount * sizeof(float));
  const auto at = [](const DeviceBuffer& buffer) { return view_of<float>(buffer); };
  GraphBuilder g(device, "lines");
  g.declare(x);
  g.declare(y, {.live_out = true});
  g.fill("fill", at(x), 2.0f);
  const Line slope{at(x).data, 3.0f, 1.0f};
  g.launch("line", straight, launch_shape_1d((kCount + kThreads - 1) / kThreads, kThreads), value<"n">(kCount),
           with_uses<"line">(slope, reads<"x">(at(x))), writes<"y">(at(y)));
  g.launch("saxpy", saxpy, {at(x), at(y), 10.0f});
  ExplicitGraph graph(std::move(g).finish(EdgePolicy::programmatic));
  graph.launch(stream);
  stream.synchronize();

  std::vector<float> result(kCount);
  read_view<float>(device, result, at(y), "y");
  std::printf("%sy[0] = %g, expected 27\n", to_text(graph.plan()).c_str(), static_cast<double>(result[0]));
  for (const float value : result)
    if (value != 27.0f) return 1;
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "nvcc_kernel: %s\n", error.what());
  return 1;
}
