// ExplicitGraph::update: what a graph becomes, what of it is named, what stops it, and that a failure changes nothing.
#include "graph/dump/plan_diff.h"
#include "graph/patch.h"
#include "tests/graph/nodes/library_work.h"

namespace nodewright {
namespace {

class UpdateGraphTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;

  // What may differ between two plans of the same nodes.
  struct Version {
    std::string name = "step";
    bool other_memory = false;  // x2, y2, z2 in the place of x, y, z
    int factor = 0;             // of the kernel of "add"; 0: accumulate's own
    uint32_t salt = 2, fill = 5;
    uint64_t reached = n;
    bool other_foreign = false, other_event = false;
    ChildOwnership ownership = ChildOwnership::moved;
    EdgePolicy policy = EdgePolicy::programmatic;
  };
  struct Nodes {
    Node<Accumulate> add, inner_add;
    FillNode fill;
    ForeignBlendNode foreign;
    ChildNode child;
  };

  Plan part(const Version& v, Nodes& nodes) {
    GraphBuilder g(device(), "part");
    declare_all(g);
    const Words x = v.other_memory ? x2_ : x_, z = v.other_memory ? z2_ : z_;
    nodes.inner_add = g.launch("inner_add", machine().accumulate_of(n), {.y = z, .x = x, .salt = v.salt + 100});
    return std::move(g).finish(v.policy);
  }

  Plan plan_of(const Version& v, Nodes& nodes) {
    const Words x = v.other_memory ? x2_ : x_, y = v.other_memory ? y2_ : y_, z = v.other_memory ? z2_ : z_;
    GraphBuilder g(device(), v.name);
    declare_all(g);
    g.copy("load", x, host_end(in_), 4 * (v.other_memory ? 100 : n));
    nodes.fill = g.fill("fill", y, v.fill);
    g.fill_rows("row_fill", h_, {.count = 2, .rows = 5, .pitch = 40}, v.fill + 1);
    nodes.add =
        g.launch("add", v.factor == 0 ? machine().accumulate_of(v.reached) : machine().scaled_by(v.factor, v.reached),
                 {.y = y, .x = x, .salt = v.salt});
    nodes.foreign = launch_foreign_blend(g, "foreign", v.other_foreign ? *machine().foreign_other : *machine().foreign,
                                         blend_shape(n), y, x, z, v.salt);
    nodes.child = g.child("child", part(v, nodes), v.ownership);
    const Accumulate args{.y = w_, .x = z, .salt = v.salt};
    g.library("library", {reads(z), updates(w_)}, library_call(accumulate_work(machine(), args), "accumulate"));
    functions_[v.name] = args;
    g.copy("store", host_end(out_), z, z.bytes());
    g.host("call", [this, salt = v.salt] { out_.data[0] += salt; }, {{"out", host_end(out_), Access::inout}});
    g.record_event("done", v.other_event ? second_ : first_, {reads(z)});
    g.write_value("flag", flag_, v.salt);
    return std::move(g).finish(v.policy);
  }
  Plan plan_of(const Version& v) {
    Nodes nodes;
    return plan_of(v, nodes);
  }

  // A launch computes what the model makes of the plan, of version `v`.
  void expect_launch(ExplicitGraph& exec, const Plan& plan, const Version& v, const std::string& what) {
    reset();
    HostModel reference = model();
    reference.host_functions["library"] = [args = functions_.at(v.name)](HostModel& m) { model_accumulate(m, args); };
    reference.host_functions["call"] = [this, v](HostModel& m) { m.word(out_.address()) += v.salt; };
    reference.run(plan);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << what;
    EXPECT_EQ(read_back(exec), std::vector<std::string>{}) << what;
  }
  static std::vector<std::string> described(const std::vector<NodeChange>& changes, const Plan& plan) {
    std::vector<std::string> lines;
    for (const NodeChange& change : changes) lines.push_back(describe(change, plan));
    return lines;
  }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), w_ = words("w", n), h_ = words("h", 60),
        x2_ = words("x2", n), y2_ = words("y2", n), z2_ = words("z2", n), flag_ = words("flag", 1),
        in_ = pinned("in", n), out_ = pinned("out", n);
  Event first_{device(), "first"}, second_{device(), "second"};
  std::map<std::string, Accumulate> functions_;
};

TEST_F(UpdateGraphTest, AGraphBecomesThatOfAnotherPlanOfTheSameNodes) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    const Version before{.ownership = ownership};
    ExplicitGraph exec(plan_of(before));
    expect_launch(exec, exec.plan(), before, "as built");
    const std::vector<Version> versions = {
        {.name = "moved", .other_memory = true, .ownership = ownership},
        {.name = "changed", .factor = 7, .salt = 90, .fill = 12, .reached = 100, .ownership = ownership},
        {.name = "all",
         .other_memory = true,
         .factor = 9,
         .salt = 4,
         .fill = 77,
         .other_foreign = true,
         .other_event = true,
         .ownership = ownership},
        before};
    for (const Version& v : versions) {
      const Plan plan = plan_of(v);
      EXPECT_FALSE(exec.update(plan).empty());
      EXPECT_EQ(exec.plan().name, v.name);
      expect_launch(exec, plan, v, v.name);
      expect_launch(exec, plan, v, v.name + ", a second launch");
    }
    EXPECT_EQ(interposer().live_count(HandleKind::graph), 3u + versions.size())
        << "the one instantiated, that of the last plan, and what each has captured of the library";
  }
}

TEST_F(UpdateGraphTest, WhatChangesIsNamedByNode) {
  const auto plan_with_host_call_of = [](Plan plan, const Plan& other) {  // functions cannot be compared
    for (size_t i = 0; i < plan.nodes.size(); ++i) {
      plan.nodes[i].host = other.nodes[i].host;
      plan.nodes[i].library = other.nodes[i].library;
    }
    return plan;
  };
  ExplicitGraph exec(plan_of({}));
  const Plan built = exec.plan();
  EXPECT_EQ(described(exec.update(built), built), std::vector<std::string>{});
  EXPECT_TRUE(diff_plans(built, built).equal());

  const Plan changed = plan_with_host_call_of(plan_of({.factor = 7, .salt = 90, .reached = 100}), built);
  EXPECT_EQ(described(exec.update(changed), changed),
            (std::vector<std::string>{"add: kernel, shape, scalars", "foreign: scalars", "flag: values",
                                      "part: inner_add: scalars"}));
  const std::string text = to_text(diff_plans(built, changed));
  expect_words(text, {"kernel accumulate -> scaled", "salt 2 -> 90", "grid 4×1×1 -> 2×1×1"});

  const Plan moved = plan_with_host_call_of(plan_of({.other_memory = true, .other_event = true}), changed);
  const auto lines = described(exec.update(moved), moved);
  EXPECT_EQ(lines.at(0), "load: memory");
  EXPECT_NE(std::find(lines.begin(), lines.end(), "done: memory, event"), lines.end());
  EXPECT_NE(std::find(lines.begin(), lines.end(), "part: inner_add: scalars, memory"), lines.end());
  EXPECT_NE(std::find(lines.begin(), lines.end(), "fill: memory"), lines.end());

  const Plan anew = plan_of({.other_memory = true, .fill = 6, .other_event = true});
  const auto functions = described(exec.update(anew), anew);
  EXPECT_EQ(functions, (std::vector<std::string>{"fill: fill value", "row_fill: fill value", "library: library call",
                                                 "call: function"}));
}

TEST_F(UpdateGraphTest, PatchesEndAndLaterOnesGoByTheNewPlanWithHandlesOfBoth) {
  Nodes first, second;
  const Version before, after{.name = "later", .other_memory = true};
  ExplicitGraph exec(plan_of(before, first));
  const Plan later = plan_of(after, second);
  PatchSet patches(exec);
  patches.set(first.add, &Accumulate::salt, 61u);
  patches.set(first.inner_add, &Accumulate::salt, 62u);
  patches.kernel(first.add, machine().scaled_by(5, n));
  patches.fill(first.fill, 63);
  patches.apply();
  patches.enable(first.fill, false);
  patches.apply();
  PatchSet stale(exec);
  stale.set(first.add, &Accumulate::x, x_.subview(0, 10));

  const std::vector<NodeChange> changes = exec.update(later);
  EXPECT_TRUE(std::any_of(changes.begin(), changes.end(), [](const NodeChange& change) {
    return change.node == "add" && change.has(Changed::patches);
  }));
  expect_launch(exec, later, after, "without patches");
  expect_words(error_of([&] { stale.apply(); }), {"'later'", "1 changes from before the graph was updated"});
  expect_words(error_of([&] { stale.set(first.add, &Accumulate::salt, 1u); }), {"before the graph was updated"});
  expect_words(error_of([&] { exec.patch(first.add, &Accumulate::x, x_); }),
               {"'add'", "outside its envelope x2[0,800)"});

  for (const Nodes& handles : {first, second}) {
    PatchSet both(exec);
    both.set(handles.add, &Accumulate::x, x2_.subview(0, 10));
    both.set(handles.inner_add, &Accumulate::salt, 40u);
    both.kernel(handles.add, machine().scaled_by(5, n));
    both.fill(handles.fill, 99);
    both.apply();
    exec.patch<"salt">(handles.foreign, 3u);
    const Plan patched = plan_as_patched(exec);
    EXPECT_EQ(patched.name, "later");
    reset();
    HostModel reference = model();
    reference.host_functions["library"] = [&](HostModel& m) { model_accumulate(m, functions_.at("later")); };
    reference.host_functions["call"] = [&](HostModel& m) { m.word(out_.address()) += after.salt; };
    reference.run(patched);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "");
    EXPECT_NE(patched.nodes[3].kernel, later.nodes[3].kernel);
    exec.update(later);
    expect_launch(exec, later, after, "without them again");
  }
  Nodes third;
  exec.patch_child(first.child, part({.other_memory = true, .salt = 9}, third));
  EXPECT_EQ(exec.library_form(NodeId{6, second.add.plan}), exec.library_form(NodeId{6, first.add.plan}));
}

TEST_F(UpdateGraphTest, NodesThatWereOffAreOn) {
  Nodes nodes;
  const Version v{.policy = EdgePolicy::full};
  ExplicitGraph exec(plan_of(v, nodes));
  const Plan plan = exec.plan();
  PatchSet patches(exec);
  patches.enable(nodes.fill, false);
  patches.apply();
  exec.update(plan);
  expect_launch(exec, plan, v, "all on");
  for (const NodeId node : {NodeId(nodes.add), NodeId(nodes.inner_add)})
    for (const bool on : {false, true}) {
      PatchSet one(exec);
      one.enable(node, on);
      one.apply();
    }
  expect_words(error_of([&] { exec.update(plan); }),
               {"'add'", "was switched off since the graph was built or last updated"});
  expect_launch(exec, plan, v, "as it was");
}

TEST_F(UpdateGraphTest, AnUpdateThatFailsAtAnyCallChangesNothingAndLeavesNothing) {
  Nodes nodes;
  const Version before, after{.name = "next", .other_memory = true, .factor = 3, .salt = 8, .fill = 1};
  ExplicitGraph exec(plan_of(before, nodes));
  const Plan plan = exec.plan();
  exec.patch(nodes.add, &Accumulate::salt, 55u);
  const Plan next = plan_of(after);
  uint64_t refused = 0;
  for (uint64_t call = 0;; ++call) {
    ASSERT_LT(call, 200u);
    const uint64_t graphs = interposer().live_count(HandleKind::graph), injected = interposer().failures_injected();
    interposer().fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
    const std::string message = error_of([&] { exec.update(next); });
    interposer().fail_none();
    if (interposer().failures_injected() == injected) break;
    if (message.empty()) continue;  // a call that destroys what is not needed any more
    ++refused;
    EXPECT_EQ(exec.plan().name, "step") << message;
    EXPECT_EQ(interposer().live_count(HandleKind::graph), graphs) << interposer().describe_live();
    reset();
    HostModel reference = model();
    reference.host_functions["library"] = [&](HostModel& m) { model_accumulate(m, functions_.at("step")); };
    reference.host_functions["call"] = [&](HostModel& m) { m.word(out_.address()) += before.salt; };
    reference.run(plan_as_patched(exec));
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << "call " << call << ": " << message;
  }
  EXPECT_GT(refused, next.nodes.size()) << "each node is added";
  exec.update(next);
  expect_launch(exec, next, after, "without a failure");
}

// Where kernels alone change, their nodes take the later parameters in the graph that there is.
TEST_F(UpdateGraphTest, KernelsThatChangeAloneTakeTheirParametersInPlaceOrNoneDoes) {
  const auto plan_of_kernels = [&](uint32_t salt, uint32_t factor, Words x) {
    GraphBuilder g(device(), "kernels " + std::to_string(salt));
    declare_all(g);
    g.fill("fill", x_, 3u);
    g.fill("fill2", x2_, 4u);
    g.launch("first", machine().accumulate_of(n), {.y = y_, .x = x, .salt = salt});
    g.launch("second", factor == 0 ? machine().accumulate_of(n) : machine().scaled_by(factor, n),
             {.y = z_, .x = y_, .salt = salt + 1});
    g.launch("third", machine().accumulate_of(n), {.y = w_, .x = y_, .salt = 9});
    return std::move(g).finish(EdgePolicy::full);
  };
  const Plan plan = plan_of_kernels(5, 0, x_), next = plan_of_kernels(6, 3, x_);
  ExplicitGraph exec(plan);
  const auto expect_runs = [&](const Plan& as, const std::string& what) {
    reset();
    HostModel reference = model();
    reference.run(as);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << what;
    EXPECT_EQ(read_back(exec), std::vector<std::string>{}) << what;
  };
  uint64_t refused = 0;
  for (uint64_t call = 0;; ++call) {
    ASSERT_LT(call, 50u);
    const uint64_t injected = interposer().failures_injected();
    interposer().fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
    const std::string message = error_of([&] { exec.update(next); });
    interposer().fail_none();
    if (interposer().failures_injected() == injected) break;
    ++refused;
    expect_words(message, {"update graph", "the graph is as before"});
    expect_runs(plan, message);
  }
  EXPECT_EQ(refused, 3u) << "two nodes are set, and the graph is updated: none is added";
  expect_runs(next, "without a failure");
  EXPECT_EQ(described(exec.update(next), next), std::vector<std::string>{});
  const uint64_t graphs = interposer().live_count(HandleKind::graph);
  EXPECT_EQ(described(exec.update(plan), plan),
            (std::vector<std::string>{"first: scalars", "second: kernel, scalars"}));
  EXPECT_EQ(interposer().live_count(HandleKind::graph), graphs);
  expect_runs(plan, "back again");
}

TEST_F(UpdateGraphTest, WhatStopsAnUpdateIsNamedAndTheGraphRunsAsBefore) {
  const Version v;
  ExplicitGraph exec(plan_of(v));
  const Plan plan = exec.plan();
  const auto refused = [&](const std::function<void(Plan&)>& edit, std::initializer_list<std::string_view> words) {
    Plan other = plan;
    edit(other);
    const std::string message = error_of([&] { exec.update(other); });
    expect_words(message, {"update graph"});
    expect_words(message, words);
    EXPECT_EQ(exec.plan().id, plan.id);
  };
  const auto at = [](Plan& p, std::string_view name) -> PlanNode& {
    return *std::find_if(p.nodes.begin(), p.nodes.end(), [&](const PlanNode& node) { return node.name == name; });
  };
  refused([&](Plan& p) { at(p, "add").name = "sum"; }, {"node 3 is 'add' in the graph and 'sum' in the plan"});
  refused(
      [&](Plan& p) {
        p.nodes.pop_back();
        std::erase_if(p.edges, [&](const Edge& e) { return e.to == p.nodes.size(); });
      },
      {"has 11 nodes and the plan 10", "node 'flag' is gone"});
  refused([&](Plan& p) { at(p, "fill").kind = NodeKind::empty; }, {"node 'fill'", "kind memset", "kind empty"});
  refused([&](Plan& p) { at(p, "add").attributes.priority = -1; }, {"node 'add'", "attributes", "priority"});
  refused([&](Plan& p) { at(p, "add").attributes.cooperative = true; }, {"node 'add'", "cooperative"});
  refused([&](Plan& p) { at(p, "add").attributes.device_updatable = true; }, {"node 'add'", "device may update"});
  refused([&](Plan& p) { at(p, "add").exchange = 1; }, {"node 'add'", "exchange"});
  refused([&](Plan& p) { at(p, "row_fill").fill.rows = 4; }, {"node 'row_fill'", "number of the fill's rows"});
  refused([&](Plan& p) { at(p, "row_fill").fill.count = 1; }, {"node 'row_fill'", "address and value alone"});
  refused([&](Plan& p) { at(p, "load").copy.from_host = false; }, {"node 'load'", "host memory"});
  refused([&](Plan& p) { at(p, "flag").values[0].bytes = 8; }, {"node 'flag'", "value operations"});
  refused([&](Plan& p) { at(p, "child").patchable_inside = false; }, {"node 'child'", "moved", "cloned"});
  const Edge& gone = plan.edges.back();
  refused([&](Plan& p) { p.edges.pop_back(); },
          {"edge '" + plan.nodes[gone.from].name + "' -> '" + plan.nodes[gone.to].name + "' is not in the plan"});
  refused(
      [&](Plan& p) {
        Plan inner = *at(p, "child").bodies[0];
        inner.nodes[0].attributes.priority = -1;
        at(p, "child").bodies[0] = std::make_shared<const Plan>(std::move(inner));
      },
      {"'part'", "node 'inner_add'"});
  const Plan full = plan_of({.policy = EdgePolicy::serial});
  EXPECT_NE(error_of([&] { exec.update(full); }).find("edge '"), std::string::npos);
  expect_launch(exec, plan, v, "refused");
}

TEST_F(UpdateGraphTest, MemoryOfThePlanAndConditionsHaveNoUpdate) {
  GraphBuilder g(device(), "scratch");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", 400);
  g.fill("zero", scratch.view<uint32_t>(), 0u);
  g.free(scratch);
  ExplicitGraph allocating(std::move(g).finish());
  expect_words(error_of([&] { allocating.update(allocating.plan()); }), {"'scratch'", "allocates or frees memory"});

  GraphBuilder c(device(), "conditional");
  declare_all(c);
  c.if_else("if", c.condition("c", 1), [&](GraphBuilder& body) { body.fill("fill", x_, 1u); });
  ExplicitGraph conditional(std::move(c).finish());
  expect_words(error_of([&] { conditional.update(conditional.plan()); }), {"node 'if'", "conditional"});
}

// The driver alone knows what a library submits.
TEST_F(UpdateGraphTest, WhatTheDriverRefusesIsNamedByItsNode) {
  const auto plan_of_fills = [&](int fills) {
    GraphBuilder g(device(), "library");
    declare_all(g);
    g.fill("before", x_, 1u);
    const auto submit = [=, this](CUstream stream) {
      for (int i = 0; i < fills; ++i) fill_work(machine(), y_, static_cast<uint32_t>(i))(stream);
    };
    g.library("vendor", {reads(x_), writes(y_)}, library_call(submit, "fills"));
    return std::move(g).finish();
  };
  ExplicitGraph exec(plan_of_fills(1));
  EXPECT_EQ(error_of([&] { exec.update(plan_of_fills(1)); }), "");
  const std::string message = error_of([&] { exec.update(plan_of_fills(2)); });
  expect_words(message, {"update graph", "CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE", "as before"});
  // NVIDIA's driver may name a node of the copy that it made, which no plan knows.
  expect_words(message, {device().driver().is_cpu() ? "node 'vendor'" : "node"});
  exec.launch(stream_);
  EXPECT_EQ(values(y_)[0], 0u);
}

}  // namespace
}  // namespace nodewright
