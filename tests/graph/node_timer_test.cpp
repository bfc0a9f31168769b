// Times of nodes: on the CPU driver, plain and checked, or on the device that $NODEWRIGHT_TEST_DEVICE names. The CPU
// driver runs one node after the other, so its times say which node is slow and nothing about overlap.
#include "graph/node_timer.h"

#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "graph/hazard_check.h"
#include "graph/patch.h"
#include "graph/timing_trace.h"
#include "kernels_src/saxpy.h"
#include "runtime/cpu_driver/cpu_driver_api.h"
#include "tests/graph/sketch.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

constexpr uint64_t kCount = 500;  // floats in a buffer: not a multiple of any block

std::string read_text(const std::string& path) {
  std::ifstream file(test::source_dir() / path);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_FALSE(text.str().empty()) << path;
  return text.str();
}

// A device with its kernels: compiling them takes seconds, loading them again does not.
struct Machine {
  std::string name;
  OpenedDevice opened;
  std::string mix_h = read_text("tests/graph/kernels/mix.h"), mix = read_text("tests/graph/kernels/mix.cu"),
              hasty_mix = read_text("tests/graph/kernels/hasty_mix.cu"),
              slow_mix = read_text("tests/graph/kernels/slow_mix.cu");
  std::unique_ptr<KernelCache> kernels;
  Kernel<Mix> waiting, hasty, slow;
  Kernel<Saxpy> saxpy;

  explicit Machine(const std::string& device) : name(device), opened(open_device(device)) {
    KernelCacheOptions options;
    options.extra_sources = {{"tests/graph/kernels/mix.h", mix_h},
                             {"kernels_src/mix.cu", mix},
                             {"kernels_src/hasty_mix.cu", hasty_mix},
                             {"kernels_src/slow_mix.cu", slow_mix}};
    kernels = std::make_unique<KernelCache>(*opened.device, options);
    waiting = typed_kernel<Mix>(*kernels, {"mix", {}}, mix_shape(kCount));
    // A checked run reports any access of a kernel that has not waited.
    hasty = typed_kernel<Mix>(*kernels, {checked() ? "mix" : "hasty_mix", {}}, mix_shape(kCount));
    slow = typed_kernel<Mix>(*kernels, {"slow_mix", {{"kMixAgain", 20000}}}, mix_shape(kCount));
    saxpy = typed_kernel<Saxpy>(*kernels, {"saxpy", {}}, saxpy_shape(kCount));
  }
  bool checked() const { return opened.driver->is_cpu() && opened.driver->cpu_options().check_accesses; }
};

class NodeTimerTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { machine_.reset(); }

  NodeTimerTest() {
    for (const char* name : {"x", "a", "b", "c", "y"}) buffers_.emplace_back(device(), name, kCount * sizeof(float));
    stage();
  }

  static Machine& machine() {
    if (!machine_ || machine_->name != GetParam()) {
      machine_.reset();  // one CPU driver at a time
      machine_ = std::make_unique<Machine>(GetParam());
    }
    return *machine_;
  }
  static Device& device() { return *machine().opened.device; }
  static KernelCache& kernels() { return *machine().kernels; }
  View<float> view(size_t i) const { return view_of<float>(buffers_[i]); }

  // staging -> x; a = f(x), b = g(x) (no wait), c = 0 and c += 3 a; y = 2 b + c; y -> result.
  Plan fork_join(EdgePolicy policy, const Kernel<Mix>& right, float scale = 2, Node<Mix>* join = nullptr) {
    GraphBuilder g(device(), "fork_join", 4);
    declare_all(g);
    const auto x = view(0), a = view(1), b = view(2), c = view(3), y = view(4);
    g.copy("load", x, staging_, x.bytes());
    g.fill("clear", c, 0.0f);
    {
      const auto layer = g.scope("l0");
      g.launch("left", machine().waiting, {.left = x, .right = x, .gain = {}, .y = a, .scale = 0.5f});
      g.launch("right", right, {.left = x, .right = x.subview(0, 3), .gain = {}, .y = b, .scale = -2});
    }
    const auto layer = g.scope("l1");
    g.launch("saxpy", machine().saxpy, {.x = a, .y = c, .a = 3});
    const auto joined =
        g.launch("join", machine().waiting, {.left = b, .right = c, .gain = {}, .y = y, .scale = scale});
    if (join != nullptr) *join = joined;
    g.empty("joined", {joined});
    g.copy("store", result_, y, y.bytes());
    return std::move(g).finish(policy);
  }
  Plan fork_join(EdgePolicy policy) { return fork_join(policy, machine().hasty); }

  void declare_all(GraphBuilder& g) {
    g.declare(range_of(staging_, "input"), {.live_in = true});
    for (const DeviceBuffer& buffer : buffers_) g.declare(range_of(buffer, "activation"));
    g.declare(range_of(result_, "output"), {.live_out = true});
  }

  // What the next launch copies in. The CPU driver may overwrite it once the copy has run.
  void stage() {
    const auto x = staging_.as<float>();
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.25f - 1.0f;
  }

  std::vector<float> result_of(const ExplicitGraph& graph) {
    const auto result = result_.as<float>();
    std::fill(result.begin(), result.end(), -99.0f);
    stage();
    graph.launch(stream_);
    stream_.synchronize();
    return {result.begin(), result.end()};
  }

  NodeTimerOptions few() {
    return {.samples = 5, .launches_per_sample = 2, .before_launch = [this] { stage(); }, .read_peak = {}};
  }
  std::vector<NodeSpan> spans_of_one_launch(NodeTimer& timer) {
    stage();
    return node_spans(timer.twin(), timer.stamps_of_one_launch());
  }

  static const NodeTiming& timing_of(const Plan& plan, const PlanTimings& timings, std::string_view name) {
    for (const NodeTiming& timing : timings.nodes)
      if (plan.nodes[timing.node].name == name) return timing;
    ADD_FAILURE() << "no timing of " << name;
    return timings.nodes.front();
  }

  static std::string message_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }

  static inline std::unique_ptr<Machine> machine_;  // made by the first test that asks
  std::vector<DeviceBuffer> buffers_;
  PinnedBuffer staging_{device(), "staging", kCount * sizeof(float)};
  PinnedBuffer result_{device(), "result", kCount * sizeof(float)};
  Stream stream_{device(), "test"};
};

std::vector<std::string> devices() {
  if (test::test_device() != "cpu") return {test::test_device()};
  return {"cpu", "cpu:checked"};
}
INSTANTIATE_TEST_SUITE_P(On, NodeTimerTest, ::testing::ValuesIn(devices()), [](const auto& param) {
  std::string name = param.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

TEST_P(NodeTimerTest, ATwinComputesTheSameBitsAndTheDriverHoldsItsPlan) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
    const Plan plan = fork_join(policy);
    const ExplicitGraph plain(plan);
    const NodeTimer timer(plan, kernels(), stream_);
    EXPECT_EQ(read_back(timer.twin_graph()), std::vector<std::string>{});
    const std::vector<float> expected = result_of(plain);
    EXPECT_EQ(std::count(expected.begin(), expected.end(), -99.0f), 0);
    EXPECT_EQ(result_of(timer.twin_graph()), expected);
    EXPECT_EQ(result_of(timer.twin_graph()), expected) << "the second launch";
  }
}

TEST_P(NodeTimerTest, ATwinKeepsEveryEdgeAndBracketsWhatIsNoKernel) {
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

TEST_P(NodeTimerTest, EveryBlockLeavesStampsInOrderAndAfterItsPredecessors) {
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

TEST_P(NodeTimerTest, BlocksThatLeaveEarlyAreStampedToo) {
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

TEST_P(NodeTimerTest, EveryBlockOfAThreeDimensionalGridHasASlotOfItsOwn) {
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

// Behind serial edges: where branches are free, the CPU driver runs one before the other, and the later one pays.
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

TEST_P(NodeTimerTest, HostFunctionsChildrenAndConditionalsAreBracketedAsAWhole) {
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
  g.host("call", [&calls] { ++calls; }, {}, {first});
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
  const std::vector<float> expected = result_of(ExplicitGraph(plan));
  const int before = calls;
  EXPECT_EQ(result_of(timer.twin_graph()), expected);
  EXPECT_EQ(calls, before + 1);
  const PlanTimings timings = timer.measure(few());
  check_timings(timings, plan);
  EXPECT_EQ(timings.nodes.size(), plan.nodes.size());
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

TEST_P(NodeTimerTest, APatchedGraphIsTimedWithItsPatches) {
  Node<Mix> join;
  ExplicitGraph exec(fork_join(EdgePolicy::programmatic, machine().hasty, 2, &join));
  const std::vector<float> before = result_of(exec);
  exec.patch(join, &Mix::scale, 7.0f);
  const std::vector<float> patched = result_of(exec);
  EXPECT_NE(patched, before);
  EXPECT_EQ(result_of(NodeTimer(plan_as_patched(exec), kernels(), stream_).twin_graph()), patched);
  EXPECT_EQ(result_of(NodeTimer(exec.plan(), kernels(), stream_).twin_graph()), before);

  PatchSet off(exec);
  off.enable(join, false);
  off.apply();
  EXPECT_NE(message_of([&] { plan_as_patched(exec); }).find("'l1.join' is switched off"), std::string::npos);
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

// ---- planted ----

TEST_P(NodeTimerTest, ATwinThatLosesAnEdgeIsReported) {
  const TimedTwin twin = timed_twin(fork_join(EdgePolicy::programmatic), kernels());
  EXPECT_TRUE(missing_orders(twin.plan).empty());
  size_t reported = 0, silent = 0;
  for (size_t lost = 0; lost < twin.plan.edges.size(); ++lost) {
    Plan plan = twin.plan;
    plan.edges.erase(plan.edges.begin() + static_cast<std::ptrdiff_t>(lost));
    ++(missing_orders(plan).empty() ? silent : reported);
  }
  // Silent: an edge into the first node of a chain (load#begin, clear#begin), behind its last (store#end), and the
  // three about the empty node, which touches nothing.
  EXPECT_EQ(reported, 10u);
  EXPECT_EQ(silent, 6u);
}

TEST_P(NodeTimerTest, ABlockWithoutStampsIsReportedByNodeAndNumber) {
  const Plan plan = fork_join(EdgePolicy::full);
  NodeTimer timer(plan, kernels(), stream_);
  stage();
  const std::vector<BlockStamps> stamps = timer.stamps_of_one_launch();
  EXPECT_EQ(message_of([&] { node_spans(timer.twin(), stamps); }), "");
  const StampedNode& saxpy = timer.twin().nodes[4];
  std::vector<BlockStamps> lost = stamps, backwards = stamps;
  lost[saxpy.first_slot + 1] = {};
  std::swap(backwards[saxpy.first_slot].started, backwards[saxpy.first_slot].ended);
  const std::string message = message_of([&] { node_spans(timer.twin(), lost); });
  EXPECT_NE(message.find("'l1.saxpy': block 1 of 2 has left none"), std::string::npos) << message;
  backwards[saxpy.first_slot].started += 1;  // the two may have been equal
  EXPECT_NE(message_of([&] { node_spans(timer.twin(), backwards); }).find("started at"), std::string::npos);
}

TEST_P(NodeTimerTest, ATwinOfATwinIsRefused) {
  const TimedTwin twin = timed_twin(fork_join(EdgePolicy::full), kernels());
  EXPECT_NE(message_of([&] { timed_twin(twin.plan, kernels()); }).find("runs a timed kernel already"),
            std::string::npos);
}

// ---- the arithmetic, on stamps that were made up ----

class NodeTimesTest : public SketchTest {};

TEST_F(NodeTimesTest, TheTimesOfAChainAddUpToItsLengthHoweverItsNodesOverlap) {
  GraphBuilder g(device(), "chain");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y"), z = buffer(g, "z"), w = buffer(g, "w");
  g.launch("first", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
  g.launch("second", waiting, {.left = y, .right = y, .gain = {}, .y = z, .scale = 1});
  g.launch("third", waiting, {.left = z, .right = z, .gain = {}, .y = w, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  TimedTwin twin{
      .plan = {}, .stamps = DeviceBuffer(device(), "none", 0), .nodes = {3, StampedNode{}}, .names = {}, .fields = {}};
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
  TimedTwin twin{
      .plan = {}, .stamps = DeviceBuffer(device(), "none", 0), .nodes = {3, StampedNode{}}, .names = {}, .fields = {}};
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
