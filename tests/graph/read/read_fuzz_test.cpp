// Random plans of every kind of node, built and read: each reads as the plan that made it.
#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "graph/nodes/held_nodes.h"
#include "tests/graph/plan_fuzz_fixture.h"
#include "tests/graph/read/plan_as_read.h"

namespace nodewright {
namespace {

class PlanFuzzReadOnCpuDriver : public PlanFuzzTest {
 protected:
  // What is lost between a plan and its dump; empty when nothing is.
  static std::string dump_difference(Plan plan) {
    plan.device = nullptr;  // a dump has its name alone
    const std::string json = to_json(plan);
    const Plan again = plan_of({json, "dump"});
    if (to_text(again) != to_text(plan)) return "its dump says\n" + to_text(again);
    return to_json(again) == json ? "" : "its dump has another dump";
  }
};

TEST_F(PlanFuzzReadOnCpuDriver, ARandomGraphIsReadAsThePlanThatMadeIt) {
  size_t nodes = 0;
  for (unsigned i = 0; i < plans(); ++i) {
    const unsigned seed = first_seed() + i;
    RandomPlanMaker maker = maker_of(seed);
    const ExplicitGraph exec(maker.make());
    std::string problem;
    try {
      const Plan found = read_graph(device(), exec.graph(), {.name = exec.plan().name});
      nodes += found.nodes.size();
      problem = PlanAsRead(exec).difference(found);
      if (problem.empty() && i % 8 == 0) problem = dump_difference(found);
      for (const MissingOrder& missing : missing_orders(found)) problem += "\n" + describe(missing);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    ASSERT_EQ(problem, "") << "NODEWRIGHT_FUZZ_SEED=" << seed << " NODEWRIGHT_FUZZ_PLANS=1\n" << to_text(exec.plan());
  }
  RecordProperty("nodes", static_cast<int>(nodes));
  EXPECT_GE(nodes, plans() * 3);
}

// The planted fault: one edge more or one edge less than the plan has.
TEST_F(PlanFuzzReadOnCpuDriver, AnEdgeTakenFromARandomGraphIsMissed) {
  size_t cut = 0, unordered = 0;
  const unsigned most = std::min(plans(), 100u);
  for (unsigned i = 0; i < most; ++i) {
    RandomPlanMaker maker = maker_of(first_seed() + i);
    const ExplicitGraph exec(maker.make());
    const Driver& driver = device().driver();
    const std::vector<HeldEdge> edges = held_edges(driver, exec.graph(), "fuzz");
    if (edges.empty() || maker.has_scratch) continue;  // edges of a graph with memory stay
    const HeldEdge& gone = edges[i % edges.size()];
    ASSERT_EQ(driver.cuGraphRemoveDependencies(exec.graph(), &gone.from, &gone.to, &gone.data, 1), CUDA_SUCCESS);
    ++cut;
    const Plan found = read_graph(device(), exec.graph(), {.name = exec.plan().name});
    EXPECT_NE(PlanAsRead(exec).difference(found), "");
    unordered += !missing_orders(found).empty();
  }
  EXPECT_GT(cut, most / 3);
  EXPECT_GT(unordered, most / 20);  // most edges join kernels, and nothing is stated of those
}

}  // namespace
}  // namespace nodewright
