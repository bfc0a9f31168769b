// The README's first graph: y = 3 x + y as one kernel node after two fills. `first_graph cpu` needs no GPU.
#include <nodewright/nodewright.h>

#include <cstdio>

using namespace nodewright;

int main(int argc, char** argv) {
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  KernelCache kernels(device);
  const DeviceArray<float> x(device, "x", 1000), y(device, "y", 1000);

  GraphBuilder g(device, "first");
  g.fill("ones", x, 1.0f);
  g.fill("twos", y, 2.0f);
  g.launch("saxpy", kernels.kernel<Saxpy>("saxpy", saxpy_shape(1000)), {.x = x, .y = y, .a = 3.0f});
  auto graph = std::move(g).instantiate();
  graph.run();

  const std::vector<float> result = y.read();
  std::printf("%sy[0] = %g\n", to_text(graph.plan()).c_str(), static_cast<double>(result[0]));
  return result[0] == 5.0f && result[999] == 5.0f ? 0 : 1;
}
