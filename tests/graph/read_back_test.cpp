// read_back: the driver's graph equals the plan, and what is changed behind the plan's back is reported by node.
#include "graph/node_parameters.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class ReadBackTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 128;

  void add_all(GraphBuilder& g, bool in_body) {
    g.copy("load", x_, host_end(in_), 400);
    g.copy_rows("rows", y_, x_, {.bytes = 8, .rows = 4, .to_pitch = 64, .from_pitch = 32});
    g.fill("words", h_.subview(0, 20), 5u);
    const NodeId bytes = g.fill("bytes", View<uint8_t>{reinterpret_cast<uint8_t*>(h_.data) + 100, 7}, uint8_t{9});
    g.launch("blend", machine().blend_of(n), {.a = x_, .b = h_, .key = {}, .y = z_, .salt = 3},
             {.after = {bytes}, .attributes = {.cluster = {has_clusters() ? 2u : 1u, 1, 1}, .priority = -1}});
    g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 1});
    g.empty("end", {bytes});
    if (in_body) return;
    g.host("call", [] {}, {{"in", host_end(in_), Access::in}});
    g.record_event("note", noted_, {{"z", z_, Access::in}});
    g.wait_event("hold", noted_, {{"y", y_, Access::out}});
  }

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

  const Driver& driver() { return device().driver(); }
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
  static CUgraphNode handle_of(const BuiltPlan& built, std::string_view name) {
    return built.nodes[node_of(built, name).id];
  }

  // Applies `change` to a fresh graph, whose plan `plan` it gets, and expects a line with all `words`.
  void expect_reported(std::string_view plan, const std::function<CUresult(const BuiltPlan&)>& change,
                       std::initializer_list<std::string_view> words) {
    const ExplicitGraph exec(every_kind());
    ASSERT_EQ(change(built_of(exec, plan)), CUDA_SUCCESS);
    const auto lines = read_back(exec);
    ASSERT_FALSE(lines.empty()) << "not reported";
    expect_words(lines[0], words);
  }

  Words x_ = words("x", n), h_ = words("h", n), y_ = words("y", n), z_ = words("z", n), in_ = pinned("in", n);
  Event noted_{device(), "noted"};
};

constexpr const char* kPatchablePlans[] = {"outer", "inner", "outer/if.then"};

TEST_F(ReadBackTest, AGraphOfEveryKindEqualsItsPlan) {
  const ExplicitGraph exec(every_kind());
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  EXPECT_EQ(exec.built_plans().size(), 5u);
}

TEST_F(ReadBackTest, AnotherArgumentShapeOrFunctionIsReported) {
  const auto set = [&](const BuiltPlan& built, std::string_view name, const auto& change) {
    PlanNode node = node_of(built, name);
    change(node);
    void* argument = argument_address(node.arguments);
    const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(node, &argument);
    return driver().cuGraphKernelNodeSetParams(handle_of(built, name), &parameters);
  };
  for (const char* plan : kPatchablePlans) {
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
  for (const char* plan : kPatchablePlans) {
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
  for (const char* plan : kPatchablePlans) {
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
  expect("call", [](PlanNode& node) { node.host = std::make_shared<HostCall>(); }, {"'call'", "other data"});
  expect("note", [&](PlanNode& node) { node.event = &other; }, {"'note'", "another event"});
  expect("hold", [&](PlanNode& node) { node.event = &other; }, {"'hold'", "another event"});
  expect("end", [](PlanNode& node) { node.kind = NodeKind::memset; }, {"'end'", "type"});
}

}  // namespace
}  // namespace nodewright
