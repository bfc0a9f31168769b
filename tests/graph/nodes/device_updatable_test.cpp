// Kernel nodes that the device may update: their handle, the upload that they need, and where they may not be.
#include "graph/dump/graph_dump.h"
#include "graph/edges/plan_hash.h"
#include "graph/patch.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class DeviceUpdatableTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n);

  Node<Blend> blend(GraphBuilder& g, std::string_view name, const Words& from, const Words& to, bool updatable) {
    NodeOptions options;
    options.attributes.device_updatable = updatable;
    return g.launch(name, machine().blend_of(n), {.a = from, .b = from, .key = {}, .y = to, .salt = 1}, options);
  }
  Plan chain() {
    GraphBuilder g(device(), "chain");
    declare_all(g);
    first_ = blend(g, "first", x_, y_, true);
    second_ = blend(g, "second", y_, z_, false);
    return std::move(g).finish(EdgePolicy::full);
  }

  Node<Blend> first_, second_;
};

TEST_F(DeviceUpdatableTest, EveryRunComputesTheSameAndTheDriverKeepsTheAttribute) {
  const Plan plan = chain();
  expect_runs(plan, kAllRuns);
  expect_words(to_text(plan), {"node 0 first | blend <4,1,1> <64,1,1> device-updatable |"});
  expect_words(to_json(plan), {"\"device_updatable\": true"});
  Plan plain = plan;
  plain.nodes[0].attributes.device_updatable = false;
  EXPECT_NE(plan_hash(plan), plan_hash(plain));
  const ExplicitGraph exec(plain);
  const_cast<PlanNode&>(exec.plan().nodes[0]).attributes.device_updatable = true;
  const auto differences = read_back(exec);
  ASSERT_EQ(differences.size(), 1u);
  expect_words(differences[0], {"'first'", "device-updatable is true in the plan and false in the driver"});
}

TEST_F(DeviceUpdatableTest, TheHandleIsThatOfTheNode) {
  const Plan plan = chain();
  const ExplicitGraph one(plan), two(plan);
  EXPECT_NE(one.device_node(first_), nullptr);
  EXPECT_NE(one.device_node(first_), two.device_node(first_));
  expect_error([&] { one.device_node(second_); }, {"'second'", "do not say that the device may update it"});
}

TEST_F(DeviceUpdatableTest, ALaunchBehindABuildOrAPatchNeedsAnUpload) {
  ExplicitGraph exec(chain());
  const auto needs_upload = [&] {
    expect_error([&] { exec.launch(stream_); }, {"'chain'", "node 'first'", "call ExplicitGraph::upload first"});
    exec.upload(stream_);
    exec.launch(stream_);
  };
  needs_upload();
  exec.patch(first_, &Blend::salt, 5u);
  needs_upload();
  exec.patch(second_, &Blend::salt, 5u);
  exec.launch(stream_);
  PatchSet patches(exec);
  patches.set(first_, &Blend::salt, 6u);
  patches.apply();
  needs_upload();
  stream_.synchronize();
}

TEST_F(DeviceUpdatableTest, ChildrenAndBodiesCannotHaveOne) {
  GraphBuilder g(device(), "places");
  declare_all(g);
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned})
    expect_error([&] { g.child("c", chain(), ownership); },
                 {"'c'", "the device may update node 'first' of plan 'chain'", "a child graph cannot have"});
  const ConditionHandle condition = g.condition("c", 1);
  expect_error([&] { g.if_else("i", condition, [&](GraphBuilder& body) { blend(body, "b", x_, y_, true); }); },
               {"'b'", "a conditional node's body cannot hold a kernel that the device may update"});
  EXPECT_EQ(g.node_count(), 0u);
}

}  // namespace
}  // namespace nodewright
