// Another kernel in a node of an instantiated graph: what runs, what is refused by which rule, and what a patched plan
// and its dumps show.
#include "graph/dump/graph_dump.h"
#include "graph/patch.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

template <class Args, class Other>
concept TakesKernel = requires(PatchSet& patches, ExplicitGraph& graph, Node<Args> node, Kernel<Other> kernel) {
  patches.kernel(node, kernel);
  graph.patch(node, kernel);
};
static_assert(TakesKernel<Accumulate, Accumulate> && !TakesKernel<Accumulate, Blend>);

enum class Inside { nothing, child, body };

class KernelChangeTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;

  static Kernel<Accumulate> scaled(int factor) { return machine().scaled_by(factor, n); }

  struct Nodes {
    Node<Blend> blend;
    Node<Accumulate> add;
    ForeignBlendNode foreign;
  };
  // y = blend(x, x); z += y; w = foreign(y, x): everything after the first node may start early.
  Nodes add_all(GraphBuilder& g) {
    Nodes nodes;
    nodes.blend = g.launch("blend", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
    nodes.add = g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 2});
    nodes.foreign = launch_foreign_blend(g, "foreign", *machine().foreign, blend_shape(n), y_, x_, w_, 7);
    return nodes;
  }
  Plan plan_of(Inside inside, Nodes& nodes, EdgePolicy policy = EdgePolicy::programmatic) {
    GraphBuilder g(device(), "changed");
    declare_all(g);
    if (inside == Inside::nothing) nodes = add_all(g);
    if (inside == Inside::child) {
      GraphBuilder part(device(), "part");
      declare_all(part);
      nodes = add_all(part);
      g.child("part", std::move(part).finish(policy));
    }
    if (inside == Inside::body) g.if_else("if", g.condition("c", 1), [&](GraphBuilder& b) { nodes = add_all(b); });
    return std::move(g).finish(policy);
  }

  // Launches, and compares with the model of the patched plan; returns that plan.
  Plan expect_launch(ExplicitGraph& exec, const std::string& what) {
    const Plan patched = plan_as_patched(exec);
    reset();
    HostModel reference = model();
    reference.run(patched);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << what;
    return patched;
  }
  static const PlanNode& node_named(const Plan& plan, std::string_view name) {
    for (const PlanNode& node : plan.nodes) {
      if (node.name == name) return node;
      for (const auto& body : node.bodies)
        for (const PlanNode& inner : body->nodes)
          if (inner.name == name) return inner;
    }
    throw std::out_of_range("no such node");
  }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), w_ = words("w", n);
  const ForeignKernel& other_ = *machine().foreign_other;
};

TEST_F(KernelChangeTest, AnotherVariantOrFunctionTakesTheNodeAtTheTopInChildrenAndInBodies) {
  for (const Inside inside : {Inside::nothing, Inside::child, Inside::body}) {
    SCOPED_TRACE(static_cast<int>(inside));
    Nodes nodes;
    ExplicitGraph exec(plan_of(inside, nodes));
    expect_launch(exec, "as built");
    exec.patch(nodes.add, scaled(7));
    EXPECT_EQ(node_named(expect_launch(exec, "a variant"), "add").kernel_name(), "scaled");
    exec.patch(nodes.add, &Accumulate::salt, 91u);
    expect_launch(exec, "an argument of the new kernel");
    exec.patch(nodes.foreign, other_, blend_shape(n));
    EXPECT_EQ(node_named(expect_launch(exec, "a foreign function"), "foreign").kernel_name(), "foreign_other");
    exec.patch<"salt">(nodes.foreign, 300u);
    expect_launch(exec, "an argument of the new function");

    PatchSet patches(exec);
    patches.kernel(nodes.add, scaled(9));
    patches.kernel(nodes.foreign, *machine().foreign, blend_shape(n));
    patches.shape(nodes.add, blend_shape(100));
    patches.set(nodes.add, &Accumulate::salt, 17u);
    EXPECT_EQ(patches.size(), 2u);
    patches.apply();
    const Plan patched = expect_launch(exec, "a set");
    EXPECT_EQ(node_named(patched, "add").shape.grid[0], 2u) << "the later shape";
    EXPECT_EQ(node_named(patched, "foreign").kernel_name(), "foreign_blend");
    exec.patch(nodes.add, machine().accumulate_of(n));
    exec.patch(nodes.add, &Accumulate::salt, 2u);
    EXPECT_EQ(node_named(expect_launch(exec, "as it was"), "add").shape.grid[0], 4u) << "a kernel brings its shape";
  }
}

TEST_F(KernelChangeTest, DumpsOfThePatchedPlanShowTheKernelAndAGraphBuiltOfItRunsIt) {
  for (const Inside inside : {Inside::nothing, Inside::child, Inside::body}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(inside, nodes));
    PatchSet patches(exec);
    patches.kernel(nodes.add, scaled(5));
    patches.kernel(nodes.foreign, other_, blend_shape(n));
    patches.apply();
    const Plan patched = plan_as_patched(exec);
    for (const std::string& text : {to_text(patched), to_json(patched)}) {
      EXPECT_NE(text.find("scaled"), std::string::npos) << text;
      EXPECT_NE(text.find("foreign_other"), std::string::npos) << text;
      EXPECT_EQ(text.find("accumulate"), std::string::npos) << text;
    }
    EXPECT_NE(to_json(patched).find("scaled[kFactor=5]"), std::string::npos);
    EXPECT_EQ(to_text(exec.plan()).find("scaled"), std::string::npos) << "the plan is as it was built";
    ExplicitGraph again(patched);
    EXPECT_EQ(read_back(again), std::vector<std::string>{});
    expect_launch(again, "a graph of the patched plan");
  }
}

TEST_F(KernelChangeTest, APatchedPlanKeepsThePlannedPlacesOfItsOwnMemory) {
  GraphBuilder g(device(), "scratch");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
  const Words s = scratch.view<uint32_t>();
  g.copy("to", s, x_, x_.bytes());
  const auto add = g.launch("add", machine().accumulate_of(n), {.y = s, .x = x_, .salt = 1});
  g.copy("from", z_, s, z_.bytes());
  g.free(scratch);
  ExplicitGraph exec(std::move(g).finish());
  exec.patch(add, scaled(3));
  const Plan patched = expect_launch(exec, "in memory of the plan");
  Accumulate planned;
  std::memcpy(&planned, node_named(patched, "add").arguments.data(), sizeof planned);
  EXPECT_EQ(planned.y.data, s.data);
}

TEST_F(KernelChangeTest, WhatTheNodeOrTheDeviceDoesNotAllowIsRefusedByName) {
  for (const Inside inside : {Inside::nothing, Inside::child, Inside::body}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(inside, nodes));
    PatchSet patches(exec);
    const auto refused = [&](auto node, const auto& kernel, std::initializer_list<std::string_view> words) {
      expect_words(error_of([&] { patches.kernel(node, kernel); }), words);
      expect_words(error_of([&] { exec.patch(node, kernel); }), words);
      EXPECT_EQ(patches.size(), 0u);
    };
    refused(nodes.add, Kernel<Accumulate>{}, {"'add'", "no kernel"});
    refused(nodes.add, Kernel<Accumulate>{scaled(7).loaded, launch_shape_1d(1, 65)},
            {"change the kernel of node 'add'", "kernel 'scaled' takes at most 64 threads"});
    refused(nodes.add, Kernel<Accumulate>{scaled(7).loaded, LaunchShape{{0, 1, 1}, {64, 1, 1}}}, {"'add'", "grid x"});
    refused(nodes.add, Kernel<Accumulate>{machine().blend.loaded, blend_shape(n)}, {"'add'", "kernel 'blend' takes"});
    Node<Accumulate> mistyped;
    mistyped.index = nodes.blend.index;
    mistyped.plan = nodes.blend.plan;
    refused(mistyped, scaled(7), {"'blend'", "other arguments"});
    const ForeignKernel whole = load_foreign(device(), "foreign_whole", [](ForeignSource) {});
    expect_words(error_of([&] { exec.patch(nodes.foreign, whole, blend_shape(n)); }),
                 {"'foreign'", "takes 1 parameters, and the launch has 6"});
    expect_words(error_of([&] { patches.kernel(nodes.foreign, other_, launch_shape_1d(1, 2000)); }),
                 {"'foreign'", "block x"});
    patches.apply();
    expect_launch(exec, "nothing was applied");
  }
}

TEST_F(KernelChangeTest, AKernelThatDoesNotWaitIsRefusedAfterAProgrammaticEdgeOnly) {
  const Kernel<Blend> hasty = machine().hasty_of(n);
  if (hasty.loaded->waits_for_inputs) GTEST_SKIP() << "a checked run has no such kernel";
  for (const EdgePolicy policy : {EdgePolicy::programmatic, EdgePolicy::full}) {
    GraphBuilder g(device(), "early");
    declare_all(g);
    g.launch("first", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
    const auto second = g.launch("second", machine().blend_of(n), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 1});
    ExplicitGraph exec(std::move(g).finish(policy));
    const bool early = exec.plan().edges.at(0).type == EdgeType::programmatic;
    EXPECT_EQ(early, policy == EdgePolicy::programmatic && device().properties().cc_major >= 9);
    const std::string message = error_of([&] { exec.patch(second, hasty); });
    if (early)
      expect_words(message, {"'second'", "the edge from 'first' is programmatic",
                             "kernel 'hasty_blend' does not wait for its inputs", "EdgePolicy::full"});
    else
      EXPECT_EQ(message, "");
    const Plan patched = expect_launch(exec, "after it");
    EXPECT_EQ(node_named(patched, "second").waits_for_inputs, early);
  }
}

TEST_F(KernelChangeTest, WhatTheDriverRefusesChangesNothingAndIsReportedWithItsRules) {
  for (const Inside inside : {Inside::nothing, Inside::child, Inside::body}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(inside, nodes));
    const Kernel<Accumulate> seven = scaled(7);  // is loaded before a call fails
    interposer().fail_call(0, CUDA_ERROR_INVALID_VALUE);
    std::string message = error_of([&] { exec.patch(nodes.add, seven); });
    interposer().fail_none();
    expect_words(message, {"'add'", "kernel 'scaled' in the place of 'accumulate'", "dynamic parallelism"});
    expect_launch(exec, "refused");
    PatchSet patches(exec);
    patches.kernel(nodes.foreign, other_, blend_shape(n));
    patches.kernel(nodes.add, seven);
    interposer().fail_call(1, CUDA_ERROR_INVALID_VALUE);
    message = error_of([&] { patches.apply(); });
    interposer().fail_none();
    expect_words(message, {"'add'", "were undone", "dynamic parallelism"});
    EXPECT_EQ(node_named(expect_launch(exec, "undone"), "foreign").kernel_name(), "foreign_blend");
    patches.apply();
    EXPECT_EQ(node_named(expect_launch(exec, "tried again"), "add").kernel_name(), "scaled");
  }
}

// The rules for what edges rely on, on plans that never run.
struct Peek {
  Settled<float> peeked;
  In<float> x;
  Out<float> y;
};

class KernelChangeRulesTest : public SketchTest {};

TEST_F(KernelChangeRulesTest, AKernelThatReleasesEarlyIsRefusedWhereALaterNodeReadsSettledMemory) {
  LoadedKernel late = named_kernel("late", true), soon = named_kernel("soon", true), peek = named_kernel("peek", true);
  late.releases_after_wait = true;
  peek.args_bytes = sizeof(Peek);
  const Kernel<Peek> peeking{&peek, mix_shape(kSketchCount)};
  const auto plan_with = [&](bool reads_settled) {
    GraphBuilder g(device(), "late");
    const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), a = buffer(g, "a"), b = buffer(g, "b"),
               y = buffer(g, "y");
    g.launch("writer", waiting, {.left = x, .right = x, .gain = {}, .y = h, .scale = 1});
    g.launch("late", Kernel<Mix>{&late, mix_shape(kSketchCount)},
             {.left = h, .right = h, .gain = {}, .y = a, .scale = 1});
    g.launch("between", waiting, {.left = a, .right = a, .gain = {}, .y = b, .scale = 1});
    if (reads_settled)
      g.launch("peek", peeking, {.peeked = h, .x = b, .y = y});
    else
      g.launch("look", waiting, {.left = h, .right = b, .gain = {}, .y = y, .scale = 1});
    return std::move(g).finish(EdgePolicy::programmatic);
  };
  const auto change = [&](const Plan& plan) {
    return error_of([&] { check_kernel_change(plan, plan.nodes[1], {&soon, true}, mix_shape(kSketchCount)); });
  };
  const std::string message = change(plan_with(true));
  if (device().properties().cc_major >= 9)
    expect_words(message, {"'late'", "'peek' reads settled memory", "kernel 'soon'", "release_behind_wait"});
  EXPECT_EQ(change(plan_with(false)), "");
  Plan full = plan_with(true);
  for (Edge& edge : full.edges) edge.type = EdgeType::full;
  EXPECT_EQ(change(full), "");
}

TEST_F(KernelChangeRulesTest, AKernelOfAnExchangeStays) {
  const LoadedKernel other = named_kernel("other", true);
  GraphBuilder g(device(), "exchange");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y");
  g.launch("sum", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
  Plan plan = std::move(g).finish();
  const auto change = [&] {
    return error_of([&] { check_kernel_change(plan, plan.nodes[0], {&other, true}, mix_shape(kSketchCount)); });
  };
  EXPECT_EQ(change(), "");
  plan.nodes[0].exchange = 3;
  expect_words(change(), {"'sum'", "exchange 3", "kernel 'mix'"});
}

}  // namespace
}  // namespace nodewright
