// Memory that a plan allocates and frees: edges, runs, patches, dumps, and every misuse by name.
#include "graph/dump/graph_dump.h"
#include "graph/edges/buffer_lifetimes.h"
#include "graph/hazard_check.h"
#include "graph/patch.h"
#include "graph/run/captured_run.h"
#include "graph/run/eager_run.h"
#include "graph/run/piecewise_run.h"
#include "graph/timing/node_timer.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class AllocationTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  Words x_ = words("x", n), y_ = words("y", n), key_ = words("key", 16);

  // y = blend of x, through scratch memory of the plan.
  Plan through_scratch(EdgePolicy policy = EdgePolicy::programmatic) {
    GraphBuilder g(device(), "scratch");
    declare_all(g);
    const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
    const Words s = scratch.view<uint32_t>();
    to_ = g.launch("to", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = s, .salt = 1});
    g.launch("from", machine().blend_of(n), {.a = s, .b = x_, .key = {}, .y = y_, .salt = 2});
    g.free(scratch);
    return std::move(g).finish(policy);
  }
  // What a builder that has allocated 'scratch' refuses.
  std::string refused(const std::function<void(GraphBuilder&, const Allocation&)>& misuse) {
    GraphBuilder g(device(), "misuse");
    declare_all(g);
    const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
    const size_t nodes = g.node_count();
    const std::string text = error_of([&] { misuse(g, scratch); });
    EXPECT_LE(g.node_count(), nodes + 1) << "beside the free";
    return text;
  }

  Node<Blend> to_;
};

TEST_F(AllocationTest, EdgesFollowFromTheMemoryAndAreComplete) {
  const Plan plan = through_scratch();
  expect_edges(plan, {"scratch>to", "to~>from", "from>scratch.free"});
  EXPECT_TRUE(missing_orders(plan).empty());
  for (size_t edge = 0; edge < plan.edges.size(); ++edge) {
    Plan cut = plan;
    cut.edges.erase(cut.edges.begin() + static_cast<std::ptrdiff_t>(edge));
    EXPECT_FALSE(missing_orders(cut).empty()) << "edge " << edge;
  }
}

TEST_F(AllocationTest, EveryRunComputesTheSame) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic})
    expect_runs(through_scratch(policy), kAllRuns);
}

TEST_F(AllocationTest, MemoryOfOneLaunchIsGoneBehindIt) {
  ExplicitGraph exec(through_scratch());
  exec.upload(stream_);
  exec.launch(stream_);
  stream_.synchronize();
  if (machine().opened.driver->is_cpu()) {
    const uint64_t before = device().free_bytes();
    exec.launch(stream_);
    stream_.synchronize();
    EXPECT_EQ(device().free_bytes(), before);
  }
  EXPECT_EQ(exec.memory().places().size(), 1u);
}

TEST_F(AllocationTest, CopiesFillsForeignKernelsAndInnerPlansUseIt) {
  GraphBuilder g(device(), "all kinds");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", 2 * n * sizeof(uint32_t));
  const Words s = scratch.view<uint32_t>(), first = s.subview(0, n), second = s.subview(n, n);
  g.copy("in", first, x_, first.bytes());
  g.fill("zero", second, 7u);
  g.fill_rows("rows", second, {.count = 1, .rows = 4, .pitch = 16}, 9u);
  launch_foreign_blend(g, "foreign", *machine().foreign, blend_shape(n), x_, key_.subview(0, 1), second, 5);
  GraphBuilder inner(device(), "inner");
  declare_all(inner);
  inner.declare(scratch.range(), {.live_in = true, .live_out = true});
  inner.launch("add", machine().accumulate_of(n), {.y = first, .x = second, .salt = 3});
  g.child("child", std::move(inner).finish(EdgePolicy::full));
  g.copy_rows("out", y_, first, {.bytes = 4 * n / 2, .rows = 2, .to_pitch = 4 * n / 2, .from_pitch = 4 * n / 2});
  g.free(scratch);
  expect_runs(std::move(g).finish(EdgePolicy::programmatic), kAllRuns);
}

TEST_F(AllocationTest, ABodyUsesMemoryThatThePlanAroundItAllocates) {
  GraphBuilder g(device(), "loop");
  declare_all(g);
  const Allocation scratch = g.allocate("rounds", n * sizeof(uint32_t));
  const Words s = scratch.view<uint32_t>();
  g.fill("zero", s, 0u);
  const ConditionHandle again = g.condition("again", 1);
  g.while_loop("loop", again, [&](GraphBuilder& body) {
    body.launch("add", machine().accumulate_of(n - 1), {.y = s.subview(1, n - 1), .x = x_, .salt = 3});
    body.launch("count", machine().count, {.rounds = s.subview(0, 1), .again = again, .limit = 3});
  });
  g.copy("out", y_, s, s.bytes());
  g.free(scratch);
  expect_runs(std::move(g).finish(EdgePolicy::programmatic), kUncapturedRuns);
}

TEST_F(AllocationTest, APatchMayMoveAFieldWithinTheMemory) {
  ExplicitGraph exec(through_scratch());
  const Plan plan = exec.plan();
  reset();
  HostModel reference = model();
  const Words part = Words{reinterpret_cast<uint32_t*>(plan.nodes[0].allocated), n}.subview(0, 100);
  exec.patch(to_, &Blend::y, part);
  PatchSet patches(exec);
  patches.set(to_, &Blend::y, Words{part.data, n});
  patches.set(to_, &Blend::salt, 9u);
  patches.apply();
  exec.launch(stream_);
  Plan changed = plan;
  Blend args;
  std::memcpy(&args, changed.nodes[1].arguments.data(), sizeof args);
  args.salt = 9;
  std::memcpy(changed.nodes[1].arguments.data(), &args, sizeof args);
  reference.run(changed);
  EXPECT_EQ(difference(reference), "");
  expect_error([&] { exec.patch(to_, &Blend::y, y_); }, {"'to'", "'y'", "outside its envelope", "scratch[0,800)"});
}

TEST_F(AllocationTest, ACopyOfItIsNotPatched) {
  GraphBuilder g(device(), "copied");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", x_.bytes());
  const CopyNode in = g.copy("in", scratch.view<uint32_t>(), x_, x_.bytes());
  g.free(scratch);
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  PatchSet patches(exec);
  expect_error([&] { patches.copy(in, scratch.view<uint32_t>(), x_, 4); },
               {"'in'", "an end lies in memory that the plan allocates"});
  EXPECT_EQ(patches.size(), 0u);
}

TEST_F(AllocationTest, DumpsNameItAndThePeakOfMemoryKnowsItsLifetime) {
  const Plan plan = through_scratch();
  const std::string text = to_text(plan);
  expect_words(text, {"node 0 scratch | allocate 800 B | >memory=scratch[0,800) | after nothing",
                      "buffer scratch 800 B allocation\n",
                      "node 3 scratch.free | free | >memory=scratch[0,800) | after from (WAR scratch[0,800))"});
  EXPECT_EQ(text.find("0xa1"), std::string::npos) << "no address";
  expect_words(to_json(plan), {"\"kind\": \"allocate\"", "\"kind\": \"free\""});
  const auto lifetimes = buffer_lifetimes(plan);
  EXPECT_EQ(lifetimes.back()->first, 0u);
  EXPECT_EQ(lifetimes.back()->last, 3u);
}

TEST_F(AllocationTest, TimesAreTakenOfEveryNode) {
  const Plan plan = through_scratch();
  NodeTimer timer(plan, *machine().kernels, stream_);
  const PlanTimings timings = timer.measure({.samples = 2});
  ASSERT_EQ(timings.nodes.size(), plan.nodes.size());
}

TEST_F(AllocationTest, TwoGraphsOfOnePlanHaveMemoryEach) {
  const Plan plan = through_scratch();
  for (const PlanConflict& conflict : conflicts(plan, plan)) EXPECT_NE(conflict.field_a, "memory");
  ExplicitGraph one(plan), two(plan);
  one.launch(stream_);
  two.launch(stream_);
  stream_.synchronize();
}

TEST_F(AllocationTest, UseBehindTheFreeIsRefused) {
  expect_words(refused([&](GraphBuilder& g, const Allocation& scratch) {
                 g.free(scratch);
                 g.fill("late", scratch.view<uint32_t>(), 0u);
               }),
               {"'late'", "'to'", "scratch[0,800)", "node 'scratch.free' has freed", "after its last use"});
  expect_words(refused([&](GraphBuilder& g, const Allocation& scratch) {
                 g.free(scratch);
                 g.if_else("body", g.condition("c", 1),
                           [&](GraphBuilder& body) { body.fill("late", scratch.view<uint32_t>(), 0u); });
               }),
               {"'body'", "'late'", "scratch.free"});
}

TEST_F(AllocationTest, ASecondFreeIsRefused) {
  expect_words(refused([&](GraphBuilder& g, const Allocation& scratch) {
                 g.free(scratch);
                 const auto scope = g.scope("again");
                 g.free(scratch);
               }),
               {"'again.scratch.free'", "has freed", "free each allocation once"});
}

TEST_F(AllocationTest, MemoryThatIsNotFreedIsRefused) {
  GraphBuilder g(device(), "leak");
  g.allocate("scratch", 100);
  expect_error([&] { std::move(g).finish(EdgePolicy::full); },
               {"'leak'", "no node frees the memory of node 'scratch'", "refuses the second launch", "DeviceBuffer"});
}

TEST_F(AllocationTest, ReadingUndefinedMemoryIsRefused) {
  expect_words(refused([&](GraphBuilder& g, const Allocation& scratch) {
                 g.copy("early", y_, scratch.view<uint32_t>(), y_.bytes());
               }),
               {"'early'", "scratch[0,800)", "no earlier node writes"});
}

TEST_F(AllocationTest, MemoryOfAnotherPlanIsRefused) {
  GraphBuilder other(device(), "other");
  const Allocation foreign = other.allocate("theirs", 64);
  expect_words(refused([&](GraphBuilder& g, const Allocation&) { g.free(foreign); }),
               {"'theirs.free'", "is no memory that plan 'misuse' allocates"});
  expect_words(refused([&](GraphBuilder& g, const Allocation&) { g.fill("f", foreign.view<uint32_t>(), 0u); }),
               {"'f'", "outside every declared buffer"});
  GraphBuilder g(device(), "declared");
  g.declare(foreign.range());
  g.fill("f", foreign.view<uint32_t>(), 0u);
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  for (const RunMode mode : kAllRuns)
    expect_error([&] { PlanRun(plan, mode, stream_).launch(); }, {"'declared'", "no node of it allocates"});
}

TEST_F(AllocationTest, WhoKeepsAnAddressCannotHaveTheMemory) {
  expect_words(refused([&](GraphBuilder& g, const Allocation& scratch) {
                 g.library("call", {writes<"y">(scratch.view<uint32_t>())}, [](CUstream) {});
               }),
               {"'call'", "'y'", "a library's call keeps its own"});
  expect_words(refused([&](GraphBuilder& g, const Allocation& scratch) {
                 g.fill("zero", scratch.view<uint32_t>(), 0u);
                 launch_foreign_blend(g, "foreign", *machine().foreign, blend_shape(n), scratch.view<uint32_t>(),
                                      key_.subview(0, 1), y_, 5);
               }),
               {"'foreign'", "'a.words'", "a struct that holds pointers keeps its own"});
}

TEST_F(AllocationTest, BodiesChildrenPartsAndUpdatesAreRefused) {
  GraphBuilder g(device(), "places");
  declare_all(g);
  const ConditionHandle condition = g.condition("c", 1);
  expect_error([&] { g.if_else("i", condition, [](GraphBuilder& body) { body.allocate("a", 4); }); },
               {"'a'", "a conditional node's body cannot hold a node of kind allocate"});
  expect_error([&] { g.child("c", through_scratch()); }, {"'c'", "node 'scratch' of plan 'scratch' allocates memory"});
  expect_error([&] { g.allocate("none", 0); }, {"'none'", "0 bytes"});
  expect_error([&] { g.allocate("huge", uint64_t{1} << 41); }, {"'huge'", "less than 1 TiB"});
  expect_error([&] { parts_of(through_scratch(), [](const PlanNode&) { return false; }); },
               {"'scratch'", "node 'scratch' allocates memory"});
  CapturedGraph captured(through_scratch(), stream_);
  expect_error([&] { captured.recapture(through_scratch(), stream_); }, {"'scratch'", "allocates memory"});
}

TEST_F(AllocationTest, AChildThatUsesItIsMadeAnew) {
  const auto child_of = [&](const Allocation& scratch, uint32_t salt) {
    GraphBuilder inner(device(), "inner");
    declare_all(inner);
    inner.declare(scratch.range(), {.live_in = true, .live_out = true});
    inner.launch("add", machine().accumulate_of(n), {.y = scratch.view<uint32_t>(), .x = x_, .salt = salt});
    return std::move(inner).finish(EdgePolicy::full);
  };
  GraphBuilder g(device(), "outer");
  declare_all(g);
  const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
  g.fill("zero", scratch.view<uint32_t>(), 1u);
  const ChildNode child = g.child("child", child_of(scratch, 3), ChildOwnership::cloned);
  g.copy("out", y_, scratch.view<uint32_t>(), y_.bytes());
  g.free(scratch);
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  exec.patch_child(child, child_of(scratch, 4));
  Plan changed = exec.plan();
  changed.nodes[child.index].bodies[0] = std::make_shared<const Plan>(child_of(scratch, 4));
  reset();
  HostModel reference = model();
  reference.run(changed);
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(AllocationTest, ACapturedPlanHasItsNodesInTheOrderOfTheStream) {
  const Plan captured = plan_as_captured(through_scratch(), stream_);
  ASSERT_EQ(captured.nodes.size(), 4u);
  EXPECT_EQ(captured.nodes[3].kind, NodeKind::free);
  EXPECT_EQ(captured.edges.size(), 3u);
}

// Each driver call fails in turn: nothing is left behind, and the same plan is built and run afterwards.
TEST_F(AllocationTest, WhicheverCallFailsNothingIsLeft) {
  const Plan plan = through_scratch();
  for (const RunMode mode : kAllRuns) {
    const std::string before = interposer().describe_live();
    uint64_t failed = 0;
    for (uint64_t call = 0; failed == call; ++call) {
      stream_.synchronize();
      interposer().fail_call(call, CUDA_ERROR_INVALID_VALUE);
      const std::string text = error_of([&] {
        PlanRun run(plan, mode, stream_);
        run.launch();
        interposer().fail_none();
      });
      interposer().fail_none();
      if (text.empty()) break;
      ++failed;
      EXPECT_EQ(interposer().describe_live(), before) << to_string(mode) << ", call " << call;
    }
    EXPECT_GT(failed, 3u) << to_string(mode);
    expect_runs(plan, {mode});
  }
}

TEST_F(AllocationTest, AFailedEagerRunFreesWhatItAllocated) {
  const Plan plan = through_scratch();
  interposer().fail_call(2, CUDA_ERROR_INVALID_VALUE);  // the second kernel, after the allocation and the first
  const uint64_t live = interposer().live_count(HandleKind::device_memory);
  EXPECT_NE(error_of([&] { run_eager(plan, stream_); }), "");
  interposer().fail_none();
  EXPECT_EQ(interposer().live_count(HandleKind::device_memory), live);
  stream_.synchronize();
}

}  // namespace
}  // namespace nodewright
