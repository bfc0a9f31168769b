// The plan as stream capture makes it: the same nodes after each other, however they forked.
#include "graph/run/captured_run.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class CapturedPlanTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;

  // x = in; y = blend(x, x) beside z = blend(x, x); then an empty node; nothing orders y and z.
  Plan fork() {
    GraphBuilder g(device(), "fork");
    declare_all(g);
    g.copy("load", x_, host_end(in_), x_.bytes());
    g.launch("left", machine().blend_of(n), {.a = x_, .b = x_, .y = y_, .salt = 1});
    const NodeId right = g.launch("right", machine().blend_of(n), {.a = x_, .b = x_, .y = z_, .salt = 2});
    g.empty("end", {.after = {right}});
    g.launch("last", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 2});
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  static std::string words_of(const Plan& plan) {
    std::string words;
    for (const Edge& edge : plan.edges)
      words += (words.empty() ? "" : " ") + plan.nodes[edge.from].name +
               (edge.type == EdgeType::programmatic ? "~>" : ">") + plan.nodes[edge.to].name;
    return words;
  }

  Words in_ = pinned("in", n), x_ = words("x", n), y_ = words("y", n), z_ = words("z", n);
};

TEST_F(CapturedPlanTest, HasTheEdgesOfTheStreamAndNoEmptyNodes) {
  const Plan plan = fork();
  const Plan captured = plan_as_captured(plan, Stream(device(), "capture"));
  ASSERT_EQ(captured.nodes.size(), 4u);
  EXPECT_EQ(captured.nodes[3].name, "last");
  EXPECT_EQ(captured.nodes[3].id, 3u);
  const bool programmatic = device().properties().cc_major >= 9;
  EXPECT_EQ(words_of(captured), programmatic ? "load>left left>right right~>last" : "load>left left>right right>last");
  EXPECT_EQ(describe(captured, captured.edges[0].reasons.at(0)), "serial");
  EXPECT_NO_THROW(check_plan(captured));
}

TEST_F(CapturedPlanTest, APlanWhoseNodesCannotBeToldThereIsRefused) {
  GraphBuilder inner(device(), "part"), g(device(), "outer");
  declare_all(inner);
  declare_all(g);
  inner.fill("fill", x_, 1u);
  g.child("part", std::move(inner).finish(EdgePolicy::full));
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_error([&] { plan_as_captured(plan, Stream(device(), "capture")); },
               {"'outer'", "node 'part' is a child", "several nodes"});
}

TEST_F(CapturedPlanTest, AnEmptyPlanStaysEmpty) {
  GraphBuilder g(device(), "nothing");
  EXPECT_TRUE(plan_as_captured(std::move(g).finish(EdgePolicy::full), Stream(device(), "capture")).nodes.empty());
}

}  // namespace
}  // namespace nodewright
