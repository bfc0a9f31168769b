#include "graph/hazard_check.h"

#include <algorithm>
#include <random>
#include <string>

#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

using HazardCheckTest = SketchTest;

TEST_F(HazardCheckTest, APlantedMissingEdgeIsReportedByNodeFieldAndRange) {
  GraphBuilder g(device(), "planted");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), y = buffer(g, "y");
  g.launch("writer", waiting, {.left = x, .right = x, .y = h.subview(0, 200), .scale = 1});
  g.launch("reader", waiting, {.left = h.subview(100, 100), .right = x, .y = y, .scale = 1});
  Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  plan.edges.clear();
  const auto missing = missing_orders(plan);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(describe(missing[0]), "'writer' (y: out) and 'reader' (left: in) share h[400,800) without an order");
}

// Each edge of a derived plan is there because of bytes, or because it was asked for.
TEST_F(HazardCheckTest, EachEdgeRemovedInTurnIsReported) {
  for (unsigned seed = 1; seed <= 30; ++seed) {
    const Plan plan = make_random_plan(device(), waiting, hasty,
                                       {seed, 1 + seed * 2, seed % 2 ? EdgePolicy::full : EdgePolicy::programmatic});
    for (size_t i = 0; i < plan.edges.size(); ++i) {
      const auto& reasons = plan.edges[i].reasons;
      if (std::all_of(reasons.begin(), reasons.end(), [](const Reason& r) { return r.hazard == Hazard::declared; }))
        continue;
      Plan cut = plan;
      cut.edges.erase(cut.edges.begin() + static_cast<std::ptrdiff_t>(i));
      const auto missing = missing_orders(cut);
      const bool reported = std::any_of(missing.begin(), missing.end(), [&](const MissingOrder& order) {
        return order.first == plan.edges[i].from && order.second == plan.edges[i].to;
      });
      EXPECT_TRUE(reported) << "seed " << seed << ", edge " << i;
    }
  }
}

// Enough touches of one buffer to sort them by digits.
TEST_F(HazardCheckTest, EachEdgeBetweenSlicesOfOneArenaIsReportedWhenRemoved) {
  std::mt19937 random(1);
  GraphBuilder g(device(), "arena");
  const View<float> arena = sketch_view(uint64_t{1} << 40, 2048);  // on no device
  g.declare({"arena", arena.address(), arena.bytes(), "activation"}, {.live_in = true});
  const uint64_t half = arena.count / 2, slice = 12;
  const auto anywhere = [&](uint64_t from) { return arena.subview(from + random() % (half - slice), slice); };
  for (unsigned i = 0; i < 300; ++i)
    g.launch("n" + std::to_string(i), waiting,
             {.left = anywhere(i % 2 * half), .right = anywhere(i % 2 * half), .y = anywhere((i + 1) % 2 * half)});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  ASSERT_GT(plan.edges.size(), 300u);
  for (size_t i = 0; i < plan.edges.size(); i += 7) {
    Plan cut = plan;
    cut.edges.erase(cut.edges.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_TRUE(std::ranges::any_of(missing_orders(cut), [&](const MissingOrder& order) {
      return order.first == plan.edges[i].from && order.second == plan.edges[i].to;
    })) << i;
  }
}

TEST_F(HazardCheckTest, AProgrammaticEdgeIntoAKernelThatDoesNotWaitGivesNoOrder) {
  GraphBuilder g(device(), "hasty");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), y = buffer(g, "y");
  g.launch("writer", waiting, {.left = x, .right = x, .y = h, .scale = 1});
  g.launch("reader", hasty, {.left = h, .right = x, .y = y, .scale = 1});
  Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  EXPECT_TRUE(missing_orders(plan).empty());
  plan.edges[0].type = EdgeType::programmatic;
  EXPECT_EQ(missing_orders(plan).size(), 1u);
  EXPECT_THROW(check_plan(plan), Error);
}

TEST_F(HazardCheckTest, AFrozenUseOfWrittenBytesIsReportedEvenBehindAnEdge) {
  GraphBuilder g(device(), "frozen");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), y = buffer(g, "y");
  g.launch("writer", waiting, {.left = x, .right = x, .y = h, .scale = 1});
  g.launch("reader", waiting, {.left = h, .right = x, .y = y, .scale = 1});
  Plan plan = std::move(g).finish(EdgePolicy::full);
  plan.nodes[1].uses[0].access = Access::frozen;
  EXPECT_EQ(missing_orders(plan).size(), 1u);
}

TEST_F(HazardCheckTest, ABackwardEdgeAndADoubleEdgeAreRefused) {
  GraphBuilder g(device(), "cycle");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), y = buffer(g, "y");
  g.launch("a", waiting, {.left = x, .right = x, .y = h, .scale = 1});
  g.launch("b", waiting, {.left = h, .right = x, .y = y, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  Plan cycle = plan, twice = plan, foreign = plan;
  cycle.edges.push_back({1, 0, EdgeType::full, {}});
  twice.edges.push_back(plan.edges[0]);
  foreign.edges.push_back({0, 9, EdgeType::full, {}});
  for (const Plan& bad : {cycle, twice, foreign}) EXPECT_THROW(check_plan(bad), Error);
}

TEST_F(HazardCheckTest, TwoPlansConflictWhereOneWritesWhatTheOtherUses) {
  const auto make = [&](const std::string& name, uint64_t read, uint64_t write) {
    GraphBuilder g(device(), name);
    g.declare({"r", read, 1024, "state"}, {.live_in = true});
    g.declare({"w", write, 1024, "state"});
    g.launch("n", waiting,
             {.left = sketch_view(read), .right = sketch_view(read), .y = sketch_view(write), .scale = 1});
    return std::move(g).finish(EdgePolicy::full);
  };
  const Plan a = make("a", 0x1000, 0x2000), b = make("b", 0x2200, 0x3000), c = make("c", 0x1000, 0x4000);
  const auto found = conflicts(a, b);
  ASSERT_EQ(found.size(), 2u);  // left and right of b read what y of a writes
  EXPECT_EQ(found[0].field_a, "y");
  EXPECT_EQ(found[0].field_b, "left");
  EXPECT_EQ(found[0].address, 0x2200u);
  EXPECT_EQ(found[0].bytes, 512u);
  EXPECT_TRUE(conflicts(a, c).empty()) << "both only read what they share";
}

}  // namespace
}  // namespace nodewright
