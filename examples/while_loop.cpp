// A loop that ends when the device says so: Newton's square root, each round a kernel node that also sets the
// condition.
#include <nodewright/nodewright.h>

#include <cmath>
#include <cstdio>

NODEWRIGHT_ARGS(NewtonRoot, {
  In<float> a;        // [1]
  InOut<float> root;  // [1]: one step towards the square root of a
  InOut<uint32_t> rounds;
  Condition more;  // whether another round is worth it
})

using namespace nodewright;

int main(int argc, char** argv) try {
  const OpenedDevice device = open_device(argc > 1 ? argv[1] : "auto");
  const Stream stream(device, "main");
  const InlineKernel source("newton_root", kNewtonRootText, R"(
    NODEWRIGHT_KERNEL(newton_root, NewtonRoot, 32) {
      release_dependents();
      wait_for_inputs();
      if (threadIdx.x != 0) return;
      const float before = args.root.data[0], after = 0.5f * (before + args.a.data[0] / before);
      args.root.data[0] = after;
      args.rounds.data[0] += 1;
      set_condition(args.more, fabsf(after - before) > 1e-6f * after ? 1 : 0);
    })");
  KernelCache kernels(device);
  const auto newton = kernels.kernel<NewtonRoot>(source, launch_shape_1d(1, 32));
  const DeviceArray<float> a(device, "a", 1), root(device, "root", 1);
  const DeviceArray<uint32_t> rounds(device, "rounds", 1);

  GraphBuilder g(device, "square_root");
  g.declare(a, {.live_in = true}, "input");
  g.copy("first_guess", root, a, a.bytes());
  g.fill("no_rounds", rounds, 0u);
  const ConditionHandle more = g.condition("more", 1);
  g.while_loop("until_it_stands_still", more, [&](GraphBuilder& body) {
    body.launch("newton", newton, {.a = a, .root = root, .rounds = rounds, .more = more});
  });
  ExplicitGraph graph(std::move(g).finish());
  std::fputs(to_text(graph.plan()).c_str(), stdout);

  for (const float value : {2.0f, 1e6f}) {
    a.write({{value}});
    graph.launch(stream);
    const float found = root.read(stream)[0];
    const uint32_t count = rounds.read(stream)[0];
    std::printf("sqrt(%g) = %g after %u rounds\n", static_cast<double>(value), static_cast<double>(found), count);
    if (!(std::abs(found - std::sqrt(value)) <= 1e-5f * found) || count < 2) return 1;
  }
  return 0;
} catch (const Error& error) {
  std::fprintf(stderr, "while_loop: %s\n", error.what());
  return 1;
}
