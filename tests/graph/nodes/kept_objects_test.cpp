// GraphBuilder::keep: how long graphs of a plan keep its objects.
#include <chrono>
#include <thread>

#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/edit/plan_edit.h"
#include "graph/graph_exec.h"
#include "graph/run/captured_run.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class KeptObjectsTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 100;

  // An object whose life `alive` watches; the plan gets the only reference.
  std::shared_ptr<int> object(std::weak_ptr<int>& alive) {
    const auto made = std::make_shared<int>(7);
    alive = made;
    return made;
  }
  // A thread of the driver may be the last to let go.
  static void expect_gone(const std::weak_ptr<int>& object, const char* what) {
    for (int i = 0; i < 10000 && !object.expired(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(object.expired()) << what;
  }
  Plan simple_plan(std::weak_ptr<int>& alive, uint32_t salt = 1) {
    GraphBuilder g(device(), "step");
    declare_all(g);
    g.keep("table", object(alive));
    g.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = salt});
    return std::move(g).finish();
  }
  // The driver's own graph, which a program may clone and instantiate.
  CUgraphExec instantiate_again(const ExplicitGraph& exec) {
    CUgraphExec again = nullptr;
    CUDA_GRAPH_INSTANTIATE_PARAMS how{};
    EXPECT_EQ(device().driver().cuGraphInstantiateWithParams(&again, exec.graph(), &how), CUDA_SUCCESS);
    return again;
  }

  Words x_ = words("x", n), y_ = words("y", n);
};

TEST_F(KeptObjectsTest, AnObjectLivesAsLongAsTheGraphAndWhatTheDriverMadeOfIt) {
  std::weak_ptr<int> alive;
  auto exec = std::make_unique<ExplicitGraph>(simple_plan(alive));
  const CUgraphExec again = instantiate_again(*exec);
  exec->launch(stream_);
  stream_.synchronize();
  exec.reset();
  EXPECT_FALSE(alive.expired()) << "another executable graph was made from the driver's graph";
  ASSERT_EQ(device().driver().cuGraphExecDestroy(again), CUDA_SUCCESS);
  expect_gone(alive, "the last executable graph is gone");
}

TEST_F(KeptObjectsTest, AnUpdateLetsGoOfTheObjectsOfThePlanBefore) {
  std::weak_ptr<int> first, second, third;
  ExplicitGraph exec(simple_plan(first, 1));
  exec.update(simple_plan(second, 2));
  stream_.synchronize();
  expect_gone(first, "of the first plan");
  EXPECT_FALSE(second.expired());
  exec.update(simple_plan(third, 3));
  expect_gone(second, "of the second plan");
  EXPECT_FALSE(third.expired());

  // Each call of an update fails once.
  size_t failed = 0;
  for (std::weak_ptr<int> refused; failed < 100; ++failed) {
    interposer().fail_call(failed, CUDA_ERROR_INVALID_VALUE);
    const std::string message = error_of([&] { exec.update(simple_plan(refused, 4)); });
    interposer().fail_none();
    if (message.empty()) break;
    expect_gone(refused, message.c_str());
    EXPECT_FALSE(third.expired()) << message;
  }
  EXPECT_GE(failed, 4u) << "create, add, keep, update";
  expect_gone(third, "the last update was not refused");
}

TEST_F(KeptObjectsTest, ObjectsOfBodiesStayWithTheGraph) {
  std::weak_ptr<int> in_body;
  GraphBuilder g(device(), "outer");
  declare_all(g);
  const auto which = g.condition("which", 1);
  g.if_else("choose", which, [&](GraphBuilder& body) {
    body.keep("body", object(in_body));
    body.fill("fill", y_, 3u);
  });
  auto exec = std::make_unique<ExplicitGraph>(std::move(g).finish());
  exec->launch(stream_);
  EXPECT_FALSE(in_body.expired());
  exec.reset();
  stream_.synchronize();
  expect_gone(in_body, "the graph is gone");
}

TEST_F(KeptObjectsTest, ObjectsOfChildrenStayWithTheGraph) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    std::weak_ptr<int> in_child, inside_that;
    const auto make = [&] {
      GraphBuilder innermost(device(), "innermost");
      declare_all(innermost);
      innermost.keep("inside", object(inside_that));
      innermost.fill("fill", x_, 3u);
      GraphBuilder inner(device(), "inner");
      declare_all(inner);
      inner.keep("child", object(in_child));
      inner.child("innermost", std::move(innermost).finish(), ChildOwnership::moved);
      GraphBuilder g(device(), "outer");
      declare_all(g);
      g.child("inner", std::move(inner).finish(), ownership);
      return std::move(g).finish();
    };
    auto exec = std::make_unique<ExplicitGraph>(make());
    const CUgraphExec again = instantiate_again(*exec);
    exec.reset();
    for (const auto* object : {&in_child, &inside_that}) EXPECT_FALSE(object->expired());
    ASSERT_EQ(device().driver().cuGraphExecDestroy(again), CUDA_SUCCESS);
    for (const auto* object : {&in_child, &inside_that}) expect_gone(*object, "the graph is gone");
  }
}

TEST_F(KeptObjectsTest, AChildThatIsUpdatedWithItsGraphKeepsItsOwn) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    std::weak_ptr<int> first, second, patched;
    const auto part = [&](std::weak_ptr<int>& alive) {
      GraphBuilder inner(device(), "inner");
      declare_all(inner);
      inner.keep("child", object(alive));
      inner.fill("fill", x_, 3u);
      return std::move(inner).finish();
    };
    ChildNode node;
    const auto make = [&](std::weak_ptr<int>& alive) {
      GraphBuilder g(device(), "outer");
      declare_all(g);
      node = g.child("inner", part(alive), ownership);
      return std::move(g).finish();
    };
    ExplicitGraph exec(make(first));
    exec.update(make(second));
    expect_gone(first, "of the plan before");
    exec.patch_child(node, part(patched));
    EXPECT_FALSE(patched.expired());
    exec.launch(stream_);
    EXPECT_EQ(values(x_)[0], 3u);
  }
}

TEST_F(KeptObjectsTest, ACapturedGraphKeepsThemWithoutThePlan) {
  std::weak_ptr<int> alive, next;
  {
    auto plan = std::make_unique<Plan>(simple_plan(alive));
    CapturedGraph captured(*plan, stream_);
    plan.reset();
    captured.launch(stream_);
    EXPECT_FALSE(alive.expired());
    captured.recapture(simple_plan(next, 2), stream_);
    stream_.synchronize();
    expect_gone(alive, "captured anew");
    EXPECT_FALSE(next.expired());
  }
  expect_gone(next, "the captured graph is gone");
}

TEST_F(KeptObjectsTest, DumpsDiffsAndEditsKnowThem) {
  std::weak_ptr<int> alive, other;
  const Plan plan = simple_plan(alive);
  EXPECT_NE(to_text(plan).find("\nkeeps table\n"), std::string::npos) << to_text(plan);
  const std::string json = to_json(plan);
  EXPECT_NE(json.find("\"kept\": [\n    \"table\"\n  ]"), std::string::npos) << json;
  EXPECT_TRUE(diff_plans({json, "one"}, {to_json(simple_plan(other)), "two"}).equal());
  GraphBuilder g(device(), "step");
  declare_all(g);
  g.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 1});
  EXPECT_NE(to_text(diff_plans(plan, std::move(g).finish())).find("kept"), std::string::npos);
  std::string broken = json;
  broken.replace(broken.find("\"table\""), 7, "17");
  expect_error([&] { diff_plans({broken, "broken"}, {json, "one"}); }, {"broken", "keeps an object"});
  EXPECT_EQ(PlanEdit(plan).finish().kept.size(), 1u);
}

TEST_F(KeptObjectsTest, WhatCannotBeKeptIsRefused) {
  GraphBuilder g(device(), "step");
  expect_error([&] { g.keep("nothing", std::shared_ptr<int>()); }, {"'nothing'", "there is none"});
  expect_error([&] { g.keep("", std::make_shared<int>(1)); }, {"its name is empty"});
  g.keep("one", std::make_shared<int>(1));
  expect_error([&] { g.keep("one", std::make_shared<int>(2)); }, {"'one'", "another object has the name"});
}

}  // namespace
}  // namespace nodewright
