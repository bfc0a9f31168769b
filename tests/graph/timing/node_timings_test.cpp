// The arithmetic of node times, on stamps that were made up.
#include "graph/timing/node_timer.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class NodeTimesTest : public SketchTest {};

TEST_F(NodeTimesTest, TheTimesOfAChainAddUpToItsLengthHoweverItsNodesOverlap) {
  GraphBuilder g(device(), "chain");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y"), z = buffer(g, "z"), w = buffer(g, "w");
  g.launch("first", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
  g.launch("second", waiting, {.left = y, .right = y, .gain = {}, .y = z, .scale = 1});
  g.launch("third", waiting, {.left = z, .right = z, .gain = {}, .y = w, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  TimedTwin twin{.plan = {}, .stamps = DeviceBuffer(device(), "none", 0), .nodes = {3, StampedNode{}}, .fields = {}};
  const std::vector<NodeSpan> spans = {{1000, 0, 5000}, {3000, 5500, 9000}, {2000, 9500, 12000}};
  PlanTimings timings{.plan = "chain", .nodes = node_timings(plan, twin, spans, 0), .samples = 1};
  EXPECT_EQ(timings.nodes[0].time_us, 4);
  EXPECT_EQ(timings.nodes[1].time_us, 4);
  EXPECT_EQ(timings.nodes[1].overlap_us, 2);
  EXPECT_EQ(timings.nodes[1].span_us, 6);
  EXPECT_EQ(timings.nodes[1].waited_us, 4.5);
  EXPECT_EQ(timings.nodes[2].time_us, 3);
  EXPECT_EQ(timings.nodes[2].overlap_us, 7);
  EXPECT_EQ(timings.nodes[2].start_us, 1);
  EXPECT_EQ(timings.nodes[2].end_us, 11);
  const CriticalPath path = critical_path(plan, timings);
  EXPECT_EQ(path.nodes, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_EQ(path.time_us, 11);
}

TEST_F(NodeTimesTest, InAForkTheCriticalPathTakesTheSlowerBranch) {
  GraphBuilder g(device(), "fork");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y"), z = buffer(g, "z"), w = buffer(g, "w");
  g.launch("quick", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
  g.launch("slow", waiting, {.left = x, .right = x, .gain = {}, .y = z, .scale = 1});
  g.launch("join", waiting, {.left = y, .right = z, .gain = {}, .y = w, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  TimedTwin twin{.plan = {}, .stamps = DeviceBuffer(device(), "none", 0), .nodes = {3, StampedNode{}}, .fields = {}};
  const std::vector<NodeSpan> spans = {{1000, 0, 2000}, {1000, 0, 8000}, {9000, 0, 10000}};
  PlanTimings timings{.plan = "fork", .nodes = node_timings(plan, twin, spans, 0), .samples = 1};
  EXPECT_EQ(timings.nodes[2].time_us, 2) << "the gap before it counts";
  const CriticalPath path = critical_path(plan, timings);
  EXPECT_EQ(path.nodes, (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(path.time_us, 9) << "not the 10 that all nodes sum up to";
}

TEST_F(NodeTimesTest, TheStepOfAClockIsItsSmallestDifference) {
  const std::vector<BlockStamps> stamps = {{1024, 0, 2048}, {1056, 1056, 4096}};
  EXPECT_EQ(clock_step_ns(stamps), 32u);
  EXPECT_EQ(clock_step_ns({}), 0u);
}

}  // namespace
}  // namespace nodewright
