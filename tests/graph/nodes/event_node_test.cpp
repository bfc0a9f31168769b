// Events recorded by a graph for other streams, and recorded by other streams for a graph.
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class EventNodeTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), seen_ = pinned("seen", n);
  Event ready_{device(), "ready"}, arrived_{device(), "arrived"};
  Stream other_{device(), "other"};
};

TEST_F(EventNodeTest, AnotherStreamSeesWhatWasWrittenBeforeTheEvent) {
  GraphBuilder g(device(), "producer");
  declare_all(g);
  g.launch("make", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
  g.record_event("ready", ready_, {{"y", y_, Access::in}});
  g.launch("more", machine().accumulate_of(n), {.y = z_, .x = x_, .salt = 2});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  for (const RunMode mode : kAllRuns) {
    reset();
    HostModel reference = model();
    PlanRun run(plan, mode, stream_);
    for (int launch = 0; launch < 2; ++launch) {
      run.launch();
      other_.wait(ready_);
      read_device_async(other_, seen_.data, y_.address(), y_.bytes(), "seen");
      other_.synchronize();
      reference.run(plan);
      EXPECT_EQ(std::vector<uint32_t>(seen_.data, seen_.data + n), reference.words(y_.address(), n))
          << to_string(mode) << ", launch " << launch;
      stream_.synchronize();
    }
    if (run.explicit_graph() != nullptr) {
      EXPECT_EQ(read_back(*run.explicit_graph()), std::vector<std::string>{});
    }
  }
}

TEST_F(EventNodeTest, AChildMadeAnewKeepsItsEvents) {
  const auto part = [&](const Event& event) {
    GraphBuilder g(device(), "part");
    declare_all(g);
    g.record_event("ready", event, {reads(y_)});
    return std::move(g).finish(EdgePolicy::full);
  };
  GraphBuilder g(device(), "whole");
  declare_all(g);
  const ChildNode child = g.child("part", part(ready_));
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  EXPECT_EQ(error_of([&] { exec.patch_child(child, part(ready_)); }), "");
  expect_error([&] { exec.patch_child(child, part(arrived_)); }, {"node 'part'", "event of node 'ready' changed"});
}

TEST_F(EventNodeTest, AnEventMayMoveAfterItsNodeWasAdded) {
  Event made(device(), "made");
  GraphBuilder g(device(), "moving");
  declare_all(g);
  g.launch("make", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
  g.record_event("ready", made, {reads(y_)});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  const Event moved(std::move(made));
  for (const RunMode mode : kAllRuns) {
    reset();
    HostModel reference = model();
    PlanRun run(plan, mode, stream_);
    run.launch();
    moved.synchronize();
    reference.run(plan);
    EXPECT_EQ(values(y_), reference.words(y_.address(), n)) << to_string(mode);
  }
}

TEST_F(EventNodeTest, AGraphWaitsForWhatAnotherStreamWroteBeforeTheEvent) {
  GraphBuilder g(device(), "consumer");
  declare_all(g);
  g.wait_event("arrived", arrived_, {{"x", x_, Access::out}});
  g.launch("use", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  ASSERT_EQ(plan.edges.size(), 1u);
  for (const RunMode mode : kAllRuns) {
    reset();
    PlanRun run(plan, mode, stream_);
    for (uint32_t launch = 1; launch < 3; ++launch) {
      const std::vector<uint32_t> sent(n, launch);
      std::copy(sent.begin(), sent.end(), seen_.data);
      write_device_async(other_, x_.address(), seen_.data, x_.bytes(), "sent");
      arrived_.record(other_);
      run.launch();
      HostModel reference = model();
      reference.add(x_.address(), sent);
      reference.run(plan);
      EXPECT_EQ(values(y_), reference.words(y_.address(), n)) << to_string(mode) << ", launch " << launch;
    }
    if (run.explicit_graph() != nullptr) {
      EXPECT_EQ(read_back(*run.explicit_graph()), std::vector<std::string>{});
    }
  }
}

TEST_F(EventNodeTest, EventsInsideAMovedChildWorkAsOutside) {
  GraphBuilder inner(device(), "inner");
  declare_all(inner);
  inner.launch("make", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
  inner.record_event("ready", ready_, {{"y", y_, Access::in}});
  GraphBuilder g(device(), "outer");
  declare_all(g);
  g.child("part", std::move(inner).finish(EdgePolicy::full));
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  for (const RunMode mode : kAllRuns) {
    reset();
    HostModel reference = model();
    reference.run(plan);
    PlanRun run(plan, mode, stream_);
    run.launch();
    ready_.synchronize();
    EXPECT_EQ(values(y_), reference.words(y_.address(), n)) << to_string(mode);
  }
}

TEST_F(EventNodeTest, AnEventThatIsDeclaredTheWrongWayRoundIsRefused) {
  GraphBuilder g(device(), "refusals");
  declare_all(g);
  expect_words(error_of([&] { g.record_event("r", ready_, {{"y", y_, Access::out}}); }), {"'r'", "'y'", "out"});
  expect_words(error_of([&] { g.wait_event("w", arrived_, {{"x", x_, Access::in}}); }), {"'w'", "'x'", "in"});
  const Event moved = std::move(ready_);
  expect_words(error_of([&] { g.record_event("r", ready_, {}); }), {"'r'", "moved away"});
  EXPECT_EQ(g.node_count(), 0u);
}

}  // namespace
}  // namespace nodewright
