// Plans that run: on the CPU driver, or on the device that $NODEWRIGHT_TEST_DEVICE names.
#include "graph/plan_run.h"

#include <cstddef>
#include <cstring>
#include <memory>
#include <random>
#include <tuple>

#include "graph/run/eager_run.h"
#include "kernels_src/saxpy.h"
#include "runtime/calls/cpu_driver_api.h"
#include "tests/graph/edges/topological_order.h"
#include "tests/graph/kernel_text.h"
#include "tests/graph/sketch.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

// A device with its kernels, opened once: compiling them takes seconds.
class RunTest : public ::testing::Test {
 protected:
  static constexpr uint64_t kCount = 500;  // floats in a buffer: not a multiple of any block

  struct Machine {
    OpenedDevice opened = open_device(test::test_device(), Observe::yes);
    std::string mix_h = kernel_text("mix.h"), mix = kernel_text("mix.cu"), hasty_mix = kernel_text("hasty_mix.cu");
    std::unique_ptr<KernelCache> kernels;
    Kernel<Mix> waiting, hasty;
    Kernel<Saxpy> saxpy;

    Machine() {
      KernelCacheOptions options;
      options.extra_sources = {
          {"tests/graph/kernels/mix.h", mix_h}, {"kernels_src/mix.cu", mix}, {"kernels_src/hasty_mix.cu", hasty_mix}};
      kernels = std::make_unique<KernelCache>(*opened.device, options);
      waiting = kernels->kernel<Mix>("mix", mix_shape(kCount));
      // A checked run reports any access of a kernel that has not waited.
      const bool checked = opened.driver->is_cpu() && opened.driver->cpu_options().check_accesses;
      hasty = kernels->kernel<Mix>({checked ? "mix" : "hasty_mix", {}}, mix_shape(kCount));
      saxpy = kernels->kernel<Saxpy>("saxpy", saxpy_shape(kCount));
    }
  };
  static void TearDownTestSuite() { machine_.reset(); }

  RunTest() {
    for (const char* name : {"x", "a", "b", "c", "y"}) buffers_.emplace_back(device(), name, kCount * sizeof(float));
    stage();
  }

  static Machine& machine() {
    if (!machine_) machine_ = std::make_unique<Machine>();
    return *machine_;
  }
  static Device& device() { return *machine().opened.device; }
  static Interposer& interposer() { return *machine().opened.interposer; }
  View<float> view(size_t i) const { return view_of<float>(buffers_[i]); }

  struct Nodes {
    Node<Mix> join;
    Node<Saxpy> saxpy;
  };

  // staging -> x; a = f(x), b = g(x) (no wait), c = 0 and c += 3 a; y = 2 b + c; y -> result.
  Plan fork_join(EdgePolicy policy, Nodes* nodes = nullptr, std::string name = "fork_join") {
    GraphBuilder g(device(), std::move(name), {{"bucket", "4"}});
    declare_all(g);
    const auto x = view(0), a = view(1), b = view(2), c = view(3), y = view(4);
    g.copy("load", x, staging_, x.bytes());
    g.fill("clear", c, 0.0f);
    {
      const auto layer = g.scope("l0");
      g.launch("left", machine().waiting, {.left = x, .right = x, .gain = {}, .y = a, .scale = 0.5f});
      g.launch("right", machine().hasty, {.left = x, .right = x.subview(0, 3), .gain = {}, .y = b, .scale = -2});
    }
    const auto layer = g.scope("l1");
    const auto saxpy = g.launch("saxpy", machine().saxpy, {.x = a, .y = c, .a = 3});
    const Mix join{.left = b, .right = c.subview(0, 250), .gain = {}, .y = y, .scale = 2};
    Mix wide = join;
    wide.right = c;
    const auto joined = g.launch("join", machine().waiting, join, {.envelope = wide});
    g.empty("joined", {.after = {joined}});
    g.copy("store", result_, y, y.bytes());
    if (nodes != nullptr) *nodes = {joined, saxpy};
    return std::move(g).finish(policy);
  }

  void declare_all(GraphBuilder& g) {
    g.declare(range_of(staging_, "input"), {.live_in = true});
    for (const DeviceBuffer& buffer : buffers_) g.declare(range_of(buffer, "activation"));
    g.declare(range_of(result_, "output"), {.live_out = true});
  }

  std::vector<float> expected(float scale = 2, bool whole_c = false) const {
    const auto x = staging_.as<float>();
    std::vector<float> y(kCount);
    const auto c = [&](uint64_t i) { return 3 * (0.5f * x[i] + x[i]); };
    for (uint64_t i = 0; i < kCount; ++i) y[i] = scale * (-2 * x[i] + x[i % 3]) + c(whole_c ? i : i % 250);
    return y;
  }

  // What the next launch copies in. The CPU driver may overwrite it once the copy has run.
  void stage() {
    const auto x = staging_.as<float>();
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.25f - 1.0f;
    x[0] = first_;
  }

  std::vector<float> result_and_clear() {
    stream_.synchronize();
    stage();
    const auto result = result_.as<float>();
    std::vector<float> values(result.begin(), result.end());
    std::fill(result.begin(), result.end(), -99.0f);
    return values;
  }

  static inline std::unique_ptr<Machine> machine_;  // made by the first test that asks
  float first_ = -1.0f;                             // staging[0]
  std::vector<DeviceBuffer> buffers_;
  PinnedBuffer staging_{device(), "staging", kCount * sizeof(float)};
  PinnedBuffer result_{device(), "result", kCount * sizeof(float)};
  Stream stream_{device(), "test"};
};

TEST_F(RunTest, EagerCapturedAndExplicitGiveTheSameBitsUnderEveryPolicy) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic})
    for (const RunMode mode : {RunMode::eager, RunMode::captured, RunMode::explicit_}) {
      SCOPED_TRACE(std::string(to_string(mode)) + ", policy " + std::to_string(static_cast<int>(policy)));
      PlanRun run(fork_join(policy), mode, stream_);
      EXPECT_EQ(run.mode(), mode);
      for (int launch = 0; launch < 3; ++launch) {
        first_ = static_cast<float>(launch);
        stage();
        run.launch();
        const auto values = result_and_clear();
        EXPECT_EQ(values, expected());
      }
    }
}

TEST_F(RunTest, EachRunUsesItsOwnDriverEntriesAndNoOther) {
  struct Counts {
    uint64_t add, capture, instantiate, launch_graph, launch_kernel;
  };
  const auto counts = [&] {
    const auto of = [&](DriverEntry entry) { return interposer().calls(entry); };
    return Counts{of(DriverEntry::cuGraphAddNode),
                  of(DriverEntry::cuStreamBeginCapture) + of(DriverEntry::cuStreamBeginCaptureToGraph),
                  of(DriverEntry::cuGraphInstantiateWithParams), of(DriverEntry::cuGraphLaunch),
                  of(DriverEntry::cuLaunchKernelEx)};
  };
  const auto during = [&](RunMode mode) {
    const Plan plan = fork_join(EdgePolicy::programmatic);
    const Counts before = counts();
    PlanRun run(plan, mode, stream_);
    run.launch();
    run.launch();
    stream_.synchronize();
    const Counts after = counts();
    return Counts{after.add - before.add, after.capture - before.capture, after.instantiate - before.instantiate,
                  after.launch_graph - before.launch_graph, after.launch_kernel - before.launch_kernel};
  };
  const Counts eager = during(RunMode::eager);
  EXPECT_EQ(eager.add + eager.capture + eager.instantiate + eager.launch_graph, 0u);
  EXPECT_EQ(eager.launch_kernel, 8u);
  const Counts captured = during(RunMode::captured);
  EXPECT_EQ(captured.add, 0u);
  EXPECT_EQ(captured.capture, 1u);
  EXPECT_EQ(captured.launch_kernel, 4u) << "launched once, under capture";
  EXPECT_EQ(captured.launch_graph, 2u);
  const Counts explicit_counts = during(RunMode::explicit_);
  EXPECT_EQ(explicit_counts.add, 8u);
  EXPECT_EQ(explicit_counts.capture, 0u);
  EXPECT_EQ(explicit_counts.launch_kernel, 0u);
  EXPECT_EQ(explicit_counts.launch_graph, 2u);
}

TEST_F(RunTest, WhatTheDriverHoldsEqualsThePlan) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
    ExplicitGraph exec(fork_join(policy));
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});
    EXPECT_EQ(exec.stats().nodes, 8u);
    EXPECT_EQ(exec.stats().full_edges + exec.stats().programmatic_edges, exec.plan().edges.size());
  }
}

TEST_F(RunTest, OnlyKernelsThatWaitGetProgrammaticEdges) {
  const Plan plan = fork_join(EdgePolicy::programmatic);
  expect_edges(plan, {"load>l0.left", "load>l0.right", "clear>l1.saxpy", "l0.left~>l1.saxpy", "l0.right~>l1.join",
                      "l1.saxpy~>l1.join", "l1.join>l1.joined", "l1.join>l1.store"});
}

TEST_F(RunTest, DroppedPlansAndOverwrittenArgumentsDoNotReachTheGraph) {
  auto plan = std::make_unique<Plan>(fork_join(EdgePolicy::programmatic));
  ExplicitGraph exec(*plan);
  CapturedGraph captured(*plan, stream_);
  for (PlanNode& node : plan->nodes) std::fill(node.arguments.begin(), node.arguments.end(), std::byte{0xff});
  plan.reset();
  exec.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected());
  captured.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected());
}

TEST_F(RunTest, PatchesChangeLaterLaunchesAndLeaveOtherFieldsAlone) {
  Nodes nodes;
  ExplicitGraph exec(fork_join(EdgePolicy::programmatic, &nodes));
  exec.launch(stream_);
  exec.patch(nodes.join, &Mix::scale, 5.0f);
  EXPECT_EQ(result_and_clear(), expected()) << "launched before the patch";
  exec.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected(5));
  exec.patch(nodes.join, &Mix::right, view(3));
  exec.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected(5, true));
  exec.patch(nodes.join, &Mix::scale, 2.0f);
  exec.patch(nodes.join, &Mix::right, view(3).subview(0, 250));
  exec.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected());
}

TEST_F(RunTest, APatchOutsideTheEnvelopeIsRefusedAndChangesNothing) {
  Nodes nodes;
  ExplicitGraph exec(fork_join(EdgePolicy::programmatic, &nodes));
  const auto message_of = [&](auto field, auto value) {
    return error_of([&] { exec.patch(nodes.join, field, value); });
  };
  const std::string elsewhere = message_of(&Mix::right, view(1));
  for (const char* word : {"'l1.join'", "field 'right'", "500 elements", "c[0,2000)"})
    EXPECT_NE(elsewhere.find(word), std::string::npos) << word << "\nin: " << elsewhere;
  EXPECT_NE(message_of(&Mix::right, View<float>{view(3).data, kCount + 1}), "");
  EXPECT_NE(message_of(&Mix::gain, Frozen<float>{view(3).data, 1}).find("empty when"), std::string::npos);

  Node<Saxpy> foreign = nodes.saxpy;
  foreign.plan = 0;
  EXPECT_THROW(exec.patch(foreign, &Saxpy::a, 1.0f), Error);
  Node<Saxpy> mistyped;
  mistyped.index = nodes.join.index;
  mistyped.plan = nodes.join.plan;
  EXPECT_THROW(exec.patch(mistyped, &Saxpy::a, 1.0f), Error);

  exec.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected());
}

TEST_F(RunTest, AnyOrderThatTheEdgesAllowGivesTheSameBits) {
  const Plan plan = fork_join(EdgePolicy::programmatic);
  std::mt19937 random(7);
  for (int trial = 0; trial < 12; ++trial) {
    const Plan other = reordered(plan, random);
    run_eager(other, stream_);
    EXPECT_EQ(result_and_clear(), expected());
    ExplicitGraph exec(other);
    exec.launch(stream_);
    EXPECT_EQ(result_and_clear(), expected());
  }
}

TEST_F(RunTest, AHundredBuildsLeaveNoGraphBehind) {
  const uint64_t graphs = interposer().live_count(HandleKind::graph);
  const uint64_t execs = interposer().live_count(HandleKind::graph_exec);
  for (int build = 0; build < 100; ++build) {
    ExplicitGraph exec(fork_join(EdgePolicy::programmatic));
    ExplicitGraph moved = std::move(exec);
    CapturedGraph captured(moved.plan(), stream_);
  }
  EXPECT_EQ(interposer().live_count(HandleKind::graph), graphs) << interposer().describe_live();
  EXPECT_EQ(interposer().live_count(HandleKind::graph_exec), execs) << interposer().describe_live();
}

TEST_F(RunTest, AFailureOfAnyCallOfABuildLeavesNothingBehindAndTheNextBuildWorks) {
  for (const RunMode mode : {RunMode::captured, RunMode::explicit_}) {
    const Plan plan = fork_join(EdgePolicy::programmatic);
    for (uint64_t call = 0;; ++call) {
      ASSERT_LT(call, 100u);
      const uint64_t injected = interposer().failures_injected();
      interposer().fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
      std::string message;
      try {
        PlanRun run(plan, mode, stream_);
        interposer().fail_none();
      } catch (const Error& error) {
        message = error.what();
      }
      interposer().fail_none();
      if (interposer().failures_injected() == injected) break;  // the build makes fewer calls
      EXPECT_NE(message.find("CUDA_ERROR_OUT_OF_MEMORY"), std::string::npos) << "call " << call;
      EXPECT_EQ(interposer().live_count(HandleKind::graph), 0u);
      EXPECT_EQ(interposer().live_count(HandleKind::graph_exec), 0u);
    }
    PlanRun run(plan, mode, stream_);
    run.launch();
    EXPECT_EQ(result_and_clear(), expected());
  }
}

TEST_F(RunTest, AnAddThatFailsNamesTheNode) {
  const Plan plan = fork_join(EdgePolicy::full);
  interposer().fail_call(4, CUDA_ERROR_INVALID_VALUE);  // create, load, clear, left, right
  std::string message;
  try {
    ExplicitGraph exec(plan);
  } catch (const Error& error) {
    message = error.what();
  }
  interposer().fail_none();
  EXPECT_NE(message.find("cannot add node 'l0.right'"), std::string::npos) << message;
}

TEST_F(RunTest, AnEmptyPlanBuildsAndRuns) {
  for (const RunMode mode : {RunMode::eager, RunMode::captured, RunMode::explicit_}) {
    GraphBuilder g(device(), "nothing");
    PlanRun run(std::move(g).finish(EdgePolicy::programmatic), mode, stream_);
    run.launch();
    stream_.synchronize();
  }
}

TEST_F(RunTest, ACapturedGraphTakesTheArgumentsOfAPlanCapturedAgain) {
  const Plan plan = fork_join(EdgePolicy::full);
  CapturedGraph captured(plan, stream_);
  Plan changed = plan;
  for (PlanNode& node : changed.nodes)
    if (node.name == "l1.join") {
      const float scale = 5;
      std::memcpy(node.arguments.data() + offsetof(Mix, scale), &scale, sizeof scale);
    }
  captured.recapture(changed, stream_);
  captured.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected(5));
  EXPECT_GT(captured.stats().update_ms, 0);

  Plan shorter = plan;  // another graph: refused, and what is instantiated stays as it was
  shorter.nodes.pop_back();
  std::erase_if(shorter.edges, [&](const Edge& edge) { return edge.to == shorter.nodes.size(); });
  EXPECT_THROW(captured.recapture(shorter, stream_), Error);
  captured.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected(5));
}

TEST_F(RunTest, ManyLaunchesBackToBackWithPatchesBetween) {
  Nodes nodes;
  ExplicitGraph exec(fork_join(EdgePolicy::programmatic, &nodes));
  for (int launch = 0; launch < 200; ++launch) {
    exec.patch(nodes.saxpy, &Saxpy::a, static_cast<float>(launch));
    exec.launch(stream_);
  }
  exec.patch(nodes.saxpy, &Saxpy::a, 3.0f);
  exec.launch(stream_);
  EXPECT_EQ(result_and_clear(), expected());
}

}  // namespace
}  // namespace nodewright
