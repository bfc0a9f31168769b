// read_graph: a graph that was built elsewhere as a plan. What was built of a plan is read as that plan, and what plans
// have no word for is named.
#include "graph/read/read_graph.h"

#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "graph/read/kernel_names.h"
#include "tests/graph/read/graph_by_hand.h"
#include "tests/graph/read/plan_as_read.h"

namespace nodewright {
namespace {

TEST(KernelNames, AreDemangledAndShortened) {
  EXPECT_EQ(demangled("blend"), "blend");
  EXPECT_EQ(demangled("_ZN2at6native4fillILi4EfEEviT0_"), "void at::native::fill<4, float>(int, float)");
  EXPECT_EQ(short_name("blend"), "blend");
  EXPECT_EQ(short_name("void at::native::fill<4, float>(int, float)"), "fill");
  EXPECT_EQ(short_name("void at::native::(anonymous namespace)::fill<4, a::b<c>>(int, float)"), "fill");
  EXPECT_EQ(short_name("void cub::Agent<int>::run<(cub::Mode)2>(int*)"), "run");
  EXPECT_EQ(short_name(""), "kernel");
}

class ReadGraphTest : public GraphByHandTest {
 protected:
  void add_all(GraphBuilder& g, bool in_body) {
    EveryKindTest::add_all(g, in_body);
    if (!in_body) g.values("values", {write_to(x_, 7u), wait_until(x_, Until::any_bit, 3u)});
  }

  static Plan finish(GraphBuilder& g) { return std::move(g).finish(EdgePolicy::programmatic); }

  Plan every_kind() {
    GraphBuilder inner(device(), "inner"), cloned(device(), "cloned"), g(device(), "outer");
    for (GraphBuilder* builder : {&inner, &cloned, &g}) {
      declare_all(*builder);
      add_all(*builder, false);
    }
    g.child("moved", finish(inner));
    g.child("clone", finish(cloned), ChildOwnership::cloned);
    const auto condition = g.condition("c", 1), again = g.condition("again", 1), which = g.condition("which", 0);
    g.launch("decide", machine().decide, {.value = x_, .condition = condition, .modulus = 2, .base = 0});
    g.if_else(
        "if", condition, [&](GraphBuilder& body) { add_all(body, true); },
        [&](GraphBuilder& body) { body.fill("other", x_, 1u); });
    g.launch("choose", machine().decide, {.value = x_, .condition = which, .modulus = 2, .base = 0});
    g.switch_case("switch", which,
                  {[&](GraphBuilder& body) { body.fill("zero", x_, 0u); },
                   [&](GraphBuilder& body) { body.fill("one", x_, 1u); }});
    g.fill("rounds", rounds_, 0u);
    g.while_loop("while", again, [&](GraphBuilder& body) {
      body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 2});
    });
    return finish(g);
  }

  const PlanNode& node_named(const Plan& plan, std::string_view name) {
    for (const PlanNode& node : plan.nodes)
      if (node.name == name) return node;
    throw std::out_of_range(std::string(name) + " is not in\n" + to_text(plan));
  }

  // A copy of three planes of two rows of 8 bytes from x to y, whose pitches and heights are still to be set.
  CUgraphNodeParams three_planes() const {
    CUgraphNodeParams planes{};
    planes.type = CU_GRAPH_NODE_TYPE_MEMCPY;
    CUDA_MEMCPY3D& copy = planes.memcpy.copyParams;
    copy.srcMemoryType = copy.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    copy.srcDevice = x_.address();
    copy.dstDevice = y_.address();
    copy.WidthInBytes = 8;
    copy.Height = 2;
    copy.Depth = 3;
    copy.srcPitch = copy.dstPitch = 16;
    copy.srcHeight = copy.dstHeight = 4;  // two of these rows are copied
    return planes;
  }

  Words rounds_ = words("rounds", 1);
};

class ReadGraphOnCpuDriver : public ReadGraphTest {};

TEST_F(ReadGraphOnCpuDriver, AGraphOfEveryKindIsReadAsThePlanThatMadeIt) {
  const ExplicitGraph exec(every_kind());
  const Plan plan = read_graph(device(), exec.graph(), {.name = "outer"});
  EXPECT_EQ(PlanAsRead(exec).difference(plan), "");
  EXPECT_EQ(plan.nodes[0].read->handle, exec.node(0));
  EXPECT_EQ(plan.nodes[0].name, "memcpy.0");
  EXPECT_EQ(node_named(plan, "blend.0").kernel_name(), "blend");
  EXPECT_EQ(node_named(plan, "conditional.2").conditional, ConditionalKind::while_);
  EXPECT_EQ(node_named(plan, "conditional.0").bodies[1]->name, "outer/conditional.0.else");
}

TEST_F(ReadGraphOnCpuDriver, MemoryOfTheGraphIsReadWithItsBytes) {
  GraphBuilder g(device(), "memory");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
  g.copy("in", scratch.view<uint32_t>(), x_, x_.bytes());
  g.launch("add", machine().accumulate_of(n), {.y = y_, .x = scratch.view<uint32_t>(), .salt = 1});
  g.free(scratch);
  const ExplicitGraph exec(finish(g));
  const Plan plan = read_graph(device(), exec.graph());
  EXPECT_EQ(PlanAsRead(exec).difference(plan), "");
  EXPECT_EQ(node_named(plan, "allocate.0").uses.at(0).bytes, n * sizeof(uint32_t));
  EXPECT_EQ(node_named(plan, "free.0").uses.at(0).buffer, node_named(plan, "allocate.0").uses.at(0).buffer);
}

// The planted faults: one thing of the graph is another than the plan says.
TEST_F(ReadGraphOnCpuDriver, WhatWasChangedElsewhereIsRead) {
  const auto difference_after = [&](const auto& change) {
    const ExplicitGraph exec(every_kind());
    EXPECT_EQ(change(exec), CUDA_SUCCESS);
    return PlanAsRead(exec).difference(read_graph(device(), exec.graph(), {.name = "outer"}));
  };
  const auto set_kernel = [&](const ExplicitGraph& exec, const auto& change) {
    const CUgraphNode add = exec.node(6);
    CUDA_KERNEL_NODE_PARAMS held{};
    EXPECT_EQ(driver().cuGraphKernelNodeGetParams(add, &held), CUDA_SUCCESS);
    change(held);
    return driver().cuGraphKernelNodeSetParams(add, &held);
  };
  EXPECT_NE(difference_after([&](const ExplicitGraph& exec) {
              return set_kernel(exec, [](CUDA_KERNEL_NODE_PARAMS& held) { held.gridDimX = 1; });
            }).find("grid"),
            std::string::npos);
  const Accumulate other{.y = z_, .x = y_, .salt = 2};
  void* pointers[] = {const_cast<Accumulate*>(&other)};
  EXPECT_NE(difference_after([&](const ExplicitGraph& exec) {
              return set_kernel(exec, [&](CUDA_KERNEL_NODE_PARAMS& held) { held.kernelParams = pointers; });
            }).find("argument 'salt'"),
            std::string::npos);
  EXPECT_NE(difference_after([&](const ExplicitGraph& exec) {
              const CUgraphNode from = exec.node(0), to = exec.node(2);
              return driver().cuGraphAddDependencies(exec.graph(), &from, &to, nullptr, 1);
            }).find("load -> words"),
            std::string::npos);
}

TEST_F(ReadGraphOnCpuDriver, AnEdgeOfAnotherPortIsNamedAndNoOrderOfMemory) {
  const GraphHandle graph = new_graph();
  const Accumulate args{.y = y_, .x = x_, .salt = 2};
  void* pointers[] = {const_cast<Accumulate*>(&args)};
  const CUgraphNode first = add(graph, accumulate_params(pointers));
  CUgraphEdgeData launch_order{};
  launch_order.type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC;
  launch_order.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  add(graph, accumulate_params(pointers), {first}, {launch_order});
  const Plan plan = read_graph(device(), graph.get());
  ASSERT_EQ(plan.edges.size(), 1u);
  EXPECT_EQ(plan.edges[0].type, EdgeType::other);
  EXPECT_EQ(plan.edges[0].from_port, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
  EXPECT_NE(to_text(plan).find("after accumulate.0~[type 1, port 2 to 0] (declared)"), std::string::npos)
      << to_text(plan);
  EXPECT_NE(to_json(plan).find("\"from_port\": 2"), std::string::npos);
}

TEST_F(ReadGraphOnCpuDriver, WhatPlansHaveNoWordForIsNamed) {
  const GraphHandle graph = new_graph();
  CUgraphNodeParams planes = three_planes();
  add(graph, planes);
  CUexternalSemaphore semaphores[2] = {};
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC from{};
  from.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  for (CUexternalSemaphore& semaphore : semaphores)
    ASSERT_EQ(driver().cuImportExternalSemaphore(&semaphore, &from), CUDA_SUCCESS);
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS values[2] = {};
  values[0].params.fence.value = 3;
  values[1].params.fence.value = 4;
  CUgraphNodeParams signal{};
  signal.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  signal.extSemSignal = {semaphores, values, 2};
  add(graph, signal);
  signal.extSemSignal.numExtSems = 1;
  add(graph, signal);
  const Plan plan = read_graph(device(), graph.get());
  ASSERT_EQ(plan.nodes.size(), 3u);
  EXPECT_EQ(plan.nodes[0].kind, NodeKind::memcpy);
  EXPECT_EQ(plan.nodes[0].name, "memcpy.0");
  EXPECT_EQ(plan.nodes[0].copy, (CopyParameters{.to = y_.address(),
                                                .from = x_.address(),
                                                .bytes = 8,
                                                .rows = 2,
                                                .to_pitch = 16,
                                                .from_pitch = 16,
                                                .slices = 3,
                                                .to_height = 4,
                                                .from_height = 4}));
  EXPECT_EQ(plan.nodes[1].kind, NodeKind::other);
  EXPECT_EQ(plan.nodes[1].read->what, "signals 2 external semaphores: 3, 4");
  EXPECT_EQ(plan.nodes[2].kind, NodeKind::semaphore_signal);
  EXPECT_EQ(plan.nodes[2].semaphore, (SemaphoreParameters{semaphores[0], 3}));
  EXPECT_NE(to_text(plan).find("other: signals 2 external semaphores: 3, 4 |"), std::string::npos) << to_text(plan);
  EXPECT_NE(to_text(plan).find("memcpy 3 slices of 2 rows of 8 B on device"), std::string::npos) << to_text(plan);
  for (const CUexternalSemaphore semaphore : semaphores) driver().cuDestroyExternalSemaphore(semaphore);
}

// Every address in an argument, also inside a struct; the kernel is ordered by none of them.
TEST_F(ReadGraphTest, AnAddressInAnArgumentIsAPossibleUse) {
  const GraphHandle graph = new_graph();
  const Accumulate args{.y = y_.subview(4, 8), .x = x_, .salt = 2};
  void* pointers[] = {const_cast<Accumulate*>(&args)};
  add(graph, accumulate_params(pointers));
  add(graph, accumulate_params(pointers));
  const Plan plan = read_graph(device(), graph.get());
  const PlanNode& node = node_named(plan, "accumulate.0");
  EXPECT_TRUE(node.uses.empty());
  ASSERT_EQ(node.read->possible.size(), 2u);
  EXPECT_EQ(node.read->pointers.size(), 2u);
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("buffer y 512 B possible: device memory live-in live-out\n"), std::string::npos) << text;
  EXPECT_NE(text.find("=y[16,512) "), std::string::npos) << text;
  EXPECT_NE(text.find("=x[0,512) "), std::string::npos) << text;
  EXPECT_NE(text.find(" ?0"), std::string::npos) << text;
  EXPECT_TRUE(missing_orders(plan).empty());
  const std::string json = to_json(plan);
  EXPECT_NE(json.find("\"possible\": ["), std::string::npos) << json;
  EXPECT_NE(json.find("................"), std::string::npos) << json;
  EXPECT_EQ(json, to_json(read_graph(device(), graph.get())));
}

TEST_F(ReadGraphTest, CopiesAndFillsUseTheMemoryAtTheirAddresses) {
  const GraphHandle graph = new_graph();
  CUgraphNodeParams planes = three_planes();
  const CUgraphNode first = add(graph, planes);
  CUgraphNodeParams fill{};
  fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
  fill.memset.dst = y_.address() + 8;
  fill.memset.elementSize = 4;
  fill.memset.width = 2;
  fill.memset.height = 2;
  fill.memset.pitch = 64;
  add(graph, fill, {first});
  const Plan plan = read_graph(device(), graph.get());
  const PlanNode& copied = node_named(plan, "memcpy.0");
  ASSERT_EQ(copied.uses.size(), 12u);
  EXPECT_EQ(copied.uses[0].access, Access::out);
  EXPECT_EQ(copied.uses[3].offset, 80u);  // row 1 of slice 1
  EXPECT_EQ(copied.uses[6].access, Access::in);
  EXPECT_EQ(copied.traffic.bytes_read, 48u);
  const PlanNode& filled = node_named(plan, "memset.0");
  ASSERT_EQ(filled.uses.size(), 2u);
  EXPECT_EQ(filled.uses[1].offset, 72u);
  EXPECT_NE(to_text(plan).find(">to=y[72,80) | after memcpy.0 (declared)"), std::string::npos) << to_text(plan);
  EXPECT_TRUE(missing_orders(plan).empty());
}

// Planes whose rows lie at one distance are rows.
TEST_F(ReadGraphTest, ACopyOfEvenPlanesIsReadAsRows) {
  const GraphHandle graph = new_graph();
  CUgraphNodeParams planes = three_planes();
  CUDA_MEMCPY3D& copy = planes.memcpy.copyParams;
  copy.srcXInBytes = 4;
  copy.srcPitch = 16;
  copy.dstPitch = 32;
  copy.srcHeight = copy.dstHeight = 2;
  add(graph, planes);
  const Plan plan = read_graph(device(), graph.get());
  EXPECT_EQ(plan.nodes.at(0).kind, NodeKind::memcpy);
  EXPECT_EQ(
      plan.nodes[0].copy,
      (CopyParameters{
          .to = y_.address(), .from = x_.address() + 4, .bytes = 8, .rows = 6, .to_pitch = 32, .from_pitch = 16}));
}

// Five layers of a fill and two kernels, each on memory of its own, and a copy.
TEST_F(ReadGraphTest, NodesThatRepeatAreLayersAndFold) {
  const GraphHandle graph = new_graph();
  CUgraphNodeParams fill{};
  fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
  fill.memset.elementSize = 4;
  fill.memset.width = 2;
  fill.memset.height = 1;
  CUgraphNode last = add(graph, three_planes());
  for (uint64_t layer = 0; layer < 5; ++layer) {
    fill.memset.dst = h_.address() + 8 * layer;
    last = add(graph, fill, {last});
    last = add_accumulate(graph, y_.subview(4 * layer, 4), x_, {last});
    last = add_accumulate(graph, z_, y_.subview(4 * layer, 4), {last});
  }
  const Plan plan = read_graph(device(), graph.get());
  EXPECT_EQ(plan.nodes[0].name, "memcpy.0");
  EXPECT_EQ(plan.nodes[1].name, "block0.memset.0");
  EXPECT_EQ(plan.nodes[15].name, "block4.accumulate.1");
  EXPECT_EQ(plan.nodes[15].layer(), "block4");
  const std::string text = to_text(plan, Fold::layers);
  EXPECT_NE(text.find("4 × same block: block1 .. block4 | nodes 4 to 15 | block1.memset.0 after block0.accumulate.1"),
            std::string::npos)
      << text;
  EXPECT_NE(to_json(plan).find("\"times\": 5"), std::string::npos);
  EXPECT_NE(to_dot(plan).find("label=\"block4\""), std::string::npos);
  EXPECT_NE(to_html(plan).find("block4.accumulate.1"), std::string::npos);

  // Another scalar in one of the layers.
  const Accumulate other{.y = y_.subview(8, 4), .x = x_, .salt = 3};
  void* pointers[] = {const_cast<Accumulate*>(&other)};
  CUDA_KERNEL_NODE_PARAMS held{};
  ASSERT_EQ(driver().cuGraphKernelNodeGetParams(plan.nodes[8].read->handle, &held), CUDA_SUCCESS);
  held.kernelParams = pointers;
  ASSERT_EQ(driver().cuGraphKernelNodeSetParams(plan.nodes[8].read->handle, &held), CUDA_SUCCESS);
  const Plan changed = read_graph(device(), graph.get());
  const std::string changed_text = to_text(changed, Fold::layers);
  EXPECT_EQ(changed_text.find("4 × same block"), std::string::npos) << changed_text;
  EXPECT_NE(changed_text.find("node 8 block2.accumulate.0"), std::string::npos) << changed_text;
  const PlanDiff diff = diff_plans(plan, changed);
  ASSERT_EQ(diff.nodes.size(), 1u) << to_text(diff);
  EXPECT_EQ(diff.nodes[0].name, "block2.accumulate.0");
  EXPECT_NE(diff.nodes[0].line.find("0 bytes "), std::string::npos) << diff.nodes[0].line;
}

TEST_F(ReadGraphTest, AGraphIsTimedByBrackets) {
  const GraphHandle inside = new_graph(), graph = new_graph();
  const CUgraphNode inner = add_accumulate(inside, z_, y_);
  add_accumulate(inside, h_, z_, {inner});
  CUgraphNodeParams child{};
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.graph.graph = inside.get();
  const CUgraphNode first = add_accumulate(graph, y_, x_);
  add_accumulate(graph, x_, h_, {add(graph, child, {first})});
  const TimedGraph timed = time_graph(device(), graph.get(), *machine().kernels, stream_, {.name = "hand"},
                                      {.samples = 3, .launches_per_sample = 2});
  check_timings(timed.timings, timed.plan);
  EXPECT_EQ(timed.plan.name, "hand");
  ASSERT_EQ(timed.timings.nodes.size(), 3u);
  for (const NodeTiming& node : timed.timings.nodes) EXPECT_TRUE(node.bracketed);
  ASSERT_EQ(timed.timings.nodes[1].bodies.size(), 1u);
  EXPECT_EQ(timed.timings.nodes[1].bodies[0].size(), 2u);
  EXPECT_GT(timed.timings.bracket_us, 0);
  EXPECT_EQ(timed.plan.nodes[1].bodies[0]->nodes[0].read->handle, nullptr);
  EXPECT_EQ(critical_path(timed.plan, timed.timings).nodes, (std::vector<uint32_t>{0, 1, 2}));
  EXPECT_NE(to_json(timed.plan, &timed.timings).find("\"time_us\""), std::string::npos);
  // The graph itself is as it was.
  EXPECT_EQ(read_graph(device(), graph.get()).nodes.size(), 3u);
}

TEST_F(ReadGraphTest, AGraphThatTheDriverDoesNotCopyIsNotTimed) {
  GraphBuilder g(device(), "memory");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
  g.fill("fill", scratch.view<uint32_t>(), 1u);
  g.free(scratch);
  const ExplicitGraph exec(finish(g));
  expect_error([&] { time_graph(device(), exec.graph(), *machine().kernels, stream_, {.name = "memory"}); },
               {"cannot time graph 'memory'", "allocates memory"});
}

TEST_F(ReadGraphTest, APlanThatWasReadDoesNotRun) {
  GraphBuilder g(device(), "one");
  declare_all(g);
  g.fill("fill", x_, 1u);
  const ExplicitGraph exec(finish(g));
  const Plan plan = read_graph(device(), exec.graph());
  expect_error([&] { ExplicitGraph again(plan); },
               {"cannot use plan 'graph'", "read from a graph that was built elsewhere", "GraphBuilder::graph"});
  GraphBuilder outer(device(), "outer");
  expect_error([&] { outer.child("inner", plan); }, {"read from a graph that was built elsewhere"});
}

}  // namespace
}  // namespace nodewright
