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
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
  const Stream stream(device, "main");
  KernelCache kernels(device);
  constexpr uint64_t kCount = 1000;
  const auto saxpy = typed_kernel<Saxpy>(kernels, {"saxpy", {}}, saxpy_shape(kCount));

  const DeviceBuffer a(device, "a", kCount * sizeof(float)), b(device, "b", kCount * sizeof(float)),
      c(device, "c", kCount * sizeof(float));
  const View<float> va = view_of<float>(a), vb = view_of<float>(b), vc = view_of<float>(c);

  GraphBuilder g(device, "fork_join");
  for (const DeviceBuffer* buffer : {&a, &b, &c}) g.declare(range_of(*buffer, "activation"), {.live_out = true});
  g.fill("ones_a", va, 1.0f);
  g.fill("ones_b", vb, 1.0f);
  g.fill("ones_c", vc, 1.0f);
  const auto left = g.launch("left", saxpy, {.x = va, .y = vb, .a = 2.0f});  // b = 3
  g.launch("right", saxpy, {.x = va, .y = vc, .a = 3.0f});                   // c = 4, beside `left`
  g.launch("join", saxpy, {.x = vb, .y = vc, .a = 10.0f});                   // c = 34, after both
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::programmatic));
  std::fputs(to_text(exec.plan()).c_str(), stdout);

  exec.upload(stream);
  for (const float factor : {2.0f, 5.0f}) {
    exec.patch(left, &Saxpy::a, factor);  // one scalar of one node; nothing is built again
    exec.launch(stream);
    stream.synchronize();
    std::vector<float> result(kCount);
    read_view<float>(device, result, vc, "c");
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
