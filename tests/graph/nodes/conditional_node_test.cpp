// IF, WHILE and SWITCH nodes: what they run, and what a plan with them may not hold.
#include "graph/hazard_check.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class ConditionalNodeTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 100;

  void decide(GraphBuilder& g, const std::string& name, ConditionHandle condition, const Words& value,
              uint32_t modulus = 1000, uint32_t base = 0) {
    g.launch(name, machine().decide, {.value = value, .condition = condition, .modulus = modulus, .base = base});
  }
  void accumulate(GraphBuilder& g, const std::string& name, const Words& y, uint32_t salt) {
    g.launch(name, machine().accumulate_of(y.count), {.y = y, .x = x_, .salt = salt});
  }
  void set_value(uint32_t value) { set_initial(value_, {value}); }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), value_ = words("value", 1),
        rounds_ = words("rounds", 1), counts_ = words("counts", 4);
};

TEST_F(ConditionalNodeTest, IfRunsItsBodyOrTheOtherByTheConditionOfEachLaunch) {
  for (const bool with_else : {false, true})
    for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
      GraphBuilder g(device(), "branch");
      declare_all(g);
      const auto condition = g.condition("c", 0);
      accumulate(g, "before", y_, 1);
      decide(g, "decide", condition, value_);
      GraphBuilder::Body otherwise;
      if (with_else)
        otherwise = [&](GraphBuilder& body) {
          accumulate(body, "one", y_, 20);
          accumulate(body, "two", y_, 21);
        };
      g.if_else(
          "if", condition, [&](GraphBuilder& body) { accumulate(body, "one", y_, 10); }, otherwise);
      accumulate(g, "after", y_, 2);
      const Plan plan = std::move(g).finish(policy);
      for (const uint32_t value : {0u, 1u, 7u}) {
        set_value(value);
        expect_runs(plan, kUncapturedRuns);
      }
    }
}

TEST_F(ConditionalNodeTest, WhileGoesRoundUntilTheDeviceSaysSo) {
  for (const uint32_t limit : {0u, 1u, 2u, 9u}) {
    GraphBuilder g(device(), "loop");
    declare_all(g);
    const auto again = g.condition("again", 1);
    g.fill("zero", rounds_, 0u);
    g.while_loop("while", again, [&](GraphBuilder& body) {
      accumulate(body, "work", y_, 3);
      body.launch("mix", machine().blend_of(n), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 1});
      body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = limit});
    });
    g.launch("after", machine().accumulate_of(n), {.y = z_, .x = rounds_, .salt = 0});
    const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
    expect_edges(plan, {"zero>while", "while>after"});
    expect_runs(plan, kUncapturedRuns);
    EXPECT_EQ(values(rounds_), std::vector<uint32_t>{std::max(limit, 1u)});
  }
}

TEST_F(ConditionalNodeTest, WhileThatIsFalseAtFirstRunsNothing) {
  GraphBuilder g(device(), "never");
  declare_all(g);
  const auto again = g.condition("again", 1);
  decide(g, "decide", again, value_);
  g.while_loop("while", again, [&](GraphBuilder& body) {
    accumulate(body, "work", y_, 3);
    body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 0});
  });
  set_value(0);
  expect_runs(std::move(g).finish(EdgePolicy::programmatic), kUncapturedRuns);
}

TEST_F(ConditionalNodeTest, SwitchRunsTheBodyOfItsValueOrNone) {
  GraphBuilder g(device(), "choice");
  declare_all(g);
  const auto choice = g.condition("choice", 0);
  decide(g, "decide", choice, value_);
  std::vector<GraphBuilder::Body> bodies;
  for (uint32_t i = 0; i < 3; ++i)
    bodies.emplace_back([this, i](GraphBuilder& body) { accumulate(body, "work", y_, 100 + i); });
  g.switch_case("switch", choice, bodies);
  accumulate(g, "after", y_, 2);
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  for (const uint32_t value : {0u, 1u, 2u, 3u, 999u}) {
    set_value(value);
    expect_runs(plan, kUncapturedRuns);
  }
}

TEST_F(ConditionalNodeTest, ADefaultHoldsWhereNoKernelSetsTheCondition) {
  for (const uint32_t value : {0u, 1u, 2u}) {
    GraphBuilder g(device(), "default");
    declare_all(g);
    g.switch_case("switch", g.condition("c", value),
                  {[&](GraphBuilder& body) { accumulate(body, "work", y_, 5); },
                   [&](GraphBuilder& body) { accumulate(body, "work", z_, 6); }});
    expect_runs(std::move(g).finish(EdgePolicy::full), kUncapturedRuns);
  }
}

// The body of an IF changes its own condition: the next launch begins with the default again.
TEST_F(ConditionalNodeTest, AConditionIsResetAtEachLaunch) {
  GraphBuilder g(device(), "reset");
  declare_all(g);
  const auto condition = g.condition("c", 1);
  g.if_else("if", condition, [&](GraphBuilder& body) {
    accumulate(body, "work", y_, 5);
    decide(body, "off", condition, value_, 1, 0);
  });
  expect_runs(std::move(g).finish(EdgePolicy::full), kUncapturedRuns);
}

TEST_F(ConditionalNodeTest, ConditionalNodesNest) {
  GraphBuilder g(device(), "nest");
  declare_all(g);
  const auto again = g.condition("again", 1);
  g.fill("zero", rounds_, 0u);
  g.while_loop("while", again, [&](GraphBuilder& body) {
    body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 6});
    const auto odd = body.condition("odd", 0);
    decide(body, "decide", odd, rounds_, 2);
    body.if_else(
        "if", odd,
        [&](GraphBuilder& then) {
          accumulate(then, "then", y_, 4);
          const auto third = then.condition("third", 0);
          decide(then, "decide", third, rounds_, 3);
          then.switch_case("switch", third,
                           {[&](GraphBuilder& c) { accumulate(c, "zero", z_, 1); },
                            [&](GraphBuilder& c) { c.fill("one", z_, 9u); }});
        },
        [&](GraphBuilder& otherwise) { accumulate(otherwise, "else", y_, 8); });
  });
  accumulate(g, "after", y_, 2);
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_runs(plan, kUncapturedRuns);
  EXPECT_EQ(plan.nodes[1].bodies[0]->name, "nest/while.body");
  EXPECT_EQ(plan.nodes[1].bodies[0]->nodes[2].bodies[1]->name, "nest/while.body/if.else");
}

// The inner condition is set in the first round only: it keeps its value until the next launch.
TEST_F(ConditionalNodeTest, AnInnerConditionIsResetByALaunchAndNotByARound) {
  GraphBuilder g(device(), "inner");
  declare_all(g);
  const auto again = g.condition("again", 1);
  g.fill("zero", rounds_, 0u);
  g.while_loop("while", again, [&](GraphBuilder& body) {
    body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 4});
    const auto inner = body.condition("inner", 0);
    const auto first = body.condition("first", 0);
    decide(body, "is_first", first, rounds_, 2);
    body.if_else("first_round", first, [&](GraphBuilder& then) { decide(then, "set", inner, value_, 1, 1); });
    body.if_else("if", inner, [&](GraphBuilder& then) { accumulate(then, "work", y_, 4); });
  });
  expect_runs(std::move(g).finish(EdgePolicy::full), kUncapturedRuns);
}

TEST_F(ConditionalNodeTest, BodiesHoldCopiesFillsEmptyNodesAndChildren) {
  GraphBuilder part(device(), "part");
  declare_all(part);
  accumulate(part, "work", y_, 5);
  const Plan child = std::move(part).finish(EdgePolicy::full);
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    GraphBuilder g(device(), "kinds");
    declare_all(g);
    const auto condition = g.condition("c", 1);
    g.if_else("if", condition, [&](GraphBuilder& body) {
      body.child("part", child, ownership);
      body.copy("copy", z_.subview(0, 40), y_.subview(10, 40), 160);
      body.copy_rows("rows", z_.subview(40, 40), x_, {.bytes = 16, .rows = 5, .to_pitch = 32, .from_pitch = 16});
      const NodeId fill = body.fill("fill", z_.subview(80, 10), 3u);
      body.empty("end", {.after = {fill}});
      body.if_else("empty_body", body.condition("inner", 1), [](GraphBuilder&) {});
    });
    expect_runs(std::move(g).finish(EdgePolicy::programmatic), kUncapturedRuns);
  }
}

TEST_F(ConditionalNodeTest, ANodeOfABodyMayReadBuffersThatLieSideBySide) {
  const DeviceBuffer both(device(), "both", 2 * n * sizeof(uint32_t));
  const Words left = view_of<uint32_t>(both).subview(0, n), right = view_of<uint32_t>(both).subview(n, n);
  GraphBuilder g(device(), "neighbours");
  declare_all(g);
  g.declare({"left", left.address(), left.bytes(), "activation"}, {.live_in = true});
  g.declare({"right", right.address(), right.bytes(), "activation"}, {.live_in = true});
  const auto condition = g.condition("c", 1);
  g.if_else("if", condition, [&](GraphBuilder& body) {
    body.launch("mix", machine().blend_of(n), {.a = left, .b = right, .key = {}, .y = z_, .salt = 1});
  });
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  std::vector<std::string> read;
  for (const Use& use : plan.nodes.back().uses)
    if (use.access == Access::in) read.push_back(plan.buffers[use.buffer].range.name);
  EXPECT_EQ(std::count(read.begin(), read.end(), "left"), 1);
  EXPECT_EQ(std::count(read.begin(), read.end(), "right"), 1);
}

TEST_F(ConditionalNodeTest, KernelsCopiesAndFillsInsideBodiesAreRefusedFrozenWrites) {
  GraphBuilder g(device(), "frozen");
  declare_all(g);
  g.launch("reads", machine().blend_of(n), {.a = x_, .b = x_, .key = {z_.data, z_.count}, .y = y_, .salt = 1});
  expect_words(
      error_of([&] { g.if_else("if", g.condition("c", 1), [&](GraphBuilder& body) { body.fill("late", z_, 1u); }); }),
      {"'if'", "'late'", "'reads' declares frozen"});
}

TEST_F(ConditionalNodeTest, WhatABodyCannotHoldIsRefusedByName) {
  const Event event(device(), "event");
  const auto refused = [&](const GraphBuilder::Body& body) {
    GraphBuilder g(device(), "refusals");
    declare_all(g);
    const std::string message = error_of([&] { g.if_else("if", g.condition("c", 1), body); });
    EXPECT_EQ(g.node_count(), 0u);
    return message;
  };
  expect_words(refused([](GraphBuilder& body) { body.host("call", [] {}, {}); }),
               {"'call'", "refusals/if.then", "body cannot hold", "host"});
  expect_words(refused([&](GraphBuilder& body) { body.record_event("note", event, {}); }), {"'note'", "event record"});
  expect_words(refused([&](GraphBuilder& body) { body.wait_event("hold", event, {}); }), {"'hold'", "event wait"});
  GraphBuilder inner(device(), "inner");
  inner.host("call", [] {}, {});
  const Plan with_host = std::move(inner).finish(EdgePolicy::full);
  expect_words(refused([&](GraphBuilder& body) { body.child("part", with_host); }), {"'part'", "'call'", "host"});
}

TEST_F(ConditionalNodeTest, ConditionsAreObeyedOnceByANodeOfTheirOwnBuilder) {
  GraphBuilder other(device(), "other");
  const auto foreign = other.condition("c", 1);
  GraphBuilder g(device(), "conditions");
  declare_all(g);
  const GraphBuilder::Body nothing = [](GraphBuilder&) {};
  expect_words(error_of([&] { g.if_else("if", foreign, nothing); }), {"'if'", "not one of the 0 of plan 'conditions'"});
  expect_words(error_of([&] { decide(g, "decide", foreign, value_); }), {"'decide'", "field 'condition'"});
  const auto own = g.condition("own", 1);
  g.if_else("if", own, nothing);
  expect_words(error_of([&] { g.while_loop("while", own, nothing); }), {"'while'", "'if' obeys its condition already"});
  expect_words(error_of([&] {
                 g.if_else("outer", g.condition("outer", 1),
                           [&](GraphBuilder& body) { body.if_else("inner", own, nothing); });
               }),
               {"'inner'", "not one of the 0"});
  expect_words(error_of([&] { g.switch_case("switch", own, {}); }), {"'switch'"});
  expect_words(error_of([&] { std::move(g).finish(EdgePolicy::full); }), {"'conditions'", "no conditional node obeys"});
}

// Without a reset the value is undefined when a launch begins, whatever an earlier launch has left.
TEST_F(ConditionalNodeTest, AConditionThatIsNotResetIsSetBeforeItsNode) {
  GraphBuilder g(device(), "undefined");
  declare_all(g);
  const auto clear = [&](GraphBuilder& body) { body.fill("clear", y_, 0u); };
  const auto kept = g.condition("kept", 1, false), later = g.condition("later", 1, false);
  const std::initializer_list<std::string_view> words{"'kept' is not reset at each launch", "undefined at the start",
                                                      "no earlier node sets it", "a kernel before the node"};
  expect_error([&] { g.if_else("if", kept, clear); }, words);
  expect_error([&] { g.switch_case("switch", kept, {clear}); }, words);
  expect_error(
      [&] {
        g.while_loop("while", kept, [&](GraphBuilder& body) {
          body.launch("count", machine().count, {.rounds = rounds_, .again = kept, .limit = 3});
        });
      },
      words);
  expect_error(
      [&] {
        g.if_else("outer", g.condition("outer", 1),
                  [&](GraphBuilder& body) { body.if_else("inner", body.condition("within", 1, false), clear); });
      },
      {"node 'inner'", "'within' is not reset", "no earlier node sets it"});
  EXPECT_EQ(g.node_count(), 0u);
  decide(g, "decide", kept, value_);
  g.if_else("if", kept, [&](GraphBuilder& body) { decide(body, "next", later, value_); });
  g.if_else("after", later, clear);  // perhaps set: a checked launch says when it is not
  EXPECT_EQ(g.node_count(), 3u);
  for (const uint32_t value : {0u, 1u}) {
    GraphBuilder set(device(), "set");
    declare_all(set);
    const auto own = set.condition("own", 1, false);
    decide(set, "decide", own, value_);
    set.if_else("if", own, clear);
    set_value(value);
    expect_runs(std::move(set).finish(), kUncapturedRuns);
  }
}

TEST_F(ConditionalNodeTest, ALoopWhoseBodySetsNoConditionOfItsOwnIsRefused) {
  for (const bool reset : {true, false}) {
    GraphBuilder g(device(), "endless");
    declare_all(g);
    const auto again = g.condition("again", 1, reset), other = g.condition("other", 0);
    decide(g, "decide", again, value_);
    expect_error(
        [&] { g.while_loop("while", again, [&](GraphBuilder& body) { accumulate(body, "work", y_, 1); }); },
        {"node 'while'", "nothing in its body sets its condition 'again'", "never end", "a kernel of the body"});
    expect_error([&] { g.while_loop("while", again, [&](GraphBuilder& body) { decide(body, "set", other, value_); }); },
                 {"node 'while'", "nothing in its body sets its condition 'again'"});
    EXPECT_EQ(g.node_count(), 1u);
  }
}

// The branch that would set it does not run.
TEST_F(ConditionalNodeTest, AnEagerRunObeysNoUndefinedCondition) {
  GraphBuilder g(device(), "unset");
  declare_all(g);
  const auto kept = g.condition("kept", 0, false);
  g.if_else("first", g.condition("c", 0), [&](GraphBuilder& body) { decide(body, "set", kept, value_); });
  g.if_else("if", kept, [&](GraphBuilder& body) { body.fill("clear", y_, 0u); });
  const Plan plan = std::move(g).finish();
  expect_error([&] { PlanRun(plan, RunMode::eager, stream_).launch(); },
               {"'if'", "no node has set it in this one", "on every path"});
}

// A body that reaches for the builder outside would end up with another node's number.
TEST_F(ConditionalNodeTest, ABodyThatAddsToTheOuterBuilderIsRefused) {
  GraphBuilder g(device(), "leak");
  declare_all(g);
  expect_words(error_of([&] { g.if_else("if", g.condition("c", 1), [&](GraphBuilder&) { g.fill("stray", y_, 1u); }); }),
               {"'if'", "'stray'", "its body"});
}

TEST_F(ConditionalNodeTest, CapturingAPlanWithAConditionalNodeIsRefusedByName) {
  GraphBuilder g(device(), "captured");
  declare_all(g);
  g.if_else("if", g.condition("c", 1), [&](GraphBuilder& body) { accumulate(body, "work", y_, 5); });
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_words(error_of([&] { CapturedGraph captured(plan, stream_); }), {"'captured'", "'if'", "capture"});
}

// A kernel after the conditional node still sets the condition, when an eager run is over for the host.
TEST_F(ConditionalNodeTest, AConditionMayBeSetBehindItsNode) {
  GraphBuilder g(device(), "behind");
  declare_all(g);
  const auto condition = g.condition("c", 1);
  g.if_else("if", condition, [&](GraphBuilder& body) { accumulate(body, "work", y_, 5); });
  decide(g, "late", condition, value_);
  expect_runs(std::move(g).finish(EdgePolicy::full), kUncapturedRuns);
}

TEST_F(ConditionalNodeTest, WhatABodyTouchesOrdersTheNodesAround) {
  GraphBuilder g(device(), "around");
  declare_all(g);
  const auto condition = g.condition("c", 0);
  g.fill("writes_x", x_, 3u);
  decide(g, "decide", condition, value_);
  g.launch("reads_y", machine().blend_of(n), {.a = y_, .b = y_, .key = {}, .y = z_, .salt = 0});
  g.if_else("if", condition, [&](GraphBuilder& body) {
    body.launch("work", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 1});
  });
  g.launch("reads_after", machine().accumulate_of(n), {.y = z_, .x = y_, .salt = 1});
  g.fill("value", value_, 0u);
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"writes_x>if", "decide>if", "reads_y>if", "if>reads_after", "decide>value"});
  for (size_t i = 0; i < plan.edges.size(); ++i) {
    Plan cut = plan;
    cut.edges.erase(cut.edges.begin() + static_cast<std::ptrdiff_t>(i));
    const auto missing = missing_orders(cut);
    EXPECT_TRUE(std::any_of(missing.begin(), missing.end(),
                            [&](const MissingOrder& order) {
                              return order.first == plan.edges[i].from && order.second == plan.edges[i].to;
                            }))
        << "edge " << i << " of '" << plan.nodes[plan.edges[i].from].name << "'";
  }
}

// Beside another conditional node a loop is not safe on the device (loops_address in graph/node.h).
TEST_F(ConditionalNodeTest, ALoopRunsBesideNoOtherConditionalNode) {
  GraphBuilder g(device(), "apart");
  declare_all(g);
  const auto work = [&](GraphBuilder& body) { accumulate(body, "work", y_, 1); };
  const auto nothing = [](GraphBuilder&) {};
  const auto loop = [&](GraphBuilder& builder, const std::string& name) {
    const auto again = builder.condition(name + ".again", 0);
    builder.while_loop(name, again, [&](GraphBuilder& body) {
      body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 0});
    });
  };
  g.if_else("a", g.condition("ca", 1), work);
  g.if_else("b", g.condition("cb", 1), nothing);
  loop(g, "while");
  g.if_else("c", g.condition("cc", 1), nothing);
  g.switch_case("d", g.condition("cd", 0), {nothing});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"a>while", "b>while", "while>c", "while>d"});
  EXPECT_TRUE(missing_orders(plan).empty());
  for (size_t i = 0; i < plan.edges.size(); ++i) {
    Plan cut = plan;
    cut.edges.erase(cut.edges.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(missing_orders(cut).empty()) << "edge " << i;
  }
  expect_runs(plan, kUncapturedRuns);
}

// Nor beside a kernel, a copy or a host node, with which it shares no memory.
TEST_F(ConditionalNodeTest, ALoopRunsBesideNoOtherNode) {
  GraphBuilder g(device(), "alone");
  declare_all(g);
  const auto add_loop = [&](const std::string& name) {
    const auto again = g.condition(name + ".again", 1);
    g.while_loop(name, again, [&](GraphBuilder& body) {
      body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 3});
    });
  };
  g.fill("zero", rounds_, 0u);
  accumulate(g, "before_1", y_, 1);
  accumulate(g, "before_2", z_, 1);
  add_loop("first");
  accumulate(g, "between", y_, 1);
  add_loop("second");
  accumulate(g, "behind_1", y_, 1);
  g.fill("behind_2", z_, 0u);
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"zero>first", "before_1>first", "before_2>first", "first>between", "between>second",
                      "second>behind_1", "second>behind_2"});
  for (size_t i = 0; i < plan.edges.size(); ++i) {
    EXPECT_EQ(plan.edges[i].type, EdgeType::full);
    Plan cut = plan;
    cut.edges.erase(cut.edges.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_FALSE(missing_orders(cut).empty()) << "edge " << i;
  }
  expect_runs(plan, kUncapturedRuns);
}

// Nor do the nodes of its body, though they share no memory; edges between kernels that wait stay programmatic.
TEST_F(ConditionalNodeTest, TheNodesOfALoopsBodyRunOneAfterTheOther) {
  GraphBuilder g(device(), "inside");
  declare_all(g);
  g.fill("zero", rounds_, 0u);
  const auto again = g.condition("again", 1);
  g.while_loop("loop", again, [&](GraphBuilder& body) {
    accumulate(body, "y", y_, 1);
    accumulate(body, "z", z_, 1);
    body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 3});
  });
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  const Plan& body = *plan.nodes.back().bodies.at(0);
  expect_edges(body, {"y~>z", "z~>count"});
  EXPECT_EQ(describe(body, body.edges[0].reasons.at(0)), "WAW loops of inside[0,4)");
  for (size_t i = 0; i < body.edges.size(); ++i) {
    Plan cut = plan, cut_body = body;
    cut_body.edges.erase(cut_body.edges.begin() + static_cast<std::ptrdiff_t>(i));
    cut.nodes.back().bodies[0] = std::make_shared<const Plan>(cut_body);
    EXPECT_FALSE(missing_orders(cut).empty()) << "edge " << i;
  }
  expect_runs(plan, kUncapturedRuns);
}

// On an H200 (driver 580.159.04) graphs like these, without those edges, fail within seconds.
TEST_F(ConditionalNodeTest, ManyGraphsOfLoopsAndBranchesRun) {
  for (int graph = 0; graph < 100; ++graph) {
    GraphBuilder g(device(), "many");
    declare_all(g);
    for (int part = 0; part < 4; ++part) {
      const std::string name = std::to_string(part);
      const auto again = g.condition("again" + name, 1);
      const auto at = static_cast<uint64_t>(part);
      const Words rounds = counts_.subview(at, 1), y = y_.subview(20 * at, 20), z = z_.subview(20 * at, 20);
      g.fill("zero" + name, rounds, 0u);
      g.while_loop("while" + name, again, [&](GraphBuilder& body) {
        accumulate(body, "work", y, 3);
        body.launch("count", machine().count, {.rounds = rounds, .again = again, .limit = 3});
      });
      g.if_else("if" + name, g.condition("c" + name, 1), [&](GraphBuilder& body) { accumulate(body, "one", z, 10); });
    }
    expect_runs(std::move(g).finish(EdgePolicy::full), {RunMode::explicit_});
  }
}

// Likewise graphs like these, when the parts of a body run side by side.
TEST_F(ConditionalNodeTest, WhereALoopHoldsABranchNodesRunOneAfterTheOther) {
  for (int graph = 0; graph < 100; ++graph) {
    GraphBuilder g(device(), "branch_in_loop");
    declare_all(g);
    g.fill("zero", rounds_, 0u);
    const auto again = g.condition("again", 1);
    g.while_loop("while", again, [&](GraphBuilder& body) {
      body.if_else("if", body.condition("c", 0), [&](GraphBuilder& b) { accumulate(b, "one", z_, 10); });
      accumulate(body, "work", y_, 3);
      body.launch("count", machine().count, {.rounds = rounds_, .again = again, .limit = 8});
    });
    const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
    if (graph == 0) {
      expect_edges(plan, {"zero>while"});
      expect_edges(*plan.nodes[1].bodies[0], {"if>work", "work>count"});
    }
    expect_runs(plan, {RunMode::explicit_});
  }
}

// The builder and the check might agree on a use that is not there.
TEST_F(ConditionalNodeTest, TheHazardCheckKnowsWhatANodeObeysWithoutItsUses) {
  GraphBuilder g(device(), "forgotten");
  declare_all(g);
  const auto condition = g.condition("c", 0);
  decide(g, "decide", condition, value_);
  g.if_else("if", condition, [&](GraphBuilder& body) { accumulate(body, "work", y_, 1); });
  Plan plan = std::move(g).finish(EdgePolicy::full);
  std::erase_if(plan.nodes[1].uses, [](const Use& use) { return use.field == kConditionField; });
  EXPECT_TRUE(missing_orders(plan).empty());
  plan.edges.clear();
  const auto missing = missing_orders(plan);
  ASSERT_EQ(missing.size(), 1u);
  EXPECT_EQ(describe(missing[0]), "'decide' (condition: out) and 'if' (condition: in) share c[0,4) without an order");
}

}  // namespace
}  // namespace nodewright
