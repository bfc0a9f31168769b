// Its own kernel, then cuBLAS, then a kernel written for Nodewright, on its own stream: stranger cpu | cuda:0.
#include <nodewright/nodewright.h>

#include <cstdio>
#include <optional>

#include "cublas.h"
#include "runtime/device.h"

asm(".pushsection .rodata\n.balign 16\n.global scale_image\nscale_image: .incbin \"" SCALE_IMAGE
    "\"\n"
    ".global scale_image_end\nscale_image_end: .byte 0\n.popsection\n");
extern "C" const char scale_image[], scale_image_end[];

namespace stranger {

NODEWRIGHT_ARGS(Shift, {
  InOut<float> y;  // [n]
  float by;
  Optional<In<float>> times = {};  // [n]
})

constexpr unsigned kCount = 1000, kThreads = 128, kBlocks = (kCount + kThreads - 1) / kThreads;

void scale_on_host(unsigned n, float factor, float* x) {
  for (unsigned i = 0; i < n; ++i) x[i] *= factor;
}

nodewright::ForeignKernel scale_kernel(nodewright::Device& device, nodewright::KernelCache& kernels) {
#ifdef SCALE_IS_FATBIN
  (void)kernels;
  return nodewright::load_kernel(device, std::as_bytes(std::span(scale_image, scale_image_end)), "scale",
                                 scale_on_host);
#else
  (void)device;
  return nodewright::compile_kernel(kernels, {.name = "scale"}, scale_on_host);
#endif
}

int run(const char* spec) {
  const nodewright::OpenedDevice opened = nodewright::open_device(spec);
  nodewright::Device& device = *opened.device;
  const Queue queue(device);
  const nodewright::Stream stream = nodewright::Stream::borrow(device, queue.stream(), "queue");
  std::optional<Cublas> cublas;
  if (!device.driver().is_cpu()) cublas.emplace();

  const nodewright::InlineKernel shift_source("shift", kShiftText, R"(
    NODEWRIGHT_KERNEL(shift, Shift, 128) {
      wait_for_inputs();
      const uint64_t i = blockIdx.x * 128ull + threadIdx.x;
      if (i < args.y.count) args.y.data[i] = args.y.data[i] * (args.times.count > 0 ? args.times.data[i] : 1.0f) + args.by;
    })");
  const std::string_view scale_source(scale_image, scale_image_end);
  nodewright::KernelCache kernels(device, {.extra_sources = {shift_source, {"kernels_src/scale.cu", scale_source}}});
  const nodewright::ForeignKernel scale = scale_kernel(device, kernels);
  const auto shape = nodewright::launch_shape_1d(kBlocks, kThreads);
  const auto shift = kernels.kernel<Shift>({.name = "shift"}, shape);

  const nodewright::DeviceBuffer a(device, "a", kCount * sizeof(float)), b(device, "b", kCount * sizeof(float));
  const auto x = nodewright::view_of<float>(a), y = nodewright::view_of<float>(b);
  nodewright::GraphBuilder g(device, "stranger");
  g.declare(a);
  g.declare(b, {.live_out = true});
  g.fill("x", x, 1.0f);
  g.fill("y", y, 10.0f);
  g.launch("scale", scale, shape, nodewright::value<"n">(kCount), nodewright::value<"factor">(3.0f),
           nodewright::updates<"x">(x));
  g.library(
      "axpy", {nodewright::reads<"x">(x), nodewright::updates<"y">(y)},
      [&](CUstream on) { cublas->saxpy(on, kCount, 2.0f, x.data, y.data); },
      [&] {
        for (unsigned i = 0; i < kCount; ++i) y.data[i] += 2.0f * x.data[i];
      });
  g.launch("shift", shift, {.y = y, .by = 1.0f});

  nodewright::ExplicitGraph graph(std::move(g).finish(nodewright::EdgePolicy::programmatic));
  const nodewright::Plan& plan = graph.plan();
  for (const nodewright::Edge& edge : plan.edges)
    std::printf("edge %s -> %s: %s\n", plan.nodes[edge.from].name.c_str(), plan.nodes[edge.to].name.c_str(),
                describe(plan, edge.reasons.front()).c_str());
  graph.launch(stream);
  stream.synchronize();
  std::vector<float> result(kCount);
  nodewright::read_view<float>(device, result, y, "y");
  std::printf("%sy[0] = %g, expected 17\n", to_text(plan).c_str(), static_cast<double>(result[0]));
  for (const float value : result)
    if (value != 17.0f) return 1;
  return 0;
}

}  // namespace stranger

int main(int argc, char** argv) try {
  return stranger::run(argc > 1 ? argv[1] : "auto");
} catch (const std::exception& error) {
  std::fprintf(stderr, "stranger: %s\n", error.what());
  return 1;
}
