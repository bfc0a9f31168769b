// A layer of one's own: SwiGLU with a residual, fused into one kernel of ten lines, twice in a plan.
#include <nodewright/nodewright.h>

#include <cmath>
#include <cstdio>

NODEWRIGHT_ARGS(FusedGlu, {
  Frozen<float> gain;  // [n]
  In<float> gate, up;  // [n]
  InOut<float> x;      // [n]: x += gain * silu(gate) * up
})

using namespace nodewright;

int main(int argc, char** argv) try {
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  const Stream stream(device, "main");

  const InlineKernel source("fused_glu", kFusedGluText, R"(
    NODEWRIGHT_KERNEL(fused_glu, FusedGlu, 128) {
      release_dependents();
      const uint64_t i = blockIdx.x * 128ull + threadIdx.x;
      const float gain = i < args.gain.count ? args.gain.data[i] : 0.0f;  // weights: before the wait
      wait_for_inputs();
      if (i >= args.x.count) return;
      const float g = args.gate.data[i];
      args.x.data[i] += gain * (g / (1.0f + expf(-g))) * args.up.data[i];
    })");
  KernelCache kernels(device);
  constexpr uint64_t kCount = 1000;
  const auto glu = kernels.kernel<FusedGlu>(source, launch_shape_1d((kCount + 127) / 128, 128));

  const DeviceArray<float> gain(device, "gain", kCount), gate(device, "gate", kCount), up(device, "up", kCount),
      x(device, "x", kCount);
  gain.write(std::vector<float>(kCount, 0.5f));

  GraphBuilder g(device, "layers");
  g.declare(gain, {.live_in = true}, "weight");  // holds values before the plan runs
  g.fill("gate", gate, 2.0f);
  g.fill("up", up, 3.0f);
  g.fill("x", x, 1.0f);
  for (const char* layer : {"l0", "l1"}) {
    const auto scope = g.scope(layer);
    g.launch("glu", glu, {.gain = gain.weight(), .gate = gate, .up = up, .x = x});
  }
  ExplicitGraph graph(std::move(g).finish());
  graph.launch(stream);

  const std::vector<float> result = x.read(stream);
  const float expected = 1.0f + 2 * 0.5f * 3.0f * (2.0f / (1.0f + std::exp(-2.0f)));
  std::printf("%sx[0] = %g, expected %g\n", to_text(graph.plan()).c_str(), static_cast<double>(result[0]),
              static_cast<double>(expected));
  for (const float value : result)
    if (!(std::abs(value - expected) <= 1e-5f * expected)) return 1;
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "custom_layer: %s\n", error.what());
  return 1;
}
