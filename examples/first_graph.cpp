// The README's first graph: y = 3 x + y as one kernel node after two fills. `first_graph cpu` needs no GPU.
#include <nodewright/nodewright.h>

#include <cstdio>

using namespace nodewright;

int main(int argc, char** argv) {
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
  const Stream stream(device, "main");
  KernelCache kernels(device);
  const DeviceBuffer a(device, "x", 4000), b(device, "y", 4000);
  const View<float> x = view_of<float>(a), y = view_of<float>(b);

  GraphBuilder g(device, "first");
  g.declare(a);
  g.declare(b, {.live_out = true});
  g.fill("ones", x, 1.0f);
  g.fill("twos", y, 2.0f);
  g.launch("saxpy", typed_kernel<Saxpy>(kernels, {"saxpy", {}}, saxpy_shape(1000)), {.x = x, .y = y, .a = 3.0f});
  ExplicitGraph graph(std::move(g).finish(EdgePolicy::programmatic));
  graph.launch(stream);
  stream.synchronize();

  std::vector<float> result(1000);
  read_view<float>(device, result, y, "y");
  std::printf("%sy[0] = %g\n", to_text(graph.plan()).c_str(), static_cast<double>(result[0]));
  return result[0] == 5.0f && result[999] == 5.0f ? 0 : 1;
}
