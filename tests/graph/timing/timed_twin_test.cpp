// Timed twins compute what their plans compute, and every block leaves its stamps.
#include "graph/timing/timed_twin.h"

#include <map>

#include "graph/hazard_check.h"
#include "tests/graph/timing/node_timer_fixture.h"

namespace nodewright {
namespace {

class TimedTwinTest : public NodeTimerTest {};
INSTANTIATE_TEST_SUITE_P(On, TimedTwinTest, ::testing::ValuesIn(timed_devices()), suite_of_device);

TEST_P(TimedTwinTest, ATwinComputesTheSameBitsAndTheDriverHoldsItsPlan) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
    const Plan plan = fork_join(policy);
    ExplicitGraph plain(plan);
    NodeTimer timer(plan, kernels(), stream_);
    EXPECT_EQ(read_back(timer.twin_graph()), std::vector<std::string>{});
    const std::vector<float> expected = result_of(plain);
    EXPECT_EQ(std::count(expected.begin(), expected.end(), -99.0f), 0);
    EXPECT_EQ(result_of(timer.twin_graph()), expected);
    EXPECT_EQ(result_of(timer.twin_graph()), expected) << "the second launch";
  }
}

TEST_P(TimedTwinTest, ATwinKeepsEveryEdgeAndBracketsWhatIsNoKernel) {
  const Plan plan = fork_join(EdgePolicy::programmatic, machine().waiting);
  const TimedTwin twin = timed_twin(plan, kernels());
  EXPECT_EQ(twin.plan.name, "fork_join.timed");
  expect_edges(twin.plan,
               {"load#begin>load", "load>load#end", "clear#begin>clear", "clear>clear#end", "load#end>l0.left",
                "load#end>l0.right", "clear#end>l1.saxpy", "l0.left~>l1.saxpy", "l0.right~>l1.join",
                "l1.saxpy~>l1.join", "l1.join>l1.joined#begin", "l1.joined#begin>l1.joined", "l1.joined>l1.joined#end",
                "l1.join>l1.store#begin", "l1.store#begin>l1.store", "l1.store>l1.store#end"});
  for (size_t id = 0; id < plan.nodes.size(); ++id) {
    EXPECT_EQ(twin.nodes[id].bracketed, plan.nodes[id].kind != NodeKind::kernel);
    EXPECT_EQ(twin.nodes[id].slots, twin.nodes[id].bracketed ? 2 : plan.nodes[id].shape.blocks());
  }
}

TEST_P(TimedTwinTest, EveryBlockLeavesStampsInOrderAndAfterItsPredecessors) {
  for (const EdgePolicy policy : {EdgePolicy::full, EdgePolicy::programmatic}) {
    const Plan plan = fork_join(policy);
    NodeTimer timer(plan, kernels(), stream_);
    stage();
    const std::vector<BlockStamps> stamps = timer.stamps_of_one_launch();
    for (const BlockStamps& block : stamps) {
      EXPECT_GT(block.started, 0u);
      EXPECT_LE(block.started, block.ended);
      EXPECT_LE(block.waited, block.ended);
    }
    EXPECT_GT(clock_step_ns(stamps), 0u);
    const std::vector<NodeSpan> spans = node_spans(timer.twin(), stamps);
    for (const Edge& edge : plan.edges) {
      SCOPED_TRACE(plan.nodes[edge.from].name + " -> " + plan.nodes[edge.to].name);
      EXPECT_LE(spans[edge.from].end, spans[edge.to].end);
      EXPECT_LE(spans[edge.from].end, edge.type == EdgeType::full ? spans[edge.to].start : spans[edge.to].waited);
    }
  }
}

TEST_P(TimedTwinTest, EveryBlockSaysWhenAndWhereItRan) {
  const Plan plan = fork_join(EdgePolicy::programmatic);
  NodeTimer timer(plan, kernels(), stream_);
  stage();
  const std::vector<BlockStamps> stamps = timer.stamps_of_one_launch();
  const std::vector<NodeSpan> nodes = node_spans(timer.twin(), stamps);
  std::map<uint32_t, uint64_t> counted;
  for (const BlockSpan& block : block_spans(timer.twin(), stamps)) {
    EXPECT_EQ(block.block, counted[block.node]++) << plan.nodes[block.node].name;
    EXPECT_GE(block.start, nodes[block.node].start);
    EXPECT_LE(block.waited, nodes[block.node].waited);
    EXPECT_LE(block.end, nodes[block.node].end);
    EXPECT_LT(block.sm, device().driver().is_cpu() ? 1 : static_cast<uint64_t>(device().properties().sm_count));
  }
  for (const PlanNode& node : plan.nodes) {
    if (node.kind != NodeKind::kernel) continue;
    EXPECT_EQ(counted[node.id], node.shape.blocks()) << node.name;
  }
  const auto left = std::ranges::find(plan.nodes, "l0.left", &PlanNode::name);
  ASSERT_NE(left, plan.nodes.end());
  std::vector<BlockStamps> missing = stamps;
  missing[timer.twin().nodes[left->id].first_slot].ended = 0;
  EXPECT_NE(error_of([&] { block_spans(timer.twin(), missing); }).find("l0.left"), std::string::npos);
}

TEST_P(TimedTwinTest, BlocksThatLeaveEarlyAreStampedToo) {
  GraphBuilder g(device(), "early");
  g.declare(range_of(buffers_[0], "activation"), {.live_in = true});
  g.declare(range_of(buffers_[1], "activation"), {.live_in = true});
  Kernel<Saxpy> wide = machine().saxpy;
  wide.shape.grid[0] = 9;  // two blocks have work, one of them in part
  g.launch("wide", wide, {.x = view(0), .y = view(1), .a = 1});
  NodeTimer timer(std::move(g).finish(EdgePolicy::full), kernels(), stream_);
  const std::vector<BlockStamps> stamps = timer.stamps_of_one_launch();
  ASSERT_EQ(stamps.size(), 9u);
  for (const BlockStamps& block : stamps) {
    EXPECT_GT(block.started, 0u);
    EXPECT_GE(block.ended, block.started);
  }
}

TEST_P(TimedTwinTest, EveryBlockOfAThreeDimensionalGridHasASlotOfItsOwn) {
  GraphBuilder g(device(), "three");
  for (size_t i : {0, 1}) g.declare(range_of(buffers_[i], "activation"), {.live_in = true});
  Kernel<Mix> deep = machine().waiting;  // every y and z does what blockIdx.x says: the same values
  deep.shape.grid[1] = 3;
  deep.shape.grid[2] = 2;
  g.launch("deep", deep, {.left = view(0), .right = view(0), .gain = {}, .y = view(1), .scale = 1});
  NodeTimer timer(std::move(g).finish(EdgePolicy::full), kernels(), stream_);
  const std::vector<BlockStamps> stamps = timer.stamps_of_one_launch();
  ASSERT_EQ(stamps.size(), 8u * 3 * 2);
  EXPECT_EQ(node_spans(timer.twin(), stamps).size(), 1u) << "a slot without stamps would be refused";
}

TEST_P(TimedTwinTest, HostFunctionsChildrenAndConditionalsAreBracketedAsAWhole) {
  const auto x = view(0), a = view(1), b = view(2), c = view(3), y = view(4);
  GraphBuilder inner(device(), "inner");
  inner.declare(buffers_[1], {.live_in = true});
  inner.declare(buffers_[2]);
  inner.launch("again", machine().waiting, {.left = a, .right = a, .gain = {}, .y = b, .scale = 2});
  GraphBuilder g(device(), "nested");
  declare_all(g);
  int calls = 0;
  g.copy("load", x, staging_, x.bytes());
  const auto first = g.launch("first", machine().waiting, {.left = x, .right = x, .gain = {}, .y = a, .scale = 1});
  g.host("call", [&calls] { ++calls; }, {}, {.after = {first}});
  g.child("child", std::move(inner).finish(EdgePolicy::full));
  g.fill("clear", c, 1.0f);
  g.if_else("maybe", g.condition("go", 1), [&](GraphBuilder& body) {
    body.launch("inside", machine().waiting, {.left = b, .right = b, .gain = {}, .y = c, .scale = 1});
  });
  g.launch("last", machine().waiting, {.left = c, .right = x, .gain = {}, .y = y, .scale = 1});
  g.copy("store", result_, y, y.bytes());
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);

  NodeTimer timer(plan, kernels(), stream_);
  for (const StampedNode& node : timer.twin().nodes) {
    const PlanNode& planned = plan.nodes[static_cast<size_t>(&node - timer.twin().nodes.data())];
    EXPECT_EQ(node.bracketed, planned.kind != NodeKind::kernel) << planned.name;
  }
  EXPECT_EQ(read_back(timer.twin_graph()), std::vector<std::string>{});
  ExplicitGraph plain(plan);
  const std::vector<float> expected = result_of(plain);
  const int before = calls;
  EXPECT_EQ(result_of(timer.twin_graph()), expected);
  EXPECT_EQ(calls, before + 1);
  const PlanTimings timings = timer.measure(few());
  check_timings(timings, plan);
  EXPECT_EQ(timings.nodes.size(), plan.nodes.size());
}

TEST_P(TimedTwinTest, ATwinThatLosesAnEdgeIsReported) {
  const TimedTwin twin = timed_twin(fork_join(EdgePolicy::programmatic), kernels());
  EXPECT_TRUE(missing_orders(twin.plan).empty());
  size_t reported = 0, silent = 0;
  for (size_t lost = 0; lost < twin.plan.edges.size(); ++lost) {
    Plan plan = twin.plan;
    plan.edges.erase(plan.edges.begin() + static_cast<std::ptrdiff_t>(lost));
    ++(missing_orders(plan).empty() ? silent : reported);
  }
  // Silent: an edge into the first node of a chain (load#begin, clear#begin), after its last (store#end), and the
  // three about the empty node, which touches nothing.
  EXPECT_EQ(reported, 10u);
  EXPECT_EQ(silent, 6u);
}

TEST_P(TimedTwinTest, ABlockWithoutStampsIsReportedByNodeAndNumber) {
  const Plan plan = fork_join(EdgePolicy::full);
  NodeTimer timer(plan, kernels(), stream_);
  stage();
  const std::vector<BlockStamps> stamps = timer.stamps_of_one_launch();
  EXPECT_EQ(error_of([&] { node_spans(timer.twin(), stamps); }), "");
  const StampedNode& saxpy = timer.twin().nodes[4];
  std::vector<BlockStamps> lost = stamps, backwards = stamps;
  lost[saxpy.first_slot + 1] = {};
  std::swap(backwards[saxpy.first_slot].started, backwards[saxpy.first_slot].ended);
  const std::string message = error_of([&] { node_spans(timer.twin(), lost); });
  EXPECT_NE(message.find("'l1.saxpy': block 1 of 2 has left none"), std::string::npos) << message;
  backwards[saxpy.first_slot].started += 1;  // the two may have been equal
  EXPECT_NE(error_of([&] { node_spans(timer.twin(), backwards); }).find("started at"), std::string::npos);
}

TEST_P(TimedTwinTest, ATwinOfATwinIsRefused) {
  const TimedTwin twin = timed_twin(fork_join(EdgePolicy::full), kernels());
  EXPECT_NE(error_of([&] { timed_twin(twin.plan, kernels()); }).find("runs a timed kernel already"), std::string::npos);
}

TEST(StampsOnCpuDriver, BeyondTheDeclaredSlotsAreReportedByFieldAndNode) {
  Machine machine("cpu:checked");
  Device& device = *machine.opened.device;
  const DeviceBuffer x(device, "x", kCount * sizeof(float)), y(device, "y", kCount * sizeof(float));
  fill_device(device, x.address(), std::byte{0}, x.bytes(), "x");
  GraphBuilder g(device, "short");
  g.declare(x, {.live_in = true});
  g.declare(y);
  g.launch("mix", machine.waiting,
           {.left = view_of<float>(x), .right = view_of<float>(x), .gain = {}, .y = view_of<float>(y), .scale = 1});
  TimedTwin twin = timed_twin(std::move(g).finish(EdgePolicy::full), *machine.kernels);
  PlanNode& node = twin.plan.nodes[0];
  Out<BlockStamps> slots;
  std::byte* stamps = node.arguments.data() + timed_stamps_offset(sizeof(Mix));
  std::memcpy(&slots, stamps, sizeof slots);
  ASSERT_EQ(slots.count, node.shape.blocks());
  --slots.count;
  std::memcpy(stamps, &slots, sizeof slots);
  const Stream stream(device, "test");
  ExplicitGraph exec(twin.plan);
  exec.launch(stream);
  std::string message;
  try {
    stream.synchronize();
  } catch (const Error& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("stamps"), std::string::npos) << message;
  EXPECT_NE(message.find("mix"), std::string::npos) << message;
}

}  // namespace
}  // namespace nodewright
