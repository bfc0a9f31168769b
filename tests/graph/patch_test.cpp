// Patches and patch sets: what they change, in the graph itself, in moved children and in bodies; what they refuse; and
// that a set is applied as a whole or not at all.
#include "graph/patch.h"

#include "graph/run/captured_run.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {

// As large as Accumulate, with the roles the other way round.
struct Swapped {
  In<uint32_t> y;
  InOut<uint32_t> x;
  uint32_t salt;
};
static_assert(sizeof(Swapped) == sizeof(Accumulate));

namespace {

// What must not compile.
template <class Graph>
concept LaunchesWhenConst = requires(const Graph& graph, const Stream& stream) {
  graph.launch(stream);
};
static_assert(!LaunchesWhenConst<ExplicitGraph> && !LaunchesWhenConst<CapturedGraph>);
template <class Set, class To>
concept CopiesTo = requires(Set& set, To to, View<float> from) {
  set.copy(CopyNode(), to, from, 4);
};
static_assert(CopiesTo<PatchSet, View<float>> && !CopiesTo<PatchSet, Weight<float>>);

enum class Where { top, child, body };

class PatchTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;  // four blocks

  struct Nodes {
    CopyNode load, store, rows;
    FillNode fill, bytes, row_fill;
    Node<Blend> blend;
    Node<Accumulate> add;
    NodeId end;
  };

  // x = in; h = 5; y = blend(x, h); z += y; out = z, and copies of rows and bytes beside.
  Nodes add_all(GraphBuilder& g) {
    Nodes nodes;
    nodes.load = g.copy("load", x_, host_end(in_), x_.bytes());
    nodes.fill = g.fill("fill", h_, 5u);
    nodes.bytes = g.fill("bytes", View<uint8_t>{reinterpret_cast<uint8_t*>(r_.data) + 400, 100}, uint8_t{7});
    nodes.row_fill = g.fill_rows("row_fill", r_.subview(130, 60), {.count = 2, .rows = 5, .pitch = 40}, 8u);
    const Blend blend{.a = x_.subview(0, 50), .b = h_, .key = {}, .y = y_, .salt = 1};
    Blend widest = blend;
    widest.a = x_;
    nodes.blend = g.launch("blend", machine().blend_of(n), blend, {.envelope = widest});
    nodes.add = g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 2});
    nodes.rows = g.copy_rows("rows", r_.subview(0, 80), x_, {.bytes = 16, .rows = 5, .to_pitch = 64, .from_pitch = 32});
    nodes.store = g.copy("store", host_end(out_), z_, z_.bytes());
    nodes.end = g.empty("end", {.after = {nodes.store}});
    return nodes;
  }

  Plan plan_of(Where where, Nodes& nodes) {
    GraphBuilder g(device(), "patched");
    declare_all(g);
    if (where == Where::top) nodes = add_all(g);
    if (where == Where::child) {
      GraphBuilder inner(device(), "part");
      declare_all(inner);
      nodes = add_all(inner);
      g.child("part", std::move(inner).finish(EdgePolicy::programmatic));
    }
    if (where == Where::body) g.if_else("if", g.condition("c", 1), [&](GraphBuilder& body) { nodes = add_all(body); });
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  // `plan` with its node `name`, wherever it is, changed by `edit`; null: taken out of what the model runs.
  static Plan edited(const Plan& plan, const std::string& name, const std::function<void(PlanNode&)>& edit) {
    Plan result = plan;
    for (PlanNode& node : result.nodes) {
      if (node.name == name && edit) edit(node);
      if (node.name == name && !edit) node.kind = NodeKind::empty;
      for (auto& body : node.bodies) body = std::make_shared<const Plan>(edited(*body, name, edit));
    }
    return result;
  }
  template <class Args, class Function>
  static std::function<void(PlanNode&)> arguments(Function function) {
    return [function](PlanNode& node) {
      Args args;
      std::memcpy(&args, node.arguments.data(), sizeof args);
      function(args);
      std::memcpy(node.arguments.data(), &args, sizeof args);
    };
  }

  // A launch of `exec` computes what the model makes of `plan`.
  void expect_launch(ExplicitGraph& exec, const Plan& plan, const std::string& what) {
    reset();
    HostModel reference = model();
    reference.run(plan);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << what;
  }

  // A change of every kind, in one set; the plan that the model runs for it.
  Plan change_everything(PatchSet& patches, const Nodes& nodes, const Plan& plan) {
    patches.set(nodes.blend, &Blend::salt, 99u);
    patches.set(nodes.blend, &Blend::a, x_.subview(20, 100));
    patches.shape(nodes.blend, blend_shape(100));
    patches.set(nodes.add, &Accumulate::salt, 12u);
    patches.fill(nodes.fill, 0xabcdef01u);
    patches.fill(nodes.bytes, 0xee);
    patches.copy(nodes.load, x_.subview(10, 100), host_end(in_.subview(30, 90)), 360);
    patches.enable(nodes.store, false);
    Plan changed = edited(plan, "blend", arguments<Blend>([this](Blend& args) {
                            args.salt = 99;
                            args.a = x_.subview(20, 100);
                          }));
    changed = edited(changed, "blend", [](PlanNode& node) { node.shape = blend_shape(100); });
    changed = edited(changed, "add", arguments<Accumulate>([](Accumulate& args) { args.salt = 12; }));
    changed = edited(changed, "fill", [](PlanNode& node) { node.fill.value = 0xabcdef01u; });
    changed = edited(changed, "bytes", [](PlanNode& node) { node.fill.value = 0xee; });
    changed = edited(changed, "load", [this](PlanNode& node) {
      node.copy.to = x_.address() + 40;
      node.copy.from = in_.address() + 120;
      node.copy.bytes = 360;
    });
    return edited(changed, "store", nullptr);
  }

  Words x_ = words("x", n), h_ = words("h", n), y_ = words("y", n), z_ = words("z", n), r_ = words("r", n),
        in_ = pinned("in", n), out_ = pinned("out", n);
};

TEST_F(PatchTest, EachKindOfChangeTakesEffectAtTheTopInMovedChildrenAndInBodies) {
  for (const Where where : {Where::top, Where::child, Where::body}) {
    SCOPED_TRACE(static_cast<int>(where));
    Nodes nodes;
    ExplicitGraph exec(plan_of(where, nodes));
    const Plan plan = exec.plan();
    expect_launch(exec, plan, "as built");
    PatchSet patches(exec);
    const auto expect = [&](const std::string& what, const Plan& changed) {
      EXPECT_EQ(patches.size(), 1u);
      patches.apply();
      EXPECT_EQ(patches.size(), 0u);
      expect_launch(exec, changed, what);
    };

    patches.set(nodes.blend, &Blend::salt, 40u);
    Plan now = edited(plan, "blend", arguments<Blend>([](Blend& args) { args.salt = 40; }));
    expect("a scalar", now);
    patches.set(nodes.blend, &Blend::a, x_);
    now = edited(now, "blend", arguments<Blend>([this](Blend& args) { args.a = x_; }));
    expect("a view within its envelope", now);
    patches.shape(nodes.add, blend_shape(128));
    now = edited(now, "add", [](PlanNode& node) { node.shape = blend_shape(128); });
    expect("a shape", now);
    patches.fill(nodes.fill, 0xfffffffeu);
    now = edited(now, "fill", [](PlanNode& node) { node.fill.value = 0xfffffffeu; });
    expect("a fill of words", now);
    patches.fill(nodes.bytes, 0xff);
    now = edited(now, "bytes", [](PlanNode& node) { node.fill.value = 0xff; });
    expect("a fill of bytes", now);
    patches.fill(nodes.row_fill, 0xfeedu);
    now = edited(now, "row_fill", [](PlanNode& node) { node.fill.value = 0xfeedu; });
    expect("a fill of rows", now);
    patches.copy(nodes.load, x_.subview(7, 50), host_end(in_), 200);
    now = edited(now, "load", [this](PlanNode& node) {
      node.copy.to = x_.address() + 28;
      node.copy.bytes = 200;
    });
    expect("a copy from the host", now);
    patches.copy(nodes.store, host_end(out_.subview(1, 30)), z_.subview(100, 100), 120);
    now = edited(now, "store", [this](PlanNode& node) {
      node.copy.to = out_.address() + 4;
      node.copy.from = z_.address() + 400;
      node.copy.bytes = 120;
    });
    expect("a copy to the host", now);

    const std::pair<NodeId, const char*> switched[] = {{nodes.blend, "blend"},
                                                       {nodes.load, "load"},
                                                       {nodes.rows, "rows"},
                                                       {nodes.fill, "fill"},
                                                       {nodes.row_fill, "row_fill"}};
    for (const auto& [node, name] : switched) {
      patches.enable(node, false);
      expect(std::string(name) + " off", edited(now, name, nullptr));
      patches.enable(node, true);
      expect(std::string(name) + " on", now);
    }
  }
}

TEST_F(PatchTest, ASetOfEveryKindIsAppliedAtOnce) {
  for (const Where where : {Where::top, Where::child, Where::body}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(where, nodes));
    PatchSet patches(exec);
    const Plan changed = change_everything(patches, nodes, exec.plan());
    expect_launch(exec, exec.plan(), "before apply()");
    patches.apply();
    expect_launch(exec, changed, "after apply()");
  }
}

TEST_F(PatchTest, WhenTheDriverRefusesAnyCallOfASetNothingHasChanged) {
  for (const Where where : {Where::top, Where::child, Where::body}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(where, nodes));
    uint64_t refused = 0;
    for (uint64_t call = 0;; ++call) {
      ASSERT_LT(call, 50u);
      PatchSet patches(exec);
      const Plan changed = change_everything(patches, nodes, exec.plan());
      const size_t changes = patches.size();
      const uint64_t injected = interposer().failures_injected();
      interposer().fail_call(call, CUDA_ERROR_INVALID_VALUE);
      const std::string message = error_of([&] { patches.apply(); });
      interposer().fail_none();
      if (interposer().failures_injected() == injected) {
        EXPECT_EQ(message, "");
        expect_launch(exec, changed, "no call left to fail");
        break;
      }
      ++refused;
      expect_words(message, {"patch node", "CUDA_ERROR_INVALID_VALUE", "were undone"});
      expect_launch(exec, exec.plan(), "call " + std::to_string(call));
      EXPECT_EQ(patches.size(), changes) << "kept, to be tried again";
      patches.apply();
      expect_launch(exec, changed, "tried again");
      PatchSet back(exec);
      back.set(nodes.blend, &Blend::salt, 1u);
      back.set(nodes.blend, &Blend::a, x_.subview(0, 50));
      back.shape(nodes.blend, blend_shape(n));
      back.set(nodes.add, &Accumulate::salt, 2u);
      back.fill(nodes.fill, 5u);
      back.fill(nodes.bytes, 7u);
      back.copy(nodes.load, x_, host_end(in_), x_.bytes());
      back.enable(nodes.store, true);
      back.apply();
    }
    EXPECT_EQ(refused, 6u) << "one call a node";
  }
}

TEST_F(PatchTest, ASetThatCannotEvenBeUndoneSaysSo) {
  Nodes nodes;
  ExplicitGraph exec(plan_of(Where::top, nodes));
  PatchSet patches(exec);
  change_everything(patches, nodes, exec.plan());
  interposer().fail_from(2, CUDA_ERROR_INVALID_VALUE);
  const std::string message = error_of([&] { patches.apply(); });
  interposer().fail_none();
  expect_words(message, {"'fill'", "change 3 of 6", "not undone", "unusable", "'blend'", "'add'"});
}

TEST_F(PatchTest, WhatIsRefusedNamesTheNodeAndLeavesTheSetAsItWas) {
  for (const Where where : {Where::top, Where::child, Where::body}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(where, nodes));
    PatchSet patches(exec);
    const auto refused = [&](auto action, std::initializer_list<std::string_view> words) {
      expect_words(error_of(action), words);
      EXPECT_EQ(patches.size(), 0u);
    };
    refused([&] { patches.set(nodes.blend, &Blend::a, h_); },
            {"'blend'", "field 'a'", "outside its envelope x[0,800)"});
    refused([&] { patches.set(nodes.blend, &Blend::b, h_.subview(0, 0)); }, {"'blend'", "field 'b' would be empty"});
    refused([&] { patches.set(nodes.blend, &Blend::b, View<uint32_t>{h_.data, n + 1}); }, {"'blend'", "h[0,800)"});
    refused([&] { patches.set(nodes.blend, &Blend::key, Frozen<uint32_t>{h_.data, 1}); }, {"'blend'", "empty when"});
    refused([&] { patches.shape(nodes.blend, launch_shape_1d(1, 65)); }, {"'blend'", "at most 64 threads"});
    refused([&] { patches.shape(nodes.load, blend_shape(n)); }, {"'load'", "memcpy", "launch shape"});
    refused([&] { patches.copy(nodes.load, host_end(in_), host_end(in_), 8); }, {"'load'", "device memory", "host"});
    refused([&] { patches.copy(nodes.load, x_, x_, 8); }, {"'load'", "'from' was host memory"});
    refused([&] { patches.copy(nodes.load, y_, host_end(in_), 8); }, {"'load'", "'to'", "outside x[0,800)"});
    refused([&] { patches.copy(nodes.load, x_, host_end(in_), 804); }, {"'load'", "804 bytes"});
    refused([&] { patches.copy(nodes.load, x_, host_end(in_), 0); }, {"'load'", "0 bytes"});
    refused([&] { patches.copy(nodes.rows, r_, x_, 16); }, {"'rows'", "it copies rows", "copy_rows"});
    refused([&] { patches.fill(nodes.bytes, 256); }, {"'bytes'", "0x100", "elements of 1 bytes"});
    refused([&] { patches.enable(nodes.end, false); }, {"'end'", "empty", "switch"});
    Node<Blend> mistyped;
    mistyped.index = nodes.add.index;
    mistyped.plan = nodes.add.plan;
    refused([&] { patches.set(mistyped, &Blend::salt, 1u); }, {"'add'", "other arguments"});
    Node<Swapped> swapped;
    swapped.index = nodes.add.index;
    swapped.plan = nodes.add.plan;
    refused([&] { patches.set(swapped, &Swapped::salt, 1u); }, {"'add'", "other arguments"});
    FillNode foreign = nodes.fill;
    foreign.plan = 0;
    refused([&] { patches.fill(foreign, 1); }, {"'patched'", "another plan"});
    patches.apply();
    expect_launch(exec, exec.plan(), "nothing was applied");
  }
}

TEST_F(PatchTest, HandlesOfAnotherPlanOfTheSameNameAreRefused) {
  Nodes nodes, others;
  ExplicitGraph exec(plan_of(Where::top, nodes));
  const Plan other = plan_of(Where::top, others);
  expect_words(error_of([&] { exec.patch(others.add, &Accumulate::salt, 1u); }), {"'patched'", "another plan"});
  expect_words(error_of([&] { PatchSet(exec).fill(others.fill, 1); }), {"'patched'", "another plan"});
  exec.patch(nodes.add, &Accumulate::salt, 1u);
  ExplicitGraph copied(other), again(other);
  copied.patch(others.add, &Accumulate::salt, 1u);  // a plan's copies keep its handles
  again.patch(others.add, &Accumulate::salt, 1u);
}

TEST_F(PatchTest, ConditionsCannotBePatchedAndHostNodesAndEventsCannotBeSwitchedOff) {
  const Event event(device(), "event");
  GraphBuilder g(device(), "fixed");
  declare_all(g);
  const auto condition = g.condition("c", 1);
  const auto decide =
      g.launch("decide", machine().decide, {.value = x_, .condition = condition, .modulus = 1, .base = 0});
  const NodeId branch = g.if_else("if", condition, [&](GraphBuilder& body) { body.fill("fill", h_, 1u); });
  const NodeId call = g.host("call", [] {}, {}), note = g.record_event("note", event, {});
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  expect_words(error_of([&] { exec.patch(decide, &Decide::condition, condition); }), {"'decide'", "is a condition"});
  PatchSet patches(exec);
  expect_words(error_of([&] { patches.set(decide, &Decide::condition, condition); }), {"'decide'", "is a condition"});
  for (const auto& [node, name] : {std::pair{branch, "'if'"}, {call, "'call'"}, {note, "'note'"}})
    expect_words(error_of([&] { patches.enable(node, false); }), {name, "switch"});
  reset();
  exec.patch(decide, &Decide::base, 1u);
  exec.launch(stream_);
  EXPECT_EQ(values(h_)[0], 1u) << "a scalar beside the condition, whose handle survives";
}

TEST_F(PatchTest, WhatWasPatchedSurvivesASetThatDoesNotMentionIt) {
  Nodes nodes;
  ExplicitGraph exec(plan_of(Where::top, nodes));
  PatchSet first(exec), second(exec);
  first.set(nodes.blend, &Blend::salt, 50u);
  second.shape(nodes.blend, blend_shape(64));
  exec.patch(nodes.blend, &Blend::a, x_);
  second.apply();
  first.apply();
  Plan changed = edited(exec.plan(), "blend", arguments<Blend>([this](Blend& args) {
                          args.salt = 50;
                          args.a = x_;
                        }));
  changed = edited(changed, "blend", [](PlanNode& node) { node.shape = blend_shape(64); });
  expect_launch(exec, changed, "three patches of one node");
}

TEST_F(PatchTest, AValueIsCopiedWhenItIsSet) {
  Nodes nodes;
  ExplicitGraph exec(plan_of(Where::top, nodes));
  PatchSet patches(exec);
  auto salt = std::make_unique<uint32_t>(61);
  patches.set(nodes.blend, &Blend::salt, *salt);
  exec.patch(nodes.add, &Accumulate::salt, *salt);
  *salt = 1;
  salt.reset();
  patches.apply();
  Plan changed = edited(exec.plan(), "blend", arguments<Blend>([](Blend& args) { args.salt = 61; }));
  changed = edited(changed, "add", arguments<Accumulate>([](Accumulate& args) { args.salt = 61; }));
  expect_launch(exec, changed, "the values of before");
}

TEST_F(PatchTest, AKernelBehindAProgrammaticEdgeCannotBeSwitchedOff) {
  GraphBuilder g(device(), "early");
  declare_all(g);
  add_all(g);
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  bool found = false;
  for (const Edge& edge : plan.edges) {
    if (edge.type != EdgeType::programmatic) continue;
    found = true;
    ExplicitGraph exec(plan);
    PatchSet patches(exec);
    const NodeId to{edge.to, plan.id};
    expect_words(error_of([&] { patches.enable(to, false); }), {plan.nodes[edge.to].name, plan.nodes[edge.from].name});
    EXPECT_EQ(patches.size(), 0u);
  }
  EXPECT_TRUE(found || device().properties().cc_major < 9);
}

TEST_F(PatchTest, PatchChildSwitchesNodesOnThatWereOff) {
  Nodes nodes;
  GraphBuilder inner(device(), "part");
  declare_all(inner);
  nodes = add_all(inner);
  const Plan part = std::move(inner).finish(EdgePolicy::full);
  GraphBuilder g(device(), "patched");
  declare_all(g);
  const ChildNode child = g.child("part", part);
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::programmatic));
  PatchSet patches(exec);
  patches.enable(nodes.add, false);
  patches.apply();
  expect_launch(exec, edited(exec.plan(), "add", nullptr), "off");
  exec.patch_child(child, part);
  expect_launch(exec, exec.plan(), "on");
  patches.enable(nodes.add, false);
  patches.apply();
  expect_launch(exec, edited(exec.plan(), "add", nullptr), "off again");
}

// Every launch multiplies: a launch lost, doubled or with another's salt changes all that follow.
TEST_F(PatchTest, TenThousandLaunchesBackToBackWithPatchesBetween) {
  constexpr uint32_t kLaunches = 10000;
  GraphBuilder g(device(), "tiny");
  declare_all(g);
  const Words one = z_.subview(0, 1);
  const auto node = g.launch("add", machine().accumulate_of(1), {.y = one, .x = x_.subview(0, 1), .salt = 0});
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::programmatic));
  reset();
  HostModel reference = model();
  uint32_t expected = reference.word(one.address());
  const uint32_t x = reference.word(x_.address());
  for (uint32_t launch = 0; launch < kLaunches; ++launch) {
    exec.patch(node, &Accumulate::salt, launch);
    exec.launch(stream_);
    expected = expected * 31 + x + launch;
  }
  EXPECT_EQ(values(one), std::vector<uint32_t>{expected});
}

}  // namespace
}  // namespace nodewright
