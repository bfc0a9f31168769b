// The decode loop of captured.cu on Nodewright: the same kernels and the same call of cuBLAS, without a second stream
// and events. The graph is built once; a step patches the one argument that changes.
//   explicit DEVICE             decodes; on `cpu` functions of the host stand in for kernels and cuBLAS
//   explicit DEVICE --mistake   makes the mistake of captured.cu in the only way there is, and takes edges away
#include <nodewright/nodewright.h>
#include <nodewright/runtime/cuda_symbol.h>

#include <functional>

#include "examples/port/kernels.cuh"
#include "examples/port/refusals.h"

using namespace nodewright;
using namespace port;

namespace {

using Views = Memory<View<float>, View<int>>;

struct Machine {
  Device& device;
  Stream stream{device, "main"};
  ForeignKernel embed = kernel_of_symbol(device, port::embed, "embed", embed_on_host);
  ForeignKernel norm = kernel_of_symbol(device, port::norm, "norm", norm_on_host);
  ForeignKernel matvec = kernel_of_symbol(device, port::matvec, "matvec", matvec_on_host);
  ForeignKernel attend = kernel_of_symbol(device, port::attend, "attend", attend_on_host);
  ForeignKernel choose = kernel_of_symbol(device, port::choose, "choose", choose_on_host);
  cublasHandle_t cublas = nullptr;
  DeviceBuffer workspace{device, "workspace", kWorkspaceBytes};
  std::vector<NamedRange> ranges{};
  std::vector<DeviceBuffer> buffers{};
};

template <class T>
View<T> on_device(Machine& on, const std::string& name, const std::vector<T>& values, const char* kind) {
  const DeviceBuffer& buffer = on.buffers.emplace_back(on.device, name, values.size() * sizeof(T));
  write_view<T>(on.device, view_of<T>(buffer), values, name);
  on.ranges.push_back(range_of(buffer, kind));
  return view_of<T>(buffer);
}

using Changes = std::vector<std::function<void(ExplicitGraph&, unsigned position)>>;

Plan plan_step(const Machine& on, const Views& m, bool mistake, Changes& changes) {
  GraphBuilder g(on.device, "step");
  g.declare(on.workspace, {}, "workspace");
  for (const NamedRange& range : on.ranges)
    g.declare(range, {.live_in = range.kind != "activation", .live_out = range.kind == "state"});
  const auto changing = [&](auto node) {
    changes.push_back([node](ExplicitGraph& graph, unsigned now) { graph.patch<"position">(node, now); });
  };
  const auto position = value<"position">(0u);
  const auto over = [](unsigned blocks) { return launch_shape_1d(blocks, kThreads); };

  changing(
      g.launch("embed", on.embed, over(kWidth / kThreads), reads(m.embedding), reads(m.tokens), position, writes(m.x)));
  for (unsigned l = 0; l < kLayers; ++l) {
    const auto& layer = m.layers[l];
    const auto scope = g.scope("l" + std::to_string(l));
    const auto kv = [&] {
      g.launch("kv", on.matvec, over(2 * kWidth / kRows), reads(layer.kv), reads(m.normed), 2 * kWidth, kWidth,
               Then::store, writes(m.kv));
    };
    if (mistake) kv();
    g.launch("norm", on.norm, over(1), reads(m.x), writes(m.normed));
    if (!mistake) kv();
    g.launch("q", on.matvec, over(kWidth / kRows), reads(layer.q), reads(m.normed), kWidth, kWidth, Then::store,
             writes(m.q));
    changing(g.launch("attend", on.attend, launch_shape_1d(kHeads, kHeadWidth), reads(m.q), reads(m.kv), position,
                      updates(layer.cache), writes(m.attended)));
    g.launch("out", on.matvec, over(kWidth / kRows), reads(layer.out), reads(m.attended), kWidth, kWidth, Then::add,
             updates(m.x));
    g.launch("norm_2", on.norm, over(1), reads(m.x), writes(m.normed));
    g.launch("up", on.matvec, over(kHidden / kRows), reads(layer.up), reads(m.normed), kHidden, kWidth, Then::clip,
             writes(m.hidden));
    g.launch("down", on.matvec, over(kWidth / kRows), reads(layer.down), reads(m.hidden), kWidth, kHidden, Then::add,
             updates(m.x));
  }
  g.launch("norm", on.norm, over(1), reads(m.x), writes(m.normed));
  g.library(
      "logits", {reads(m.head), reads(m.normed), writes(view_of<std::byte>(on.workspace)), writes(m.logits)},
      [&on, m](CUstream stream) {
        multiply_with_cublas(on.cublas, stream, reinterpret_cast<void*>(on.workspace.address()), m.head.data,
                             m.normed.data, m.logits.data);
      },
      [m] { matvec_on_host(m.head.data, m.normed.data, kVocabulary, kWidth, Then::store, m.logits.data); });
  changing(g.launch("choose", on.choose, over(1), reads(m.logits), position, updates(m.tokens)));
  return std::move(g).finish(EdgePolicy::programmatic);
}

}  // namespace

int main(int argc, char** argv) try {
  const bool mistake = argc > 2 && std::string_view(argv[2]) == "--mistake";
  const Model model = random_model();
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "auto");
  Machine on{*opened.device};
  if (!opened.driver->is_cpu()) check(cublasCreate(&on.cublas));
  const auto m = make_memory<View<float>, View<int>>(
      model, [&](const auto& name, const auto& values, const char* kind) { return on_device(on, name, values, kind); });
  Changes changes;
  if (mistake) return show_refusals([&](bool make_it) { return plan_step(on, m, make_it, changes); });

  ExplicitGraph graph(plan_step(on, m, false, changes));
  StepTimes times;
  for (unsigned position = 0; position < kSteps; ++position) {
    const auto begin = StepTimes::now();
    for (const auto& change : changes) change(graph, position);
    graph.launch(on.stream);
    on.stream.synchronize();
    times.add(begin);
  }

  std::vector<int> tokens(kSteps + 1);
  read_view<int>(on.device, tokens, m.tokens, "tokens");
  return report(tokens, decode_on_host(model), times);
} catch (const std::exception& error) {
  std::fprintf(stderr, "explicit: %s\n", error.what());
  return 2;
}
