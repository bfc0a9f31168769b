// What graphs hold, for how long, and what becomes of it: memory over many builds, destruction in flight, buffers that
// are gone, and budgets.
#include "graph/exec_budget.h"
#include "graph/hazard_check.h"
#include "graph/run/graph_reserve.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class GraphLifetimeTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;

  Plan small(const std::string& name, EdgePolicy policy = EdgePolicy::programmatic) {
    GraphBuilder g(device(), name);
    declare_all(g);
    g.launch("blend", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 3});
    g.launch("add", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 1});
    return std::move(g).finish(policy);
  }

  // With a child and a conditional node.
  Plan nested() {
    GraphBuilder g(device(), "nested");
    declare_all(g);
    g.child("moved", small("moved"));
    g.child("cloned", small("cloned"), ChildOwnership::cloned);
    g.if_else("if", g.condition("c", 1), [&](GraphBuilder& body) { body.fill("fill", y_, 1u); });
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n);
};

TEST_F(GraphLifetimeTest, AHundredBuildsLaunchesAndDestructionsLeaveMemoryAsItWas) {
  const Plan plan = nested();
  const auto cycle = [&] {
    ExplicitGraph exec(plan);
    exec.upload(stream_);
    exec.launch(stream_);
    stream_.synchronize();
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  };
  for (int warm_up = 0; warm_up < 10; ++warm_up) cycle();
  const size_t handles = interposer().live().size();
  const uint64_t free_bytes = device().free_bytes();
  for (int i = 0; i < 100; ++i) cycle();
  EXPECT_EQ(interposer().live().size(), handles) << interposer().describe_live();
  constexpr uint64_t kPiece = 2 << 20;  // the driver takes memory in pieces of 2 MiB
  EXPECT_LE(free_bytes, device().free_bytes() + kPiece);
}

TEST_F(GraphLifetimeTest, AReserveAddsThePlansKernelsSoManyTimesAndLeavesNothing) {
  const Plan plan = nested(), kernels = small("kernels");
  const size_t handles = interposer().live().size();
  uint64_t calls = interposer().calls();
  reserve_graphs(kernels, 50);
  EXPECT_EQ(interposer().calls() - calls, 1 + 50 * 2 + 1 + 2u) << "create, add, instantiate, destroy both";
  calls = interposer().calls();
  reserve_graphs(plan, 50);
  EXPECT_EQ(interposer().calls() - calls, 2u) << "no kernel stands in this plan itself: create, destroy";
  reserve_graphs(kernels, 0);
  EXPECT_EQ(interposer().live().size(), handles) << interposer().describe_live();
}

TEST_F(GraphLifetimeTest, AGraphDestroyedInFlightFinishesItsLaunches) {
  for (const RunMode mode : {RunMode::captured, RunMode::explicit_}) {
    const Plan plan = small("flight");
    reset();
    HostModel reference = model();
    {
      PlanRun run(plan, mode, stream_);
      for (int launch = 0; launch < 20; ++launch) {
        run.launch();
        reference.run(plan);
      }
    }
    EXPECT_EQ(difference(reference), "") << to_string(mode);
  }
}

TEST_F(GraphLifetimeTest, ABudgetRefusesWhatDoesNotFitAndGetsBackWhatIsDestroyed) {
  const Plan plan = nested();
  const uint64_t bytes = estimate_exec(plan).bytes;
  EXPECT_GT(bytes, estimate_exec(small("small")).bytes) << "nodes inside count";
  GraphBudget budget(2 * bytes + 1);
  auto first = std::make_unique<ExplicitGraph>(plan, &budget);
  ExplicitGraph second(plan, &budget);
  EXPECT_EQ(budget.used_bytes(), 2 * bytes);
  const uint64_t graphs = interposer().live_count(HandleKind::graph);
  expect_words(error_of([&] { ExplicitGraph third(plan, &budget); }), {"'nested'", "KiB", "limit"});
  EXPECT_EQ(interposer().live_count(HandleKind::graph), graphs);
  EXPECT_EQ(budget.used_bytes(), 2 * bytes);
  replace(first, small("small"), &budget);
  EXPECT_EQ(budget.used_bytes(), bytes + estimate_exec(small("small")).bytes);
  first.reset();
  EXPECT_EQ(budget.used_bytes(), bytes);
}

TEST_F(GraphLifetimeTest, AnEstimateCoversWhatManyGraphsTake) {
  const Plan plan = nested();
  std::vector<std::unique_ptr<ExplicitGraph>> execs;
  const auto build = [&] {
    execs.push_back(std::make_unique<ExplicitGraph>(plan));
    execs.back()->upload(stream_);
  };
  build();
  const uint64_t before = device().free_bytes();
  for (int i = 0; i < 50; ++i) build();
  const uint64_t after = device().free_bytes();
  EXPECT_LE(before - std::min(before, after), 50 * estimate_exec(plan).bytes);
}

TEST_F(GraphLifetimeTest, TwoGraphsOnOneWorkspaceAreRefusedByNodesAndBytes) {
  const Plan one = small("one"), nest = nested();
  expect_words(error_of([&] { check_may_run_at_once(one, one); }), {"'one'", "'blend' (y)", "share"});
  expect_words(error_of([&] { check_may_run_at_once(one, nest); }), {"'one'", "'nested'", "'moved'"});
  GraphBuilder g(device(), "elsewhere");
  declare_all(g);
  const Words other = words("other", n);
  g.declare({"other", other.address(), other.bytes(), "activation"}, {.live_in = true});
  g.launch("blend", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = other, .salt = 3});
  const Plan elsewhere = std::move(g).finish(EdgePolicy::full);
  EXPECT_NO_THROW(check_may_run_at_once(one, elsewhere)) << "both read x";
  EXPECT_THROW(check_may_run_at_once(elsewhere, elsewhere), Error);
}

TEST_F(GraphLifetimeTest, ConditionsOfTwoGraphsAreNotOneWorkspace) {
  GraphBuilder g(device(), "condition");
  declare_all(g);
  const auto condition = g.condition("c", 0);
  g.launch("decide", machine().decide, {.value = x_, .condition = condition, .modulus = 1, .base = 0});
  g.if_else("if", condition, [](GraphBuilder&) {});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_TRUE(conflicts(plan, plan).empty());
}

TEST_F(GraphLifetimeTest, ALoopMayNotRunBesideAnotherGraphsConditionalNode) {
  const auto plan_of = [&](const std::string& name, bool loop) {
    GraphBuilder g(device(), name);
    declare_all(g);
    const auto condition = g.condition("c", 0);
    const auto decide = [&](GraphBuilder& body) {
      body.launch("decide", machine().decide, {.value = x_, .condition = condition, .modulus = 1, .base = 0});
    };
    loop ? g.while_loop("node", condition, decide) : g.if_else("node", condition, decide);
    return std::move(g).finish(EdgePolicy::full);
  };
  const Plan loop = plan_of("loop", true), branch = plan_of("branch", false);
  EXPECT_NO_THROW(check_may_run_at_once(branch, branch));
  expect_words(error_of([&] { check_may_run_at_once(loop, branch); }), {"'loop'", "'branch'", "a loop"});
  expect_words(error_of([&] { check_may_run_at_once(branch, loop); }), {"'loop'", "'branch'", "a loop"});
  EXPECT_THROW(check_may_run_at_once(loop, loop), Error);
}

class FreedBuffer : public GraphLifetimeTest {
 protected:
  // What the launch of a node over a buffer that is gone reports, before anything of it runs.
  template <class Add>
  std::string report_of(Add add) {
    auto gone = std::make_unique<DeviceBuffer>(device(), "gone", n * sizeof(uint32_t));
    GraphBuilder g(device(), "freed");
    declare_all(g);
    g.declare(range_of(*gone, "activation"), {.live_in = true});
    add(g, view_of<uint32_t>(*gone));
    ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
    PlanRun eager(exec.plan(), RunMode::eager, stream_);
    exec.launch(stream_);
    stream_.synchronize();
    gone.reset();
    const DeviceBuffer in_its_place(device(), "in its place", n * sizeof(uint32_t));  // perhaps at the same address
    const std::string message = error_of([&] { exec.launch(stream_); });
    EXPECT_EQ(error_of([&] { eager.launch(); }), message);
    stream_.synchronize();  // which fails when a node over that memory has run
    return message;
  }
};

TEST_F(FreedBuffer, IsReportedBeforeTheLaunchWithTheNodeThatTouchesIt) {
  expect_words(report_of([&](GraphBuilder& g, const Words& gone) {
                 g.launch("reads", machine().accumulate_of(n), {.y = z_, .x = gone, .salt = 1});
               }),
               {"'gone' was freed", "'reads'", "field 'x'"});
  expect_words(report_of([&](GraphBuilder& g, const Words& gone) { g.fill("fills", gone, 1u); }),
               {"'gone' was freed", "'fills'"});
  expect_words(report_of([&](GraphBuilder& g, const Words& gone) { g.copy("copies", x_, gone, 80); }),
               {"'gone' was freed", "'copies'"});
}

TEST_F(FreedBuffer, OfAnotherPlanIsNoReasonToRefuseALaunch) {
  GraphBuilder g(device(), "kept");
  declare_all(g);
  g.launch("adds", machine().accumulate_of(n), {.y = z_, .x = x_, .salt = 1});
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  { const DeviceBuffer other(device(), "other", 16); }
  exec.launch(stream_);
  { const PinnedBuffer other(device(), "other", 16); }
  exec.launch(stream_);
  stream_.synchronize();
}

}  // namespace
}  // namespace nodewright
