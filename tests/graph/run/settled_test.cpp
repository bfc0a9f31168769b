// Settled fields, which a kernel may read before its wait: their writers are complete when it starts, whatever the
// edges in between are.
#include <algorithm>

#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

struct Peek {
  Settled<float> peeked;
  In<float> x;
  Out<float> y;
};
struct Append {
  SettledInOut<float> pool;
  In<float> x;
};

class SettledTest : public SketchTest {
 protected:
  SettledTest() {
    peek_kernel_.args_bytes = sizeof(Peek);
    append_kernel_.args_bytes = sizeof(Append);
  }
  NodeId mix(GraphBuilder& g, const std::string& name, View<float> from, View<float> to) {
    return g.launch(name, waiting, {.left = from, .right = from, .gain = {}, .y = to, .scale = 1});
  }

  LoadedKernel peek_kernel_ = named_kernel("peek", true), append_kernel_ = named_kernel("append", true);
  Kernel<Peek> peek{&peek_kernel_, mix_shape(kSketchCount)};
  Kernel<Append> append{&append_kernel_, mix_shape(kSketchCount)};
};

TEST_F(SettledTest, WhatACopyWroteBeforeTheFirstKernelIsSettledForAllKernelsAfterIt) {
  GraphBuilder g(device(), "inputs");
  const auto x = buffer(g, "x", {.live_in = true}), inputs = buffer(g, "inputs"), a = buffer(g, "a"),
             b = buffer(g, "b"), y = buffer(g, "y");
  g.copy("copy", inputs, x, x.bytes());
  mix(g, "first", inputs, a);
  mix(g, "second", a, b);
  g.launch("peek", peek, {.peeked = inputs, .x = b, .y = y});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"copy>first", "first~>second", "second~>peek"});
  EXPECT_NE(to_text(plan).find("<~peeked=inputs"), std::string::npos) << to_text(plan);
}

TEST_F(SettledTest, WhatAKernelWroteIsSettledBehindAFullEdge) {
  GraphBuilder g(device(), "written");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), a = buffer(g, "a"), y = buffer(g, "y"),
             z = buffer(g, "z");
  mix(g, "writer", x, h);
  mix(g, "between", h, a);
  g.launch("peek", peek,
           {.peeked = h, .x = a, .y = y});  // starts while "between" runs, and that may run beside "writer"
  g.launch("later", peek, {.peeked = h, .x = y, .y = z});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"writer~>between", "between>peek", "peek~>later"});
}

TEST_F(SettledTest, ElementsThatAKernelAddsToAPoolAreSettledForTheNextLaunchOnly) {
  GraphBuilder g(device(), "pool");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y"), pool = buffer(g, "pool", {.live_in = true}),
             other = buffer(g, "other", {.live_in = true});
  mix(g, "first", x, y);
  g.launch("append", append, {.pool = pool, .x = y});
  g.launch("beside", append, {.pool = other, .x = y});
  g.launch("again", append, {.pool = pool, .x = y});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"first~>append", "first~>beside", "append>again"});
}

TEST_F(SettledTest, AKernelThatReleasesBehindItsWaitSettlesWhatIsBeforeIt) {
  LoadedKernel late_kernel = named_kernel("late", true);
  late_kernel.args_bytes = sizeof(Mix);
  late_kernel.releases_after_wait = true;
  const Kernel<Mix> late{&late_kernel, mix_shape(kSketchCount)};
  GraphBuilder g(device(), "late");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), a = buffer(g, "a"), b = buffer(g, "b"),
             y = buffer(g, "y"), z = buffer(g, "z");
  mix(g, "writer", x, h);
  g.launch("late", late, {.left = h, .right = h, .gain = {}, .y = a, .scale = 1});
  mix(g, "between", a, b);
  g.launch("peek", peek, {.peeked = h, .x = b, .y = y});    // "late" has waited for "writer" when "between" starts
  g.launch("closer", peek, {.peeked = y, .x = y, .y = z});  // what the node just before wrote is not settled
  Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"writer~>late", "late~>between", "between~>peek", "peek>closer"});
  EXPECT_TRUE(missing_orders(plan).empty());
  late_kernel.releases_after_wait = false;
  EXPECT_EQ(missing_orders(plan).size(), 1u) << "the writer may be running";
}

TEST_F(SettledTest, AProgrammaticEdgeThatLeavesAWriterRunningIsReported) {
  GraphBuilder g(device(), "planted");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), a = buffer(g, "a"), y = buffer(g, "y");
  mix(g, "writer", x, h);
  mix(g, "between", h, a);
  g.launch("peek", peek, {.peeked = h, .x = a, .y = y});
  Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_TRUE(missing_orders(plan).empty());
  for (Edge& edge : plan.edges) edge.type = EdgeType::programmatic;
  const std::vector<MissingOrder> missing = missing_orders(plan);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(describe(missing[0]), "'writer' (y: out) and 'peek' (peeked: in) share h[0,1024) without an order");
  plan.edges[0].type = EdgeType::full;  // "peek" starts after "between" has, and that after "writer" has completed
  EXPECT_TRUE(missing_orders(plan).empty());
}

}  // namespace
}  // namespace nodewright
