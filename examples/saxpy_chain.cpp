// A fork and a join of SAXPY kernels: shows where edges come from. Run with --device words as the command takes them:
//   saxpy_chain cpu
#include <nodewright/graph/graph_builder.h>
#include <nodewright/graph/graph_dump.h>
#include <nodewright/graph/graph_exec.h>
#include <nodewright/kernels/saxpy.h>
#include <nodewright/runtime/device_selection.h>
#include <nodewright/runtime/error.h>

#include <cstdio>
#include <vector>

using namespace nodewright;

int main(int argc, char** argv) try {
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  const Stream stream(device, "main");
  KernelCache kernels(device);
  constexpr uint64_t kCount = 1000;
  const auto saxpy = kernels.kernel<Saxpy>("saxpy", saxpy_shape(kCount));

  const DeviceArray<float> a(device, "a", kCount), b(device, "b", kCount), c(device, "c", kCount);

  GraphBuilder g(device, "fork_join");
  g.fill("ones_a", a, 1.0f);
  g.fill("ones_b", b, 1.0f);
  g.fill("ones_c", c, 1.0f);
  const auto left = g.launch("left", saxpy, {.x = a, .y = b, .a = 2.0f});  // b = 3
  g.launch("right", saxpy, {.x = a, .y = c, .a = 3.0f});                   // c = 4, beside `left`
  g.launch("join", saxpy, {.x = b, .y = c, .a = 10.0f});                   // c = 34, after both
  ExplicitGraph exec(std::move(g).finish());
  std::fputs(to_text(exec.plan()).c_str(), stdout);

  exec.upload(stream);
  for (const float factor : {2.0f, 5.0f}) {
    exec.patch(left, &Saxpy::a, factor);  // one scalar of one node; nothing is built again
    exec.launch(stream);
    const std::vector<float> result = c.read(stream);
    std::printf("a = %g: c[0] = %g, c[%d] = %g\n", static_cast<double>(factor), static_cast<double>(result[0]),
                static_cast<int>(kCount - 1), static_cast<double>(result[kCount - 1]));
    const float expected = 4.0f + 10.0f * (1.0f + factor);
    for (const float value : result)
      if (value != expected) return 1;
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "saxpy_chain: %s\n", error.what());
  return 1;
}
