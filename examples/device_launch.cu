// A kernel that launches a graph: it looks at a value on the device and chooses which of two graphs runs next. Needs a
// GPU: the CPU driver launches no graphs from kernels.
#include <nodewright/nodewright.h>
#include <nodewright/runtime/cuda_symbol.h>

#include <cstdint>
#include <cstdio>
#include <optional>
#include <vector>

using namespace nodewright;

namespace {

constexpr unsigned kCount = 1000;

// Launches `above` or `below` by the first value of x. A tail launch: the graph runs when the one that this kernel is
// in has ended, before later work of the stream. Graphs are launched from kernels of graphs alone (CUDA C++ Programming
// Guide, "Device Graph Launch").
__global__ void dispatch(uint64_t above, uint64_t below, const float* x, float* y) {
  (void)y;  // what the chosen graph writes
  const uint64_t chosen = x[0] > 0.0f ? above : below;
  cudaGraphLaunch(reinterpret_cast<cudaGraphExec_t>(chosen), cudaStreamGraphTailLaunch);
}

// A graph of one fill that kernels may launch. It is uploaded, as CUDA asks for before a launch from a kernel.
ExplicitGraph filling(Device& device, const char* name, const DeviceArray<float>& y, float value,
                      const Stream& stream) {
  GraphBuilder g(device, name);
  g.fill("fill", y, value);
  return ExplicitGraph(std::move(g).finish(), {.device_launch = true, .upload = &stream});
}

}  // namespace

int main(int argc, char** argv) try {
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
  if (opened.driver->is_cpu()) {
    std::puts("device_launch: skipped, the CPU driver launches no graphs from kernels");
    return 0;
  }
  const Stream stream(device, "main");
  const DeviceArray<float> x(device, "x", 1), y(device, "y", kCount);
  const ExplicitGraph above = filling(device, "above", y, 2.0f, stream),
                      below = filling(device, "below", y, 3.0f, stream);
  const ForeignKernel kernel = kernel_of_symbol(device, dispatch, "dispatch");
  for (const float decides : {1.0f, -1.0f}) {
    GraphBuilder g(device, "dispatch");
    g.fill("decide", x, decides);
    g.launch("dispatch", kernel, launch_shape_1d(1, 1), value<"above">(reinterpret_cast<uint64_t>(above.exec())),
             value<"below">(reinterpret_cast<uint64_t>(below.exec())), reads<"x">(x), writes<"y">(y));
    ExplicitGraph graph(std::move(g).finish());
    graph.launch(stream);
    const std::vector<float> result = y.read(stream);
    std::printf("x = %g: y[0] = %g\n", static_cast<double>(decides), static_cast<double>(result[0]));
    for (const float found : result)
      if (found != (decides > 0.0f ? 2.0f : 3.0f)) return 1;
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "device_launch: %s\n", error.what());
  return 1;
}
