// Random plans of every kind of node, each compared with its nodes run one after the other on a model: in random orders
// that its edges allow, and in its runs on the device, where the CPU driver takes ready nodes in a seeded order.
#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "tests/graph/edges/topological_order.h"
#include "tests/graph/plan_fuzz_fixture.h"

namespace nodewright {
namespace {

// How many edges the plan and the plans inside it have.
size_t edges_in(const Plan& plan) {
  size_t count = plan.edges.size();
  for (const PlanNode& node : plan.nodes)
    for (const auto& body : node.bodies) count += edges_in(*body);
  return count;
}

// Removes the `index`-th of those edges; returns it.
Edge remove_edge(Plan& plan, size_t index) {
  if (index < plan.edges.size()) {
    Edge removed = std::move(plan.edges[index]);
    plan.edges.erase(plan.edges.begin() + static_cast<std::ptrdiff_t>(index));
    return removed;
  }
  index -= plan.edges.size();
  for (PlanNode& node : plan.nodes)
    for (auto& body : node.bodies) {
      if (const size_t inside = edges_in(*body); index >= inside) {
        index -= inside;
        continue;
      }
      Plan copy = *body;
      Edge removed = remove_edge(copy, index);
      body = std::make_shared<const Plan>(std::move(copy));
      return removed;
    }
  return {};
}

TEST_F(PlanFuzzTest, EveryRunOfARandomPlanEqualsItsNodesOneAfterTheOther) {
  size_t nodes = 0, conditional_plans = 0, foreign_nodes = 0, library_nodes = 0, value_nodes = 0, scratch_plans = 0,
         box_nodes = 0;
  for (unsigned i = 0; i < plans(); ++i) {
    const unsigned seed = first_seed() + i;
    RandomPlanMaker maker = maker_of(seed);
    const Plan plan = maker.make();
    nodes += plan.nodes.size();
    conditional_plans += maker.has_conditionals;
    foreign_nodes += maker.foreign_nodes;
    library_nodes += maker.library_nodes;
    value_nodes += maker.value_nodes;
    box_nodes += maker.box_nodes;
    scratch_plans += maker.has_scratch;
    std::string problem;
    try {
      std::mt19937 random(seed);
      for (int order = 0; order < 3 && problem.empty(); ++order)
        problem = order_difference(plan, reordered(plan, random), maker);
      if (problem.empty()) problem = run_difference(plan, maker, RunMode::explicit_, 2);
      if (problem.empty() && i % 4 == 0) problem = run_difference(plan, maker, RunMode::eager, 1);
      if (problem.empty() && i % 4 == 1 && !maker.has_conditionals)
        problem = run_difference(plan, maker, RunMode::captured, 1);
    } catch (const std::exception& error) {
      problem = error.what();
    }
    ASSERT_EQ(problem, "") << "NODEWRIGHT_FUZZ_SEED=" << seed << " NODEWRIGHT_FUZZ_PLANS=1; with the same schedule: "
                           << "NODEWRIGHT_FUZZ_SEED=" << first_seed() << " NODEWRIGHT_FUZZ_PLANS=" << i + 1 << "\n"
                           << to_text(plan);
  }
  RecordProperty("nodes", static_cast<int>(nodes));
  EXPECT_GE(conditional_plans, plans() / 10) << "the generator has lost its conditional nodes";
  if (!mixed()) return;
  EXPECT_GE(foreign_nodes, plans() / 4) << "the generator has lost its foreign kernels";
  EXPECT_GE(library_nodes, plans() / 8) << "the generator has lost its library nodes";
  EXPECT_GE(value_nodes, plans() / 16) << "the generator has lost its value nodes";
  EXPECT_GE(box_nodes, plans() / 100) << "the generator has lost its boxes";
  EXPECT_GE(scratch_plans, plans() / 5) << "the generator has lost its memory";
}

// The planted bug: one edge of each plan is gone.
TEST_F(PlanFuzzTest, AnEdgeTakenFromARandomPlanIsReportedAndShowsInSomeOrder) {
  size_t cut_plans = 0, shown = 0;
  for (unsigned i = 0; i < plans(); ++i) {
    const unsigned seed = first_seed() + i;
    RandomPlanMaker maker = maker_of(seed);
    const Plan plan = maker.make();
    const size_t edges = edges_in(plan);
    if (edges == 0) continue;
    std::mt19937 random(seed);
    Plan cut = plan;
    const Edge removed = remove_edge(cut, random() % edges);
    if (std::all_of(removed.reasons.begin(), removed.reasons.end(),
                    [](const Reason& r) { return r.hazard == Hazard::declared || r.hazard == Hazard::serial; }))
      continue;
    ++cut_plans;
    ASSERT_FALSE(missing_orders(cut).empty()) << "seed " << seed << "\n" << to_text(plan);
    for (int order = 0; order < 20; ++order)
      if (!order_difference(plan, reordered(cut, random), maker).empty()) {
        ++shown;
        break;
      }
  }
  RecordProperty("cut_plans", static_cast<int>(cut_plans));
  RecordProperty("shown_by_an_order", static_cast<int>(shown));
  EXPECT_GT(shown, cut_plans / 4) << "of " << cut_plans;
}

class PlanFuzzOnCpuDriver : public PlanFuzzTest {};

// The same bug, seen by the driver's seeded order alone.
TEST_F(PlanFuzzOnCpuDriver, AnEdgeTakenFromARandomPlanShowsInSomeSchedule) {
  size_t cut_plans = 0, shown = 0;
  const unsigned most = std::min(plans(), 100u);
  for (unsigned i = 0; i < most; ++i) {
    const unsigned seed = first_seed() + i;
    RandomPlanMaker maker = maker_of(seed);
    const Plan plan = maker.make();
    const size_t edges = edges_in(plan);
    if (edges == 0) continue;
    std::mt19937 random(seed);
    Plan cut = plan;
    remove_edge(cut, random() % edges);
    ++cut_plans;
    try {
      shown += !run_difference(cut, maker, RunMode::explicit_, 4).empty();
    } catch (const Error&) {  // memory of the plan that is used before or after its time
      machine().opened.driver->clear_cpu_error();
      ++shown;
    }
  }
  RecordProperty("cut_plans", static_cast<int>(cut_plans));
  RecordProperty("shown_by_a_schedule", static_cast<int>(shown));
  EXPECT_GT(shown, cut_plans / 8) << "of " << cut_plans;
}

}  // namespace
}  // namespace nodewright
