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
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Device& device = *opened.device;
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
  KernelCache kernels(device, {.folder = {}, .extra_sources = {source}, .progress = {}});
  constexpr uint64_t kCount = 1000;
  const auto glu = typed_kernel<FusedGlu>(kernels, {"fused_glu", {}}, launch_shape_1d((kCount + 127) / 128, 128));

  const auto buffer = [&](const char* name) { return DeviceBuffer(device, name, kCount * sizeof(float)); };
  const DeviceBuffer gain = buffer("gain"), gate = buffer("gate"), up = buffer("up"), x = buffer("x");
  const auto view = [](const DeviceBuffer& b) { return view_of<float>(b); };
  const std::vector<float> gains(kCount, 0.5f);
  write_view<float>(device, view(gain), gains, "gain");

  GraphBuilder g(device, "layers");
  g.declare(gain, {.live_in = true}, "weight");
  for (const DeviceBuffer* b : {&gate, &up, &x}) g.declare(*b, {.live_out = true});
  g.fill("gate", view(gate), 2.0f);
  g.fill("up", view(up), 3.0f);
  g.fill("x", view(x), 1.0f);
  for (const char* layer : {"l0", "l1"}) {
    const auto scope = g.scope(layer);
    g.launch("glu", glu, {.gain = weight_of<float>(gain), .gate = view(gate), .up = view(up), .x = view(x)});
  }
  ExplicitGraph graph(std::move(g).finish(EdgePolicy::programmatic));
  graph.launch(stream);
  stream.synchronize();

  std::vector<float> result(kCount);
  read_view<float>(device, result, view(x), "x");
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
