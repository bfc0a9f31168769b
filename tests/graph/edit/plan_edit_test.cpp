// PlanEdit: what an edited plan is, in edges and in runs, which handles name its nodes, and what is refused.
#include "graph/edit/plan_edit.h"

#include "graph/dump/graph_dump.h"
#include "graph/graph_exec.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class PlanEditTest : public SketchTest {
 protected:
  Node<Mix> launch(GraphBuilder& g, const std::string& name, View<float> from, View<float> to,
                   const std::vector<NodeId>& after = {}) const {
    return g.launch(name, waiting, {.left = from, .right = from, .gain = {}, .y = to, .scale = 1}, {.after = after});
  }
  // x > y > z, each by a node.
  Plan chain(EdgePolicy policy = EdgePolicy::full) {
    GraphBuilder g(device(), "edited.b1");
    declare_all(g);
    {
      const auto layer = g.scope("l0");
      launch(g, "norm", x_, y_);
    }
    const auto layer = g.scope("l1");
    launch(g, "norm", y_, z_);
    return std::move(g).finish(policy);
  }
  void declare_all(GraphBuilder& g) const {
    for (const auto& [name, view] : {std::pair{"x", x_}, {"y", y_}, {"z", z_}, {"w", w_}})
      g.declare({name, view.address(), view.bytes(), "activation"}, {.live_in = true, .live_out = true});
  }
  static std::string without_note(Plan plan) {
    std::erase_if(plan.facts, [](const auto& fact) { return fact.first == "edited"; });
    return to_json(plan);
  }
  static std::string note_of(const Plan& plan) {
    for (const auto& [what, is] : plan.facts)
      if (what == "edited") return is;
    return "";
  }

  View<float> x_ = sketch_view(0x100000), y_ = sketch_view(0x200000), z_ = sketch_view(0x300000),
              w_ = sketch_view(0x400000);
};

TEST_F(PlanEditTest, WithoutEditsAPlanIsMadeAgainAsItWas) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic})
    EXPECT_EQ(to_json(PlanEdit(chain(policy)).finish(policy)), to_json(chain(policy)));
  const Plan nested = nested_plan();
  EXPECT_EQ(to_json(PlanEdit(nested).finish(EdgePolicy::full)), to_json(nested));
}

TEST_F(PlanEditTest, EdgesFollowFromWhatIsThereAfterTheEdit) {
  PlanEdit edit(chain());
  edit.insert_after("l0.norm", [&](GraphBuilder& g) { g.fill("spoil", y_, 1.0f); });
  edit.insert_before("l0.norm", [&](GraphBuilder& g) {
    const auto scope = g.scope("l0");
    launch(g, "before", w_, x_);
  });
  const Plan plan = edit.finish(EdgePolicy::full);
  expect_edges(plan, {"l0.before>l0.norm", "l0.norm>spoil", "spoil>l1.norm"});
  EXPECT_EQ(plan.nodes[0].layer(), "l0");
  EXPECT_EQ(plan.nodes[3].layer(), "l1");
  EXPECT_EQ(note_of(plan), "inserted spoil after l0.norm; inserted l0.before before l0.norm");
  EXPECT_NE(to_text(plan).find(note_of(plan)), std::string::npos);
  EXPECT_NE(to_json(plan).find("\"edited\": \"" + note_of(plan)), std::string::npos);

  PlanEdit back(plan);
  back.remove("spoil");
  back.remove("l0.before");
  const Plan as_before = back.finish(EdgePolicy::full);
  EXPECT_EQ(without_note(as_before), to_json(chain()));
  EXPECT_EQ(note_of(as_before), note_of(plan) + "; removed spoil; removed l0.before");
}

TEST_F(PlanEditTest, OneNodeTakesThePlaceOfAnother) {
  PlanEdit edit(chain());
  edit.replace("l1.norm", [&](GraphBuilder& g) {
    launch(g, "first", y_, w_);
    launch(g, "second", w_, z_);
  });
  const Plan plan = edit.finish(EdgePolicy::full);
  expect_edges(plan, {"l0.norm>first", "first>second"});
  EXPECT_EQ(note_of(plan), "replaced l1.norm by first second");
}

TEST_F(PlanEditTest, ExplicitOrdersPassToWhatStandsInTheNodesPlace) {
  const auto ordered = [&] {
    GraphBuilder g(device(), "edited.b1");
    declare_all(g);
    const NodeId first = launch(g, "first", x_, y_);
    const NodeId join = g.empty("join", {.after = {first}});
    launch(g, "last", z_, w_, {join});
    return std::move(g).finish(EdgePolicy::full);
  };
  PlanEdit removed(ordered());
  removed.remove("join");
  expect_edges(removed.finish(EdgePolicy::full), {"first>last"}, "what followed it follows what it followed");

  PlanEdit replaced(ordered());
  replaced.replace("join", [](GraphBuilder& g) {
    g.empty("one", {.after = {}});
    g.empty("two", {.after = {}});
  });
  expect_edges(replaced.finish(EdgePolicy::full), {"first>one", "first>two", "one>last", "two>last"});

  PlanEdit inserted(ordered());
  inserted.insert_before("last", [&](GraphBuilder& g) { g.empty("gate", {.after = {g.node("first")}}); });
  expect_edges(inserted.finish(EdgePolicy::full), {"first>join", "first>gate", "join>last"});
}

// An order that an edge implied must not be lost with the node that implied it.
TEST_F(PlanEditTest, AnOrderThatAPathImpliedStaysWhenThePathGoes) {
  GraphBuilder g(device(), "edited.b1");
  declare_all(g);
  const NodeId first = launch(g, "first", x_, y_);
  launch(g, "between", y_, z_);
  launch(g, "last", z_, w_, {first});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_edges(plan, {"first>between", "between>last"});
  PlanEdit edit(plan);
  edit.remove("between");
  expect_edges(edit.finish(EdgePolicy::full), {"first>last"});
}

TEST_F(PlanEditTest, NodesOfBodiesAndChildrenAreEditedByTheirPath) {
  PlanEdit edit(nested_plan());
  edit.insert_after("choose.then/l0.there", [](GraphBuilder& g) { g.empty("mark", {.after = {g.node("l0.there")}}); });
  edit.remove("choose.then/l1.back");
  const Plan plan = edit.finish(EdgePolicy::full);
  const Plan& then = *plan.nodes[1].bodies[0];
  expect_edges(then, {"l0.there>mark", "l0.there>l0.back", "l0.back>l1.there"});
  EXPECT_EQ(then.name, "nested.b1/choose.then");
  EXPECT_EQ(note_of(plan), "inserted mark after choose.then/l0.there; removed choose.then/l1.back");

  const auto with_child = [&] {
    GraphBuilder inner(device(), "part");
    declare_all(inner);
    launch(inner, "one", x_, y_);
    launch(inner, "two", y_, z_);
    GraphBuilder g(device(), "edited.b1");
    declare_all(g);
    g.child("child", std::move(inner).finish(EdgePolicy::full), ChildOwnership::cloned);
    launch(g, "last", z_, w_);
    return std::move(g).finish(EdgePolicy::full);
  };
  PlanEdit in_child(with_child());
  in_child.remove("child/two");
  const Plan smaller = in_child.finish(EdgePolicy::full);
  EXPECT_EQ(smaller.nodes[0].bodies[0]->nodes.size(), 1u);
  EXPECT_FALSE(smaller.nodes[0].patchable_inside);
  expect_edges(smaller, {}, "the child does not write what 'last' reads any more");
}

TEST_F(PlanEditTest, HandlesOfThePlanBeforeNameTheSameNodesAfter) {
  GraphBuilder g(device(), "edited.b1");
  declare_all(g);
  const Node<Mix> one = launch(g, "one", x_, y_), two = launch(g, "two", y_, z_);
  launch(g, "three", z_, w_);
  PlanEdit edit(std::move(g).finish(EdgePolicy::full));
  expect_error([&] { edit.handle(two); }, {"'edited.b1'", "not finished"});
  edit.remove("one");
  Node<Mix> added;
  edit.insert_before("three", [&](GraphBuilder& builder) { added = launch(builder, "added", x_, x_.subview(0, 0)); });
  expect_error([&] { edit.finish(); }, {"'added'", "'y'"});

  PlanEdit again(chain());
  expect_error([&] { again.handle(one); }, {"node 0 is of another plan"});

  GraphBuilder other(device(), "edited.b1");
  declare_all(other);
  const Node<Mix> first = launch(other, "first", x_, y_), second = launch(other, "second", y_, z_);
  PlanEdit moved(std::move(other).finish(EdgePolicy::full));
  moved.insert_before("first", [&](GraphBuilder& builder) { added = launch(builder, "added", w_, x_); });
  moved.remove("first");
  const Plan plan = moved.finish(EdgePolicy::full);
  EXPECT_EQ(plan.nodes[moved.handle(second).index].name, "second");
  EXPECT_EQ(moved.handle(second).plan, plan.id);
  EXPECT_EQ(added.plan, plan.id);
  EXPECT_EQ(plan.nodes[added.index].name, "added");
  expect_error([&] { moved.handle(first); }, {"node 0 was removed or replaced"});
}

TEST_F(PlanEditTest, NamesThatFitNoNodeOrTwoAreRefused) {
  PlanEdit edit(chain());
  expect_error([&] { edit.remove("gone"); }, {"'edited.b1'", "no node is named 'gone' among its 2"});
  expect_error([&] { edit.remove("norm"); }, {"no node is named 'norm'", "'l0.norm', 'l1.norm'"});
  expect_error([&] { edit.insert_before("l0.norm", {}); }, {"'l0.norm' has no function"});
  edit.remove("l0.norm");
  expect_error([&] { edit.replace("l0.norm", [](GraphBuilder&) {}); }, {"'l0.norm' is removed already"});

  GraphBuilder inner(device(), "part");
  declare_all(inner);
  launch(inner, "one", x_, y_);
  GraphBuilder g(device(), "edited.b1");
  declare_all(g);
  g.child("child", std::move(inner).finish(), ChildOwnership::cloned);
  launch(g, "child/one", y_, z_);
  PlanEdit twice(std::move(g).finish());
  expect_error([&] { twice.remove("child/one"); }, {"'child/one' fits 2 nodes"});
}

TEST_F(PlanEditTest, WhatABuilderRefusesIsRefusedOfAnEditedPlan) {
  const auto refused = [&](const Plan& plan, const std::function<void(PlanEdit&)>& make,
                           std::initializer_list<std::string_view> words) {
    PlanEdit edit(plan);
    make(edit);
    expect_error([&] { edit.finish(); }, words);
  };
  GraphBuilder g(device(), "edited.b1");
  g.declare({"x", x_.address(), x_.bytes(), "activation"}, {.live_in = true});
  g.declare({"y", y_.address(), y_.bytes(), "activation"});
  g.declare({"z", z_.address(), z_.bytes(), "activation"}, {.live_out = true});
  launch(g, "maker", x_, y_);
  launch(g, "user", y_, z_);
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  refused(plan, [](PlanEdit& e) { e.remove("maker"); }, {"'user'", "'left' reads y", "no earlier node writes"});
  refused(plan, [](PlanEdit& e) { e.replace("maker", [](GraphBuilder&) {}); },
          {"'edited.b1'", "replaces node 'maker' added no node"});
  refused(plan, [&](PlanEdit& e) { e.insert_before("maker", [&](GraphBuilder& b) { launch(b, "user", x_, z_); }); },
          {"'user'", "the name is taken"});
  refused(plan, [&](PlanEdit& e) { e.insert_before("maker", [&](GraphBuilder& b) { launch(b, "early", y_, z_); }); },
          {"'early'", "reads y"});
  refused(plan, [&](PlanEdit& e) { e.insert_before("user", [&](GraphBuilder& b) { b.node("user"); }); },
          {"'user'", "no node of that name yet"});

  GraphBuilder with_condition(device(), "edited.b1");
  declare_all(with_condition);
  const ConditionHandle which = with_condition.condition("which", 1);
  with_condition.if_else("choose", which, [&](GraphBuilder& body) { launch(body, "inside", x_, y_); });
  launch(with_condition, "last", y_, z_);
  const Plan conditional = std::move(with_condition).finish(EdgePolicy::full);
  refused(
      conditional,
      [&](PlanEdit& e) { e.insert_before("choose.then/inside", [](GraphBuilder& b) { b.host("call", [] {}, {}); }); },
      {"'call'", "a conditional node's body cannot hold"});
  PlanEdit without(conditional);
  without.remove("choose");
  const Plan plain = without.finish(EdgePolicy::full);
  EXPECT_EQ(plain.conditions.size(), 0u);
  EXPECT_EQ(to_json(plain).find("which"), std::string::npos) << "its condition goes with it";
}

class PlanEditRunTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), value_ = words("value", 1);

  Plan scratch_plan() {
    GraphBuilder g(device(), "scratch");
    declare_all(g);
    const Allocation scratch = g.allocate("scratch", n * sizeof(uint32_t));
    const Words s = scratch.view<uint32_t>();
    g.launch("to", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = s, .salt = 1});
    g.launch("from", machine().blend_of(n), {.a = s, .b = x_, .key = {}, .y = y_, .salt = 2});
    g.free(scratch);
    return std::move(g).finish();
  }
};

TEST_F(PlanEditRunTest, AnEditedPlanRunsAndIsPatchedByHandlesOfBefore) {
  GraphBuilder g(device(), "step");
  declare_all(g);
  const auto which = g.condition("which", 0);
  g.launch("decide", machine().decide, {.value = value_, .condition = which, .modulus = 2, .base = 0});
  Node<Accumulate> inside;
  g.if_else("choose", which, [&](GraphBuilder& body) {
    inside = body.launch("inside", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 3});
  });
  const Node<Accumulate> last = g.launch("last", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 4});
  PlanEdit edit(std::move(g).finish());
  edit.insert_before("last", [&](GraphBuilder& b) {
    const auto again = b.condition("again", 1);
    b.switch_case("cases", again,
                  {[](GraphBuilder& body) { body.empty("nothing", {.after = {}}); },
                   [&](GraphBuilder& body) { body.fill("fill", y_.subview(0, 10), 9u); }});
  });
  edit.insert_before("choose.then/inside", [&](GraphBuilder& b) { b.fill("first", y_, 5u); });
  Plan plan = edit.finish();
  for (const uint32_t value : {0u, 1u}) {
    set_initial(value_, {value});
    expect_runs(plan, kUncapturedRuns);
  }

  ExplicitGraph exec(plan);
  exec.patch(edit.handle(last), &Accumulate::salt, 40u);
  exec.patch(edit.handle(inside), &Accumulate::salt, 30u);
  const Plan patched = plan_as_patched(exec);
  reset();
  HostModel reference = model();
  reference.run(patched);
  exec.launch(stream_);
  EXPECT_EQ(difference(reference), "");
}

TEST_F(PlanEditRunTest, MemoryOfThePlanIsUsedBetweenItsAllocationAndItsFree) {
  PlanEdit edit(scratch_plan());
  edit.insert_after("to", [&](GraphBuilder& g) {
    const Allocation more = g.allocate("more", 4096);
    g.fill("filled", more.view<uint32_t>(), 3u);
    g.free(more);
  });
  const Plan plan = edit.finish();
  ASSERT_NE(plan.nodes[2].allocated, plan.nodes[0].allocated);
  expect_runs(plan, kAllRuns);

  const auto refused = [&](const std::function<void(PlanEdit&)>& make, std::initializer_list<std::string_view> words) {
    PlanEdit refusing(scratch_plan());
    make(refusing);
    expect_error([&] { refusing.finish(); }, words);
  };
  refused([](PlanEdit& e) { e.remove("scratch"); }, {"node 'to' uses 'scratch', whose allocation the edit takes away"});
  refused([](PlanEdit& e) { e.remove("scratch.free"); }, {"no node frees the memory of node 'scratch'"});
  const uint64_t address = scratch_plan().nodes[0].allocated;
  const Words scratch{reinterpret_cast<uint32_t*>(address), n};
  refused([&](PlanEdit& e) { e.insert_before("scratch", [&](GraphBuilder& g) { g.fill("early", scratch, 1u); }); },
          {"'early'", "before its node allocates it"});
  refused([&](PlanEdit& e) { e.insert_after("scratch.free", [&](GraphBuilder& g) { g.fill("late", scratch, 1u); }); },
          {"'late'", "node 'scratch.free' has freed"});

  PlanEdit without(scratch_plan());
  for (const char* name : {"scratch", "to", "from", "scratch.free"}) without.remove(name);
  without.insert_after("from", [&](GraphBuilder& g) { g.fill("instead", y_, 1u); });
  expect_runs(without.finish(), kAllRuns);
}

// Otherwise a launch could not tell that the buffer was freed and that another took its place.
TEST_F(PlanEditRunTest, APlanKeepsWhichBufferItWasMadeOver) {
  auto buffer = std::make_unique<DeviceBuffer>(device(), "short-lived", 400);
  GraphBuilder g(device(), "step");
  g.fill("fill", view_of<uint32_t>(*buffer), 1u);
  const Plan plan = std::move(g).finish();
  ASSERT_NE(plan.buffers[0].serial, 0u);
  PlanEdit edit(plan);
  buffer.reset();
  edit.insert_after("fill", [&](GraphBuilder& b) { b.fill("more", y_, 2u); });
  EXPECT_EQ(edit.finish().buffers[0].serial, plan.buffers[0].serial);
}

}  // namespace
}  // namespace nodewright
