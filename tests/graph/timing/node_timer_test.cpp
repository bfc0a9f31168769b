// What the node timer measures, and the files that it becomes.
#include "graph/timing/node_timer.h"

#include <nlohmann/json.hpp>

#include "graph/patch.h"
#include "graph/timing/plan_timings.h"
#include "tests/graph/timing/node_timer_fixture.h"

namespace nodewright {
namespace {

INSTANTIATE_TEST_SUITE_P(On, NodeTimerTest, ::testing::ValuesIn(timed_devices()), suite_of_device);

// After serial edges: where branches are free, the CPU driver runs one before the other, and the later one pays.
TEST_P(NodeTimerTest, TheSlowNodeTakesLongest) {
  const Plan plan = fork_join(EdgePolicy::serial, machine().slow);
  NodeTimer timer(plan, kernels(), stream_);
  const PlanTimings timings = timer.measure(few());
  check_timings(timings, plan);
  ASSERT_EQ(timings.nodes.size(), plan.nodes.size());
  const NodeTiming& slow = timing_of(plan, timings, "l0.right");
  double sum = 0;
  for (const NodeTiming& timing : timings.nodes) {
    sum += timing.time_us;
    if (timing.node == slow.node) continue;
    EXPECT_GT(slow.time_us, 2 * timing.time_us) << plan.nodes[timing.node].name;
    EXPECT_GT(slow.span_us, 2 * timing.span_us) << plan.nodes[timing.node].name;
  }
  const CriticalPath path = critical_path(plan, timings);
  EXPECT_EQ(path.nodes.size(), plan.nodes.size()) << "a chain is its own critical path";
  EXPECT_DOUBLE_EQ(path.time_us, sum);
  EXPECT_GT(timings.step_us, slow.span_us * 0.5);
  EXPECT_GT(timings.plain_step_us, slow.span_us * 0.5);
  EXPECT_EQ(timings.samples, 5);
  EXPECT_GT(timings.clock_step_us, 0);
}

TEST_P(NodeTimerTest, CopiesFillsAndEmptyNodesAreBracketedAndShorterByAnEmptyBracket) {
  const Plan plan = fork_join(EdgePolicy::full);
  NodeTimer timer(plan, kernels(), stream_);
  const PlanTimings timings = timer.measure(few());
  EXPECT_GT(timings.bracket_us, 0);
  for (const char* name : {"load", "clear", "l1.joined", "l1.store"}) {
    const NodeTiming& timing = timing_of(plan, timings, name);
    EXPECT_TRUE(timing.bracketed) << name;
    EXPECT_EQ(timing.time_us, timing.span_us) << name;
    EXPECT_EQ(timing.overlap_us, 0) << name;
  }
  EXPECT_FALSE(timing_of(plan, timings, "l0.left").bracketed);

  const std::vector<NodeSpan> spans = spans_of_one_launch(timer);
  const double whole = node_timings(plan, timer.twin(), spans, 0)[0].time_us;
  EXPECT_NEAR(node_timings(plan, timer.twin(), spans, whole / 4)[0].time_us, whole * 3 / 4, 1e-6);
  EXPECT_EQ(node_timings(plan, timer.twin(), spans, 2 * whole)[0].time_us, 0) << "never below zero";
}

TEST_P(NodeTimerTest, PlansWithoutKernelsOrWithoutNodesAreTimed) {
  GraphBuilder g(device(), "copies");
  declare_all(g);
  g.copy("load", view(0), staging_, view(0).bytes());
  g.copy("store", result_, view(0), view(0).bytes());
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  NodeTimer timer(plan, kernels(), stream_);
  const PlanTimings timings = timer.measure(few());
  ASSERT_EQ(timings.nodes.size(), 2u);
  EXPECT_GE(timings.nodes[1].start_us, timings.nodes[0].end_us);

  GraphBuilder nothing(device(), "nothing");
  NodeTimer empty(std::move(nothing).finish(EdgePolicy::programmatic), kernels(), stream_);
  EXPECT_TRUE(empty.measure(few()).nodes.empty());
}

TEST_P(NodeTimerTest, PlansInsideANodeHaveTimesOfTheirOwn) {
  GraphBuilder part(device(), "part"), g(device(), "outer");
  declare_all(part);
  declare_all(g);
  const auto x = view(0), a = view(1), b = view(2), y = view(4);
  g.copy("load", x, staging_, x.bytes());
  g.fill("clear_a", a, 0.0f);
  g.fill("clear_b", b, 0.0f);
  g.if_else(
      "choose", g.condition("which", 1),
      [&](GraphBuilder& body) {
        body.launch("quick", machine().waiting, {.left = x, .right = x, .y = a, .scale = 1});
        body.launch("slow", machine().slow, {.left = a, .right = x, .y = b, .scale = 1});
      },
      [&](GraphBuilder& body) { body.fill("never", b, 0.0f); });
  part.fill("half", y, 0.5f);
  g.child("part", std::move(part).finish(EdgePolicy::full));
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  NodeTimer timer(plan, kernels(), stream_);
  EXPECT_EQ(read_back(timer.twin_graph()), std::vector<std::string>{});
  PlanTimings timings = timer.measure(few());
  check_timings(timings, plan);
  const NodeTiming &load = timings.nodes.at(0), &choose = timings.nodes.at(3), &child = timings.nodes.at(4);
  EXPECT_TRUE(load.bodies.empty());
  ASSERT_EQ(choose.bodies.size(), 2u);
  ASSERT_EQ(choose.bodies[0].size(), 2u);
  EXPECT_EQ(choose.bodies[0][0].start_us, 0);
  EXPECT_GT(choose.bodies[0][1].time_us, 2 * choose.bodies[0][0].time_us);
  EXPECT_LE(choose.bodies[0][1].end_us, choose.span_us * 1.5);
  EXPECT_TRUE(choose.bodies[1].empty()) << "it has not run";
  ASSERT_EQ(child.bodies.size(), 1u);
  EXPECT_EQ(child.bodies[0].size(), 1u);

  const std::string written = to_json(timings, plan);
  const PlanTimings read = parse_timings(written, "t.json", plan);
  EXPECT_EQ(read.nodes.at(3).bodies.at(0).at(1).time_us, choose.bodies[0][1].time_us);
  EXPECT_TRUE(read.nodes.at(3).bodies.at(1).empty());
  auto spoiled = nlohmann::json::parse(written);
  spoiled["nodes"][3]["bodies"].erase(1);
  expect_error([&] { parse_timings(spoiled.dump(), "t.json", plan); },
               {"does not time the 2 plans inside node 'choose'"});
  timings.nodes[3].bodies[0][1].time_us = -1;
  expect_error([&] { check_timings(timings, plan); }, {"time_us of node 'slow' is -1"});
}

TEST_P(NodeTimerTest, APatchedGraphIsTimedWithItsPatches) {
  Node<Mix> join;
  ExplicitGraph exec(fork_join(EdgePolicy::full, machine().hasty, 2, &join));
  const std::vector<float> before = result_of(exec);
  exec.patch(join, &Mix::scale, 7.0f);
  const std::vector<float> patched = result_of(exec);
  EXPECT_NE(patched, before);
  EXPECT_EQ(result_of(NodeTimer(plan_as_patched(exec), kernels(), stream_).twin_graph()), patched);
  EXPECT_EQ(result_of(NodeTimer(exec.plan(), kernels(), stream_).twin_graph()), before);

  PatchSet off(exec);
  off.enable(join, false);
  off.apply();
  EXPECT_NE(error_of([&] { plan_as_patched(exec); }).find("'l1.join' is switched off"), std::string::npos);
}

TEST_P(NodeTimerTest, TimesAndTimelinesCanBeReadBack) {
  const Plan plan = fork_join(EdgePolicy::programmatic);
  NodeTimer timer(plan, kernels(), stream_);
  NodeTimerOptions options = few();
  options.read_peak = [] { return 1e9; };
  const PlanTimings timings = timer.measure(options);
  EXPECT_EQ(timings.peak_bytes_per_s, 1e9);
  const PlanTimings read = parse_timings(to_json(timings, plan), "timings.json", plan);
  ASSERT_EQ(read.nodes.size(), timings.nodes.size());
  for (size_t i = 0; i < read.nodes.size(); ++i) {
    EXPECT_EQ(read.nodes[i].time_us, timings.nodes[i].time_us);
    EXPECT_EQ(read.nodes[i].waited_us, timings.nodes[i].waited_us);
    EXPECT_EQ(read.nodes[i].bracketed, timings.nodes[i].bracketed);
  }
  const TimedPlan both[] = {{&plan, &timings}, {&plan, &timings}};
  const auto trace = nlohmann::json::parse(to_trace(both));
  size_t slices = 0;
  for (const auto& event : trace["traceEvents"])
    slices += event["ph"] == "X" && event["pid"] == 2 && event["cat"] != "layer";
  EXPECT_EQ(slices, plan.nodes.size());
}

}  // namespace
}  // namespace nodewright
