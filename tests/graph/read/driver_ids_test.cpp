// The driver's numbers of graphs and nodes.
#include "graph/read/driver_ids.h"

#include <set>

#include "graph/graph_exec.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class DriverIdsTest : public BlendTest {
 protected:
  Plan plan(const std::string& name) {
    GraphBuilder g(device(), name);
    declare_all(g);
    g.fill("fill", x_, 1u);
    g.fill("again", x_, 2u);
    return std::move(g).finish();
  }
  Words x_ = words("x", 8);
};
class DriverIdsOnCpuDriver : public DriverIdsTest {};

TEST_F(DriverIdsOnCpuDriver, TellEveryNodeAndGraphApart) {
  const ExplicitGraph one(plan("one")), two(plan("two"));
  std::set<uint64_t> tools;
  for (const ExplicitGraph* graph : {&one, &two})
    for (uint32_t id = 0; id < 2; ++id) {
      const auto ids = driver_ids(device(), graph->graph(), graph->node(id));
      ASSERT_TRUE(ids);
      EXPECT_EQ(ids->node, id);
      EXPECT_EQ(driver_ids(device(), graph->graph(), graph->node(id)), ids);
      tools.insert(ids->tools);
    }
  EXPECT_EQ(tools.size(), 4u);
  EXPECT_NE(driver_ids(device(), one.graph(), one.node(0))->graph,
            driver_ids(device(), two.graph(), two.node(0))->graph);
  EXPECT_NE(driver_id(device(), one.exec()), driver_id(device(), two.exec()));
  expect_error([&] { driver_ids(device(), one.graph(), nullptr); }, {"cuGraphNodeGetLocalId", "no such node"});
  expect_error([&] { driver_ids(device(), one.graph(), two.node(1)); },
               {"node 1 of another graph", "is not in graph", "which has 2 nodes"});
  expect_error([&] { driver_id(device(), nullptr); }, {"cuGraphExecGetId", "no such executable graph"});
}

// Older drivers have none of them.
TEST_F(DriverIdsTest, AreThereWhereTheDriverHasTheCalls) {
  const ExplicitGraph graph(plan("plan"));
  const Driver& driver = device().driver();
  EXPECT_EQ(driver_ids(device(), graph.graph(), graph.node(0)).has_value(), static_cast<bool>(driver.cuGraphGetId));
  EXPECT_EQ(driver_id(device(), graph.exec()).has_value(), static_cast<bool>(driver.cuGraphExecGetId));
}

}  // namespace
}  // namespace nodewright
