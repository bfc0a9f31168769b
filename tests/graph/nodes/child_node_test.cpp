// Plans as nodes of plans, moved into the graph and cloned.
#include "graph/hazard_check.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class ChildNodeTest : public BlendTest {
 protected:
  // h = blend(x, x), y = blend(h, x) + x
  Plan part(const std::string& name, uint32_t salt = 3, Node<Accumulate>* added = nullptr) {
    GraphBuilder g(device(), name);
    declare_all(g);
    g.launch("first", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = h_, .salt = salt});
    g.launch("second", machine().hasty_of(n), {.a = h_, .b = x_, .key = {}, .y = y_, .salt = salt + 1});
    const auto node = g.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = salt});
    if (added != nullptr) *added = node;
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  // x = 7; the part; z = y + x
  Plan whole(ChildOwnership ownership, EdgePolicy policy = EdgePolicy::programmatic, uint32_t salt = 3) {
    GraphBuilder g(device(), "whole");
    declare_all(g);
    g.fill("fill", x_, 7u);
    child_ = g.child("part", part("part"), ownership);
    g.launch("after", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = salt});
    return std::move(g).finish(policy);
  }

  static constexpr uint64_t n = 150;
  Words x_ = words("x", n), h_ = words("h", n), y_ = words("y", n), z_ = words("z", n);
  ChildNode child_;
};

TEST_F(ChildNodeTest, MovedAndClonedChildrenComputeTheSameInEveryRun) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned})
    for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic})
      expect_runs(whole(ownership, policy), kAllRuns);
}

TEST_F(ChildNodeTest, AChildUsesWhatItsNodesUseAndIsOrderedByThat) {
  const Plan plan = whole(ChildOwnership::moved);
  expect_edges(plan, {"fill>part", "part>after"});
  const PlanNode& node = plan.nodes[1];
  std::vector<std::string> uses;
  for (const Use& use : node.uses)
    uses.push_back(std::string(use.field) + " " + std::string(to_string(use.access)) + " " +
                   describe_range(plan, use.buffer, use.offset, use.bytes));
  EXPECT_EQ(uses, (std::vector<std::string>{"first in x[0,600)", "first out h[0,600)", "second out y[0,600)"}))
      << "what is written first need not hold a value";
  EXPECT_GT(node.traffic.bytes_written, 0u);
}

TEST_F(ChildNodeTest, AChildThatReadsWhatNothingWroteIsRefused) {
  GraphBuilder inner(device(), "inner");
  declare_all(inner);
  inner.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 1});
  const Plan plan = std::move(inner).finish(EdgePolicy::full);
  GraphBuilder g(device(), "outer");
  g.declare({"x", x_.address(), x_.bytes(), "activation"}, {.live_in = true});
  g.declare({"y", y_.address(), y_.bytes(), "activation"});
  expect_words(error_of([&] { g.child("part", plan); }),
               {"'part'", "field 'add' reads y[0,600)", "no earlier node writes"});
  g.fill("zero", y_, 0u);
  EXPECT_EQ(error_of([&] { g.child("part", plan); }), "");
}

TEST_F(ChildNodeTest, ChildrenOfChildrenRun) {
  for (const ChildOwnership inner : {ChildOwnership::moved, ChildOwnership::cloned})
    for (const ChildOwnership outer : {ChildOwnership::moved, ChildOwnership::cloned}) {
      GraphBuilder middle(device(), "middle");
      declare_all(middle);
      middle.child("part", part("part"), inner);
      middle.launch("next", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 9});
      GraphBuilder g(device(), "nested");
      declare_all(g);
      g.fill("fill", x_, 11u);
      g.child("middle", std::move(middle).finish(EdgePolicy::programmatic), outer);
      g.launch("last", machine().accumulate_of(n), {.y = x_, .x = z_, .salt = 1});
      expect_runs(std::move(g).finish(EdgePolicy::programmatic), kAllRuns);
    }
}

TEST_F(ChildNodeTest, PlansOfOneNameAreRefusedWhereverTheyMeet) {
  GraphBuilder twins(device(), "twins");
  declare_all(twins);
  twins.child("one", part("part"));
  expect_words(error_of([&] { twins.child("two", part("part", 4)); }), {"'two'", "named 'part'", "name of its own"});
  GraphBuilder same(device(), "part");
  declare_all(same);
  expect_words(error_of([&] { same.child("one", part("part")); }), {"'one'", "'part'"});
  const auto holding = [&](const std::string& name) {
    GraphBuilder g(device(), name);
    declare_all(g);
    g.child("inside", part("part"));
    return std::move(g).finish(EdgePolicy::full);
  };
  GraphBuilder cousins(device(), "cousins");
  declare_all(cousins);
  cousins.child("one", holding("left"));
  expect_words(error_of([&] { cousins.child("two", holding("right")); }), {"'two'", "'part'"});
  EXPECT_EQ(cousins.node_count(), 1u);
}

TEST_F(ChildNodeTest, APlanThatHoldsAConditionalNodeIsNoChild) {
  GraphBuilder inner(device(), "inner");
  declare_all(inner);
  inner.if_else("maybe", inner.condition("c", 1), [&](GraphBuilder& body) { body.fill("f", x_, 1u); });
  const Plan plan = std::move(inner).finish(EdgePolicy::full);
  GraphBuilder g(device(), "outer");
  declare_all(g);
  expect_words(error_of([&] { g.child("c", plan); }), {"'c'", "'maybe'", "conditional"});
}

TEST_F(ChildNodeTest, PatchChildChangesScalarsAndShapesAndNothingElse) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    reset();
    ExplicitGraph exec(whole(ownership));
    HostModel reference = model();
    reference.run(exec.plan());
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "");

    const Plan changed = part("part", 20);
    exec.patch_child(child_, changed);
    Plan model_plan = exec.plan();
    model_plan.nodes[1].bodies = {std::make_shared<const Plan>(changed)};
    reference.run(model_plan);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << "salts of 20";

    Plan wider = part("part");
    wider.nodes[0].uses[0].bytes -= 4;
    expect_words(error_of([&] { exec.patch_child(child_, wider); }), {"'part'", "'first'", "x[0,596)"});
    expect_words(error_of([&] { exec.patch_child(child_, part("other")); }), {"'part'", "'other'"});
    Plan cut = part("part");
    cut.edges.pop_back();
    expect_words(error_of([&] { exec.patch_child(child_, cut); }), {"'part'", "edges"});
    Plan swapped = part("part");
    swapped.nodes[0].kernel = machine().accumulate.loaded;
    expect_words(error_of([&] { exec.patch_child(child_, swapped); }), {"'part'", "'first'", "kernel"});
    reference.run(model_plan);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << "refusals changed nothing";
  }
}

// As the loop of a fault sweep: every driver call of the change fails once.
TEST_F(ChildNodeTest, APatchChildThatFailsChangesNothingAndLeavesNothing) {
  ExplicitGraph exec(whole(ChildOwnership::moved));
  for (uint64_t call = 0;; ++call) {
    ASSERT_LT(call, 50u);
    const uint64_t graphs = interposer().live_count(HandleKind::graph), injected = interposer().failures_injected();
    interposer().fail_call(call, CUDA_ERROR_OUT_OF_MEMORY);
    const std::string message = error_of([&] { exec.patch_child(child_, part("part", 50)); });
    interposer().fail_none();
    EXPECT_EQ(interposer().live_count(HandleKind::graph), graphs) << interposer().describe_live();
    if (interposer().failures_injected() == injected) break;
    if (message.empty()) continue;  // the last call destroys what is not needed any more
    reset();
    HostModel reference = model();
    reference.run(exec.plan());
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << "call " << call << ": " << message;
  }
}

TEST_F(ChildNodeTest, PatchesInsideAMovedChildTakeEffectAndInsideAClonedOneAreRefused) {
  Node<Accumulate> added;
  GraphBuilder g(device(), "whole");
  declare_all(g);
  const auto child = g.child("part", part("part", 3, &added));
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::programmatic));
  reset();
  HostModel reference = model();
  exec.patch(added, &Accumulate::salt, 77u);
  exec.launch(stream_);
  Plan changed = part("part");
  reinterpret_cast<Accumulate*>(changed.nodes[2].arguments.data())->salt = 77;
  reference.run(changed);
  EXPECT_EQ(difference(reference), "");
  exec.patch_child(child, part("part", 5));
  exec.launch(stream_);
  reference.run(part("part", 5));
  EXPECT_EQ(difference(reference), "") << "patches from before are gone";

  GraphBuilder cloning(device(), "cloning");
  declare_all(cloning);
  cloning.child("copy", part("part", 3, &added), ChildOwnership::cloned);
  ExplicitGraph cloned(std::move(cloning).finish(EdgePolicy::programmatic));
  expect_words(error_of([&] { cloned.patch(added, &Accumulate::salt, 1u); }), {"'add'", "'part'", "cloned"});
}

}  // namespace
}  // namespace nodewright
