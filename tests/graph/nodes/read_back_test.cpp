// read_back: the driver's graph equals the plan, and what is changed behind the plan's back is reported by node.
#include "graph/nodes/node_parameters.h"
#include "tests/graph/nodes/every_kind.h"

namespace nodewright {
namespace {

class ReadBackTest : public EveryKindTest {
 protected:
  Plan every_kind() {
    GraphBuilder inner(device(), "inner");
    declare_all(inner);
    add_all(inner, false);
    GraphBuilder cloned(device(), "cloned");
    declare_all(cloned);
    add_all(cloned, false);
    GraphBuilder g(device(), "outer");
    declare_all(g);
    add_all(g, false);
    g.child("moved", std::move(inner).finish(EdgePolicy::programmatic));
    g.child("clone", std::move(cloned).finish(EdgePolicy::programmatic), ChildOwnership::cloned);
    const auto condition = g.condition("c", 1);
    g.launch("decide", machine().decide, {.value = x_, .condition = condition, .modulus = 2, .base = 0});
    g.if_else(
        "if", condition, [&](GraphBuilder& body) { add_all(body, true); },
        [&](GraphBuilder& body) { body.fill("other", x_, 1u); });
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  static const BuiltPlan& built_of(const ExplicitGraph& exec, std::string_view plan) {
    for (const auto& built : exec.built_plans())
      if (built->plan->name == plan) return *built;
    throw std::out_of_range("no such plan");
  }
  static const PlanNode& node_of(const BuiltPlan& built, std::string_view name) {
    for (const PlanNode& node : built.plan->nodes)
      if (node.name == name) return node;
    throw std::out_of_range("no such node");
  }
  std::vector<CUgraphNode> held_nodes(CUgraph graph) {
    std::vector<CUgraphNode> held(100);
    size_t count = held.size();
    EXPECT_EQ(driver().cuGraphGetNodes(graph, held.data(), &count), CUDA_SUCCESS);
    held.resize(count);
    return held;
  }
  // A clone's node of the same kind with the same function or target, in whatever order the driver lists them.
  CUgraphNode handle_of(const BuiltPlan& built, std::string_view name) {
    const PlanNode& node = node_of(built, name);
    if (!built.nodes.empty()) return built.nodes[node.id];
    for (const CUgraphNode held : held_nodes(built.graph)) {
      CUDA_KERNEL_NODE_PARAMS kernel{};
      CUDA_MEMSET_NODE_PARAMS fill{};
      CUgraphNodeType type{};
      EXPECT_EQ(driver().cuGraphNodeGetType(held, &type), CUDA_SUCCESS);
      if (type == CU_GRAPH_NODE_TYPE_KERNEL) driver().cuGraphKernelNodeGetParams(held, &kernel);
      if (type == CU_GRAPH_NODE_TYPE_MEMSET) driver().cuGraphMemsetNodeGetParams(held, &fill);
      if ((node.kind == NodeKind::kernel && kernel.func == node.kernel->function) ||
          (node.kind == NodeKind::memset && fill.dst == node.fill.to) ||
          (node.kind == NodeKind::empty && type == CU_GRAPH_NODE_TYPE_EMPTY))
        return held;
    }
    throw std::out_of_range("the clone has no such node");
  }

  // Applies `change` to a fresh graph, whose plan `plan` it gets, and expects a line with all `words`.
  void expect_reported(std::string_view plan, const std::function<CUresult(const BuiltPlan&)>& change,
                       std::initializer_list<std::string_view> words) {
    ExplicitGraph exec(every_kind());
    ASSERT_EQ(change(built_of(exec, plan)), CUDA_SUCCESS);
    const auto lines = read_back(exec);
    ASSERT_FALSE(lines.empty()) << "not reported";
    expect_words(lines[0], words);
  }
};

constexpr const char* kPlans[] = {"outer", "inner", "cloned", "outer/if.then"};

TEST_F(ReadBackTest, AGraphOfEveryKindEqualsItsPlan) {
  ExplicitGraph exec(every_kind());
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  EXPECT_EQ(exec.built_plans().size(), 5u);
}

TEST_F(ReadBackTest, AnotherArgumentShapeOrFunctionIsReported) {
  const auto set = [&](const BuiltPlan& built, std::string_view name, const auto& change) {
    PlanNode node = node_of(built, name);
    change(node);
    ParameterPointers pointers(node);
    const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(node, pointers.get());
    return driver().cuGraphKernelNodeSetParams(handle_of(built, name), &parameters);
  };
  for (const char* plan : kPlans) {
    const auto changed = [&](auto change) {
      return [&, change](const BuiltPlan& built) { return set(built, "add", change); };
    };
    expect_reported(plan,
                    changed([](PlanNode& node) { reinterpret_cast<Accumulate*>(node.arguments.data())->salt = 2; }),
                    {"'add'", "argument 'salt' differs"});
    expect_reported(plan,
                    changed([&](PlanNode& node) { reinterpret_cast<Accumulate*>(node.arguments.data())->x = h_; }),
                    {"'add'", "argument 'x' differs"});
    expect_reported(plan, changed([](PlanNode& node) { node.shape.grid[0] = 1; }), {"'add'", "grid x is 2", "and 1"});
    expect_reported(plan, changed([](PlanNode& node) { node.shape.block[0] = 32; }), {"'add'", "block x is 64"});
    expect_reported(plan, changed([](PlanNode& node) { node.shape.shared_bytes = 256; }), {"'add'", "shared bytes"});
  }
}

TEST_F(ReadBackTest, AnotherAttributeIsReported) {
  for (const char* plan : kPlans) {
    expect_reported(plan,
                    [&](const BuiltPlan& built) {
                      CUkernelNodeAttrValue value{};
                      value.priority = -2;
                      return driver().cuGraphKernelNodeSetAttribute(handle_of(built, "add"),
                                                                    CU_LAUNCH_ATTRIBUTE_PRIORITY, &value);
                    },
                    {"'add'", "priority is 0 in the plan and -2"});
    if (!has_clusters()) continue;
    expect_reported(plan,
                    [&](const BuiltPlan& built) {
                      CUkernelNodeAttrValue value{};
                      value.clusterDim.x = value.clusterDim.y = value.clusterDim.z = 1;
                      return driver().cuGraphKernelNodeSetAttribute(handle_of(built, "blend"),
                                                                    CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, &value);
                    },
                    {"'blend'", "cluster x is 2"});
  }
}

TEST_F(ReadBackTest, AMissingAnAdditionalAndAnotherEdgeAreReported) {
  for (const char* plan : kPlans) {
    const auto data_of = [&](const BuiltPlan& built, std::string_view from, std::string_view to) {
      for (const Edge& edge : built.plan->edges)
        if (edge.from == node_of(built, from).id && edge.to == node_of(built, to).id) return edge_data(edge.type);
      throw std::out_of_range("no such edge");
    };
    const auto remove = [&](const BuiltPlan& built) {
      const CUgraphNode from = handle_of(built, "blend"), to = handle_of(built, "add");
      const CUgraphEdgeData data = data_of(built, "blend", "add");
      return driver().cuGraphRemoveDependencies(built.graph, &from, &to, &data, 1);
    };
    const auto add = [&](const BuiltPlan& built, std::string_view from_name, std::string_view to_name) {
      const CUgraphNode from = handle_of(built, from_name), to = handle_of(built, to_name);
      const CUgraphEdgeData data{};
      return driver().cuGraphAddDependencies(built.graph, &from, &to, &data, 1);
    };
    expect_reported(plan, remove, {"edges in the plan"});
    expect_reported(plan, [&](const BuiltPlan& built) { return add(built, "words", "end"); }, {"edges in the plan"});
    const bool programmatic = device().properties().cc_major >= 9;
    if (programmatic)
      expect_reported(plan,
                      [&](const BuiltPlan& built) {
                        const CUresult removed = remove(built);
                        return removed == CUDA_SUCCESS ? add(built, "blend", "add") : removed;
                      },
                      {"edge 'blend' to 'add'", "type 1", "type 0"});
  }
}

TEST_F(ReadBackTest, ANodeOfTheDriversOwnIsReported) {
  for (const char* plan : {"outer", "inner", "cloned", "outer/if.else"})
    expect_reported(plan,
                    [&](const BuiltPlan& built) {
                      CUgraphNodeParams parameters{};
                      parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
                      CUgraphNode added = nullptr;
                      return driver().cuGraphAddNode(&added, built.graph, nullptr, nullptr, 0, &parameters);
                    },
                    {plan, "nodes in the plan"});
}

TEST_F(ReadBackTest, ANodeThatIsGoneIsReported) {
  for (const char* plan : kPlans) {
    ExplicitGraph exec(every_kind());
    const BuiltPlan& built = built_of(exec, plan);
    ASSERT_EQ(driver().cuGraphDestroyNode(handle_of(built, "end")), CUDA_SUCCESS);
    const auto lines = read_back(exec);
    ASSERT_FALSE(lines.empty());
    expect_words(lines[0], {plan, "nodes in the plan"});
    if (built.nodes.empty()) continue;  // a clone: which one is gone is not told
    ASSERT_GE(lines.size(), 2u);
    expect_words(lines[1], {"'end' is not in the driver's graph"});
  }
}

// The same graph, with a clone's nodes listed in another order: a fill is taken out and added again as the last one.
TEST_F(ReadBackTest, ACloneEqualsItsPlanInWhateverOrderTheDriverListsItsNodes) {
  ExplicitGraph exec(every_kind());
  const BuiltPlan& built = built_of(exec, "cloned");
  const CUgraphNode words = handle_of(built, "words");
  std::vector<CUgraphNode> from(100), to(100), before, after;
  std::vector<CUgraphEdgeData> data(100), data_before, data_after;
  size_t count = from.size();
  ASSERT_EQ(driver().cuGraphGetEdges(built.graph, from.data(), to.data(), data.data(), &count), CUDA_SUCCESS);
  for (size_t i = 0; i < count; ++i) {
    if (to[i] == words) before.push_back(from[i]), data_before.push_back(data[i]);
    if (from[i] == words) after.push_back(to[i]), data_after.push_back(data[i]);
  }
  ASSERT_FALSE(after.empty());
  KeptParameters kept;
  CUgraphNodeParams parameters =
      graph_node_parameters(node_of(built, "words"), device(), nullptr, AllocatedMemory(""), kept);
  ASSERT_EQ(driver().cuGraphDestroyNode(words), CUDA_SUCCESS);
  CUgraphNode added = nullptr;
  ASSERT_EQ(driver().cuGraphAddNode(&added, built.graph, before.data(), data_before.data(), before.size(), &parameters),
            CUDA_SUCCESS);
  const std::vector<CUgraphNode> sources(after.size(), added);
  ASSERT_EQ(driver().cuGraphAddDependencies(built.graph, sources.data(), after.data(), data_after.data(), after.size()),
            CUDA_SUCCESS);
  if (device().driver().is_cpu()) {
    ASSERT_EQ(held_nodes(built.graph).back(), added) << "not where it was";
  }
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});

  CUkernelNodeAttrValue value{};
  value.priority = -2;
  ASSERT_EQ(driver().cuGraphKernelNodeSetAttribute(handle_of(built, "add"), CU_LAUNCH_ATTRIBUTE_PRIORITY, &value),
            CUDA_SUCCESS);
  const auto lines = read_back(exec);
  ASSERT_EQ(lines.size(), 1u) << "and the difference is reported of that node alone";
  expect_words(lines[0], {"'add'", "priority is 0 in the plan and -2"});
}

TEST_F(ReadBackTest, ChildrenInsideAClonedChildAreReadToo) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    GraphBuilder inner(device(), "inner");
    declare_all(inner);
    add_all(inner, false);
    GraphBuilder middle(device(), "middle");
    declare_all(middle);
    middle.fill("first", y_, 1u);
    middle.child("inside", std::move(inner).finish(EdgePolicy::programmatic), ownership);
    middle.fill("last", y_, 2u);
    GraphBuilder g(device(), "outer");
    declare_all(g);
    g.child("clone", std::move(middle).finish(EdgePolicy::full), ChildOwnership::cloned);
    ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});

    CUgraph graph = nullptr;
    for (const CUgraphNode held : held_nodes(built_of(exec, "middle").graph)) {
      CUgraphNodeType type{};
      ASSERT_EQ(driver().cuGraphNodeGetType(held, &type), CUDA_SUCCESS);
      if (type != CU_GRAPH_NODE_TYPE_GRAPH) continue;
      ASSERT_EQ(driver().cuGraphChildGraphNodeGetGraph(held, &graph), CUDA_SUCCESS);
    }
    ASSERT_NE(graph, nullptr);
    BuiltPlan innermost;  // as the clone has it
    innermost.plan = built_of(exec, "inner").plan;
    innermost.graph = graph;
    PlanNode add = node_of(innermost, "add");
    reinterpret_cast<Accumulate*>(add.arguments.data())->salt = 2;
    ParameterPointers pointers(add);
    const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(add, pointers.get());
    ASSERT_EQ(driver().cuGraphKernelNodeSetParams(handle_of(innermost, "add"), &parameters), CUDA_SUCCESS);
    const auto lines = read_back(exec);
    ASSERT_EQ(lines.size(), 1u);
    expect_words(lines[0], {"'add'", "argument 'salt' differs"});
  }
}

// What was patched is in the executable graph alone.
TEST_F(ReadBackTest, APatchedChildIsComparedAsItWasBuilt) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    const auto part = [&](uint32_t salt) {
      GraphBuilder g(device(), "part");
      declare_all(g);
      g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = salt});
      return std::move(g).finish(EdgePolicy::full);
    };
    GraphBuilder g(device(), "outer");
    declare_all(g);
    const ChildNode child = g.child("child", part(1), ownership);
    ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
    exec.patch_child(child, part(2));
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  }
}

// Stands before the device's observer: notes the flags that graphs are instantiated with, and adds to those that the
// driver tells.
class InstantiationFlags final : public CallObserver {
 public:
  explicit InstantiationFlags(Driver& driver) : driver_(driver), next_(driver.observer()) { driver.observe(this); }
  ~InstantiationFlags() override { driver_.observe(next_); }
  InstantiationFlags(const InstantiationFlags&) = delete;
  InstantiationFlags& operator=(const InstantiationFlags&) = delete;

  std::optional<CUresult> before(const DriverCall& call) override {
    if (call.entry == DriverEntry::cuGraphInstantiateWithParams)
      passed.push_back(reinterpret_cast<const CUDA_GRAPH_INSTANTIATE_PARAMS*>(call.words[2])->flags);
    return next_->before(call);
  }
  CUresult after(const DriverCall& call, CUresult result) override {
    if (call.entry == DriverEntry::cuGraphExecGetFlags) *reinterpret_cast<cuuint64_t*>(call.words[1]) |= also_told;
    return next_->after(call, result);
  }

  std::vector<cuuint64_t> passed;
  cuuint64_t also_told = 0;

 private:
  Driver& driver_;
  CallObserver* next_;
};

// Without the flag a graph's kernels run with the priority of the stream. The driver does not tell it back.
TEST_F(ReadBackTest, PrioritiesCountInTheGraphsThatHaveThemAlone) {
  for (const int priority : {0, -1})
    for (const bool in_child : {false, true}) {
      GraphBuilder inner(device(), "inner"), outer(device(), "outer");
      GraphBuilder& g = in_child ? inner : outer;
      declare_all(inner);
      declare_all(outer);
      inner.fill("fill", y_, 1u);
      g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 1},
               {.attributes = {.priority = priority}});
      outer.child("child", std::move(inner).finish(EdgePolicy::full));
      InstantiationFlags flags(*machine().opened.driver);
      ExplicitGraph exec(std::move(outer).finish(EdgePolicy::full));
      CapturedGraph captured(exec.plan(), stream_);
      const cuuint64_t expected = priority == 0 ? 0 : CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
      EXPECT_EQ(flags.passed, (std::vector<cuuint64_t>{expected, expected})) << priority;
      EXPECT_EQ(read_back(exec), std::vector<std::string>{});
      if (priority == 0 || in_child) continue;
      auto altered = std::make_shared<Plan>(exec.plan());
      for (PlanNode& node : altered->nodes) node.attributes = {};
      exec.built_plans()[0]->plan = altered;
      const auto lines = read_back(exec);
      ASSERT_EQ(lines.size(), 1u);
      expect_words(lines[0], {"'add'", "priority is 0 in the plan and -1"});
    }
}

TEST_F(ReadBackTest, AnotherInstantiationFlagIsReportedExceptForPriorities) {
  ExplicitGraph exec(every_kind());
  InstantiationFlags flags(*machine().opened.driver);
  flags.also_told = CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY;
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  flags.also_told |= CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  const auto lines = read_back(exec);
  ASSERT_EQ(lines.size(), 1u);
  expect_words(lines[0], {"'outer'", "instantiation flags are 0 in the plan and 1 in the driver"});
}

// Planted the other way round: the plan is not what was built.
TEST_F(ReadBackTest, ACopyAFillAFunctionOrAnEventThatDiffersFromThePlanIsReported) {
  const Event other(device(), "other");
  const auto expect = [&](std::string_view name, auto change, std::initializer_list<std::string_view> words) {
    ExplicitGraph exec(every_kind());
    auto altered = std::make_shared<Plan>(exec.plan());
    for (PlanNode& node : altered->nodes)
      if (node.name == name) change(node);
    exec.built_plans()[0]->plan = altered;
    const auto lines = read_back(exec);
    ASSERT_FALSE(lines.empty()) << name;
    expect_words(lines[0], words);
  };
  expect("load", [](PlanNode& node) { node.copy.bytes = 404; }, {"'load'", "bytes of a row is 404", "and 400"});
  expect("load", [](PlanNode& node) { node.copy.to += 4; }, {"'load'", "destination"});
  expect("load", [](PlanNode& node) { node.copy.from += 4; }, {"'load'", "source"});
  expect("rows", [](PlanNode& node) { node.copy.rows = 3; }, {"'rows'", "rows is 3", "and 4"});
  expect("rows", [](PlanNode& node) { node.copy.to_pitch = 128; }, {"'rows'", "destination pitch"});
  expect("words", [](PlanNode& node) { node.fill.value = 6; }, {"'words'", "value is 6", "and 5"});
  expect("bytes", [](PlanNode& node) { node.fill.count = 8; }, {"'bytes'", "elements of a row is 8", "and 7"});
  expect("bytes", [](PlanNode& node) { node.fill.element_bytes = 2; }, {"'bytes'", "bytes of an element is 2"});
  expect("row_fill", [](PlanNode& node) { node.fill.rows = 3; }, {"'row_fill'", "rows is 3", "and 4"});
  expect("row_fill", [](PlanNode& node) { node.fill.pitch = 64; }, {"'row_fill'", "pitch is 64", "and 48"});
  expect("row_fill", [](PlanNode& node) { node.fill.count = 4; }, {"'row_fill'", "elements of a row is 4", "and 3"});
  expect("call", [](PlanNode& node) { node.host = std::make_shared<HostCall>(); }, {"'call'", "other data"});
  expect("note", [&](PlanNode& node) { node.event = other.get(); }, {"'note'", "another event"});
  expect("hold", [&](PlanNode& node) { node.event = other.get(); }, {"'hold'", "another event"});
  expect("end", [](PlanNode& node) { node.kind = NodeKind::memset; }, {"'end'", "type"});
}

}  // namespace
}  // namespace nodewright
