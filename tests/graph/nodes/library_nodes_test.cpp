// Library nodes, with calls that submit kernels of ours and fills in a library's place.
#include "graph/nodes/library_nodes.h"

#include "graph/dump/graph_dump.h"
#include "graph/run/captured_run.h"
#include "graph/timing/timed_twin.h"
#include "tests/graph/nodes/library_work.h"

namespace nodewright {
namespace {

class LibraryNodesTest : public BlendTest {
 protected:
  static const Driver& driver() { return *machine().opened.driver; }
  static LibraryCall call(std::function<void(CUstream)> submit, std::string what = {}) {
    return library_call(std::move(submit), std::move(what));
  }
  static std::function<void(CUstream)> accumulate(Words y, Words x, uint32_t salt) {
    return accumulate_work(machine(), {.y = y, .x = x, .salt = salt});
  }
  static void accumulate(HostModel& model, Words y, Words x, uint32_t salt) {
    model_accumulate(model, {.y = y, .x = x, .salt = salt});
  }
  static std::function<void(CUstream)> fill(Words y, uint32_t value) { return fill_work(machine(), y, value); }
  static void fill(HostModel& model, Words y, uint32_t value) { model_fill(model, y, value); }

  // blend writes x, the library updates y from x, blend reads y.
  Plan around(LibraryCall library, EdgePolicy policy = EdgePolicy::programmatic) {
    GraphBuilder g(device(), "around");
    declare_all(g);
    g.launch("before", machine().blend_of(x_.count), {.a = z_, .b = z_, .key = {}, .y = x_, .salt = 3});
    g.library("library", {reads<"x">(x_), updates<"y">(y_)}, std::move(library));
    g.launch("after", machine().blend_of(x_.count), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 5});
    return std::move(g).finish(policy);
  }
  // The library node alone.
  Plan alone(LibraryCall library, const std::string& name = "alone") {
    GraphBuilder g(device(), name);
    declare_all(g);
    g.library("library", {reads<"x">(x_), updates<"y">(y_)}, std::move(library));
    return std::move(g).finish(EdgePolicy::full);
  }
  static LibraryForm form_of(const ExplicitGraph& exec, const Plan& plan) {
    for (const PlanNode& node : plan.nodes)
      if (node.kind == NodeKind::library) return exec.library_form({node.id, plan.id});
    return LibraryForm::stand_in;
  }

  Words x_ = words("x", 100), y_ = words("y", 100), z_ = words("z", 100);
};

TEST_F(LibraryNodesTest, EdgesFollowFromTheUsesAndAreFull) {
  const Plan plan = around(call(accumulate(y_, x_, 7)));
  std::vector<std::string> edges;
  for (const Edge& edge : plan.edges) {
    edges.push_back(plan.nodes[edge.from].name + ">" + plan.nodes[edge.to].name);
    if (plan.nodes[edge.from].kind == NodeKind::library || plan.nodes[edge.to].kind == NodeKind::library) {
      EXPECT_EQ(edge.type, EdgeType::full) << edges.back();
    }
  }
  EXPECT_EQ(edges, (std::vector<std::string>{"before>library", "library>after"}));
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "RAW x[0,400)");
  EXPECT_EQ(describe(plan, plan.edges[1].reasons.at(0)), "RAW y[0,400)");
}

TEST_F(LibraryNodesTest, OneKernelIsAKernelNodeAndAnythingElseAChildGraph) {
  const auto model = [&](const Plan& plan, LibraryForm form, const std::function<void(HostModel&)>& effect) {
    ExplicitGraph exec(plan);
    EXPECT_EQ(to_string(form_of(exec, plan)), to_string(form));
    EXPECT_EQ(exec.stats().library_kernels, form == LibraryForm::kernel ? 1u : 0u);
    EXPECT_EQ(exec.stats().library_graphs, form == LibraryForm::graph ? 1u : 0u);
    expect_runs(plan, kAllRuns, [&](HostModel& m) { m.host_functions["library"] = effect; });
  };
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
    model(around(call(accumulate(y_, x_, 7)), policy), LibraryForm::kernel,
          [&](HostModel& m) { accumulate(m, y_, x_, 7); });
    const auto both = [this](CUstream stream) {
      fill(y_, 17)(stream);
      accumulate(y_, x_, 7)(stream);
    };
    model(around(call(both), policy), LibraryForm::graph, [&](HostModel& m) {
      fill(m, y_, 17);
      accumulate(m, y_, x_, 7);
    });
    model(around(call(fill(y_, 17)), policy), LibraryForm::graph, [&](HostModel& m) { fill(m, y_, 17); });
  }
}

TEST_F(LibraryNodesTest, AChildGraphCanBeHadInPlaceOfAKernelNode) {
  const Plan plan = around(call(accumulate(y_, x_, 7)));
  ExplicitGraph exec(plan, nullptr, LibraryForm::graph);
  EXPECT_EQ(form_of(exec, plan), LibraryForm::graph);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  reset();
  HostModel reference = model();
  reference.host_functions["library"] = [&](HostModel& m) { accumulate(m, y_, x_, 7); };
  reference.run(plan);
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
}

TEST_F(LibraryNodesTest, ItRunsInsideChildrenAndBodies) {
  const auto effect = [&](HostModel& m) {
    m.host_functions["library"] = [&](HostModel& n) { accumulate(n, y_, x_, 9); };
  };
  const auto both = [this](CUstream stream) {
    fill(y_, 17)(stream);
    accumulate(y_, x_, 9)(stream);
  };
  const auto effect_of_both = [&](HostModel& m) {
    m.host_functions["library"] = [&](HostModel& n) {
      fill(n, y_, 17);
      accumulate(n, y_, x_, 9);
    };
  };
  for (const bool one_kernel : {true, false}) {
    const LibraryCall library = one_kernel ? call(accumulate(y_, x_, 9)) : call(both);
    const std::function<void(HostModel&)> prepare =
        one_kernel ? std::function<void(HostModel&)>(effect) : effect_of_both;
    for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
      GraphBuilder g(device(), "outer");
      declare_all(g);
      g.child("child", alone(library, "inner"), ownership);
      expect_runs(std::move(g).finish(EdgePolicy::full), kAllRuns, prepare);
    }
    GraphBuilder g(device(), "conditional");
    declare_all(g);
    g.if_else("if", g.condition("yes", 1), [&](GraphBuilder& body) {
      body.library("library", {reads(x_), updates(y_)}, library);
    });
    expect_runs(std::move(g).finish(EdgePolicy::full), kUncapturedRuns, prepare);
  }
}

TEST_F(LibraryNodesTest, ACallThatCannotBeHadIsReportedByItsNode) {
  const auto build = [&](LibraryCall library) {
    return error_of([&] { ExplicitGraph exec(alone(std::move(library))); });
  };
  expect_words(build(call([](CUstream) { throw std::runtime_error("no workspace"); })),
               {"node 'library'", "its call threw: no workspace"});
  expect_words(build(call([](CUstream) { throw 3; })), {"node 'library'", "no std::exception"});
  expect_words(build(call([](CUstream) {})), {"node 'library'", "submitted nothing"});
  expect_words(build(call([this](CUstream) { accumulate(y_, x_, 1)(stream_.get()); })),
               {"node 'library'", "submitted nothing"});
  expect_words(build(call([](CUstream stream) { driver().cuStreamSynchronize(stream); })),
               {"node 'library'", "cuStreamEndCapture", "forbids"});
  const auto end = [](CUstream stream) {
    CUgraph graph = nullptr;
    driver().cuStreamEndCapture(stream, &graph);
    driver().cuGraphDestroy(graph);
  };
  expect_words(build(call(end)), {"node 'library'", "cuStreamEndCapture"});
  expect_error([&] { alone({}); }, {"node 'library'", "it has no call"});
  stream_.synchronize();

  const auto throws = [](CUstream) { throw std::runtime_error("no workspace"); };
  for (const RunMode mode : {RunMode::eager, RunMode::captured})
    expect_error([&] { PlanRun(alone(call(throws)), mode, stream_).launch(); }, {"node 'library'", "no workspace"});
  PlanRun(alone(call(accumulate(y_, x_, 1))), RunMode::captured, stream_).launch();
  stream_.synchronize();
}

TEST_F(LibraryNodesTest, AFailureOfAnyCallOfABuildLeavesNothingBehind) {
  const auto both = [this](CUstream stream) {
    fill(y_, 17)(stream);
    accumulate(y_, x_, 9)(stream);
  };
  for (const Plan& plan : {alone(call(accumulate(y_, x_, 1)), "one"), alone(call(both), "two")}) {
    const uint64_t streams = interposer().live_count(HandleKind::stream);
    uint64_t n = 0;
    for (;; ++n) {
      ASSERT_LT(n, 100u);
      const uint64_t injected = interposer().failures_injected();
      interposer().fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
      const std::string problem = error_of([&] { ExplicitGraph exec(plan); });
      interposer().fail_none();
      if (interposer().failures_injected() == injected) break;  // the build makes fewer calls
      EXPECT_EQ(interposer().live_count(HandleKind::graph), 0u) << n << ": " << problem;
      EXPECT_EQ(interposer().live_count(HandleKind::graph_exec), 0u) << n << ": " << problem;
      EXPECT_EQ(interposer().live_count(HandleKind::stream), streams) << n << ": " << problem;
    }
    EXPECT_GT(n, 8u);
    ExplicitGraph exec(plan);
    exec.launch(stream_);
    stream_.synchronize();
  }
}

TEST_F(LibraryNodesTest, ACallAndWhatItHoldsLiveAsLongAsTheGraph) {
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  {
    const auto submit = accumulate(y_, x_, 1);
    ExplicitGraph exec(alone(call([held, submit](CUstream stream) {
      ++*held;
      submit(stream);
    })));
    const int* calls = held.get();
    held.reset();
    exec.launch(stream_);
    exec.launch(stream_);
    stream_.synchronize();
    ASSERT_FALSE(watched.expired());
    EXPECT_EQ(*calls, 1) << "once for the graph, not for each launch";
  }
  EXPECT_TRUE(watched.expired());
}

TEST_F(LibraryNodesTest, DumpsSayWhatItIs) {
  const Plan named = alone(call(fill(y_, 1), "cub sum; 3 passes")), unnamed = alone(call(fill(y_, 1)));
  EXPECT_NE(to_text(named).find("node 0 library | cub sum; 3 passes | <x=x[0,400) <>y=y[0,400)"), std::string::npos)
      << to_text(named);
  EXPECT_NE(to_text(unnamed).find("node 0 library | library | <x"), std::string::npos) << to_text(unnamed);
  EXPECT_NE(to_json(named).find("\"library\": \"cub sum; 3 passes\""), std::string::npos);
  EXPECT_NE(to_dot(named).find("library\\ncub sum\""), std::string::npos) << to_dot(named);
}

TEST_F(LibraryNodesTest, ATimedTwinBracketsIt) {
  const TimedTwin twin = timed_twin(alone(call(accumulate(y_, x_, 2))), *machine().kernels);
  EXPECT_TRUE(twin.nodes.at(0).bracketed);
  reset();
  HostModel reference = model();
  accumulate(reference, y_, x_, 2);
  ExplicitGraph exec(twin.plan);
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
}

// Planted: what another node has submitted.
TEST_F(LibraryNodesTest, ReadingBackFindsWhatTheLibraryHasNotSubmitted) {
  const auto both = [this](CUstream stream) {
    fill(y_, 17)(stream);
    accumulate(y_, x_, 9)(stream);
  };
  const Plan one = alone(call(accumulate(y_, x_, 1)), "one"), other = alone(call(accumulate(y_, x_, 2)), "other"),
             two = alone(call(both), "two");
  ExplicitGraph of_one(one), of_other(other), of_two(two);
  const auto differences = [&](const ExplicitGraph& built, const ExplicitGraph& held) {
    return library_differences(one.nodes[0], driver(), built.built_plans()[0]->libraries.at(0), held.node(0)).size();
  };
  EXPECT_EQ(differences(of_one, of_one), 0u);
  EXPECT_EQ(differences(of_two, of_two), 0u);
  EXPECT_EQ(differences(of_one, of_other), 1u) << "another salt";
  BuiltLibrary fewer = of_two.built_plans()[0]->libraries.at(0);
  fewer.submitted.pop_back();
  EXPECT_EQ(library_differences(two.nodes[0], driver(), fewer, of_two.node(0)).size(), 1u);
}

TEST_F(LibraryNodesTest, AChildMadeAnewMaySubmitOtherArgumentsAndNoOtherKernels) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    GraphBuilder g(device(), "outer");
    declare_all(g);
    const ChildNode child = g.child("child", alone(call(accumulate(y_, x_, 1)), "inner"), ownership);
    ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
    exec.patch_child(child, alone(call(accumulate(y_, x_, 2)), "inner"));
    EXPECT_EQ(read_back(exec), std::vector<std::string>{}) << "the graph as it was built";
    reset();
    HostModel reference = model();
    accumulate(reference, y_, x_, 2);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "");
    expect_error([&] { exec.patch_child(child, alone(call(fill(y_, 1)), "inner")); },
                 {"node 'child'", "'library'", "other kernels"});
    expect_error([&] { exec.patch_child(child, alone(call(accumulate(y_, x_, 2), "gemm 2"), "inner")); },
                 {"node 'child'", "'library'", "library call"});
  }
}

// A graph of somebody else's: fills y, then y = y * 31 + x + salt.
class GraphNodeTest : public LibraryNodesTest {
 protected:
  GraphHandle elsewhere(uint32_t salt) {
    driver().check(driver().cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture",
                   "capture", "elsewhere");
    fill(y_, 17)(stream_.get());
    accumulate(y_, x_, salt)(stream_.get());
    CUgraph graph = nullptr;
    driver().check(driver().cuStreamEndCapture(stream_.get(), &graph), "cuStreamEndCapture", "capture", "elsewhere");
    return GraphHandle(driver(), graph);
  }
  Plan around_graph(CUgraph graph, const std::string& name = "around") {
    GraphBuilder g(device(), name);
    declare_all(g);
    g.launch("before", machine().blend_of(x_.count), {.a = z_, .b = z_, .key = {}, .y = x_, .salt = 3});
    g.graph("theirs", graph, {reads<"x">(x_), writes<"y">(y_)});
    g.launch("after", machine().blend_of(x_.count), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 5});
    return std::move(g).finish(EdgePolicy::programmatic);
  }
};

TEST_F(GraphNodeTest, AGraphBuiltElsewhereRunsBetweenKernelsWithDerivedEdges) {
  const GraphHandle theirs = elsewhere(7);
  const Plan plan = around_graph(theirs.get());
  ASSERT_EQ(plan.edges.size(), 2u);
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "RAW x[0,400)");
  EXPECT_EQ(describe(plan, plan.edges[1].reasons.at(0)), "RAW y[0,400)");
  expect_runs(plan, kUncapturedRuns, [&](HostModel& m) {
    m.host_functions["theirs"] = [&](HostModel& n) {
      fill(n, y_, 17);
      accumulate(n, y_, x_, 7);
    };
  });
  expect_error([&] { CapturedGraph(plan, stream_); }, {"'theirs'", "built elsewhere"});
}

TEST_F(GraphNodeTest, WhatWasBuiltOfItNeedsItsGraphNoLonger) {
  std::optional<GraphHandle> theirs(elsewhere(7));
  ExplicitGraph exec(around_graph(theirs->get()));
  theirs.reset();
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  reset();
  HostModel reference = model();
  reference.host_functions["theirs"] = [&](HostModel& m) {
    fill(m, y_, 17);
    accumulate(m, y_, x_, 7);
  };
  reference.run(exec.plan());
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
}

TEST_F(GraphNodeTest, OurGraphGoesIntoAnotherGraphAsAnyOther) {
  ExplicitGraph inner(alone(call(accumulate(y_, x_, 7))));
  const Plan plan = around_graph(inner.graph());
  expect_runs(plan, kUncapturedRuns,
              [&](HostModel& m) { m.host_functions["theirs"] = [&](HostModel& n) { accumulate(n, y_, x_, 7); }; });
}

// Its fill of y shows what it touches; its kernel does not.
TEST_F(GraphNodeTest, UsesThatTheGraphContradictsAreRefused) {
  const GraphHandle theirs = elsewhere(7);
  const auto add = [&](const std::vector<DeclaredUse>& uses) {
    GraphBuilder g(device(), "around");
    declare_all(g);
    g.graph("theirs", theirs.get(), uses);
  };
  add({reads(x_), updates(y_)});
  add({reads(x_), writes(y_.subview(0, 50)), writes(y_.subview(50, 50))});
  expect_error([&] { add({reads(x_)}); },
               {"node 'theirs'", "node 'memset.0' of the graph writes y[0,400)", "in none of the stated uses"});
  expect_error(
      [&] {
        add({reads(x_), writes(y_.subview(0, 99))});
      },
      {"node 'memset.0' of the graph writes y[396,400)", "in none of the stated uses"});
  expect_error(
      [&] {
        add({reads(x_), writes(y_.subview(0, 50)), reads(y_.subview(50, 50))});
      },
      {"node 'memset.0' of the graph writes y[200,400)", "stated to be read alone"});
}

TEST_F(GraphNodeTest, WhatACopyCannotHaveIsRefusedByTheNodesName) {
  expect_error([&] { around_graph(nullptr); }, {"node 'theirs'", "no graph"});
  GraphBuilder g(device(), "with a condition");
  declare_all(g);
  g.if_else("if", g.condition("yes", 1), [&](GraphBuilder& body) { body.fill("fill", y_, 1u); });
  ExplicitGraph conditional(std::move(g).finish(EdgePolicy::full));
  expect_error([&] { ExplicitGraph exec(around_graph(conditional.graph())); }, {"node 'theirs'", "a conditional node"});
}

class LibraryStandInOnCpuDriver : public LibraryNodesTest {};

TEST_F(LibraryStandInOnCpuDriver, AStandInRunsInItsPlaceInEveryRun) {
  int submitted = 0;
  GraphBuilder g(device(), "around");
  declare_all(g);
  g.launch("before", machine().blend_of(x_.count), {.a = z_, .b = z_, .key = {}, .y = x_, .salt = 3});
  g.library(
      "library", {reads(x_), updates(y_)}, [&](CUstream) { ++submitted; },
      [args = Accumulate{.y = y_, .x = x_, .salt = 7}] { host_accumulate(args); });
  g.launch("after", machine().blend_of(x_.count), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 5});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_runs(plan, kAllRuns,
              [&](HostModel& m) { m.host_functions["library"] = [&](HostModel& n) { accumulate(n, y_, x_, 7); }; });
  EXPECT_EQ(submitted, 0);
  EXPECT_EQ(form_of(ExplicitGraph(plan), plan), LibraryForm::stand_in);
}

TEST_F(LibraryStandInOnCpuDriver, WhatAStandInThrowsIsReportedByTheNextLaunch) {
  for (const RunMode mode : kAllRuns) {
    PlanRun run(alone({.submit = [](CUstream) {}, .stand_in = [] { throw std::runtime_error("not square"); }}), mode,
                stream_);
    run.launch();
    stream_.synchronize();
    expect_words(error_of([&] { run.launch(); }), {"node 'library'", "not square"});
  }
}

TEST_F(LibraryStandInOnCpuDriver, ANodeWithoutAStandInCanBeDumpedAndNotRun) {
  const Plan plan = around({.submit = [](CUstream) {}});
  EXPECT_EQ(plan.edges.size(), 2u);
  expect_error([&] { ExplicitGraph exec(plan); }, {"node 'library'", "no stand-in"});
  for (const RunMode mode : {RunMode::eager, RunMode::captured})
    expect_error([&] { PlanRun(plan, mode, stream_).launch(); }, {"node 'library'", "no stand-in"});
  stream_.synchronize();
}

}  // namespace
}  // namespace nodewright
