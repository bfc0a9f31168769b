// Functions of the host as nodes.
#include "graph/run/eager_run.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class HostNodeTest : public BlendTest {
 protected:
  // x -> in on the host, out = f(in) by the host, out -> y; y feeds a kernel.
  Plan around(std::function<void()> function, EdgePolicy policy = EdgePolicy::programmatic) {
    GraphBuilder g(device(), "around");
    declare_all(g);
    g.copy("load", host_end(in_), x_, x_.bytes());
    g.host("double", std::move(function), {{"in", host_end(in_), Access::in}, {"out", host_end(out_), Access::out}});
    g.copy("store", y_, host_end(out_), y_.bytes());
    g.launch("blend", machine().blend_of(x_.count), {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 5});
    return std::move(g).finish(policy);
  }
  std::function<void()> doubling() const {
    return [in = in_.data, out = out_.data, n = in_.count] {
      for (uint64_t i = 0; i < n; ++i) out[i] = 2 * in[i];
    };
  }

  Words x_ = words("x", 100), y_ = words("y", 100), z_ = words("z", 100), in_ = pinned("in", 100),
        out_ = pinned("out", 100);
};

TEST_F(HostNodeTest, AFunctionRunsAfterWhatItReadsAndBeforeWhatReadsIt) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
    const Plan plan = around(doubling(), policy);
    EXPECT_EQ(plan.edges.size(), 3u) << "load, double, store, blend: one chain";
    expect_runs(plan, kAllRuns, [&](HostModel& model) {
      model.host_functions["double"] = [this](HostModel& m) {
        for (uint64_t i = 0; i < in_.count; ++i) m.word(out_.address() + 4 * i) = 2 * m.word(in_.address() + 4 * i);
      };
    });
  }
}

TEST_F(HostNodeTest, AFunctionAndWhatItHoldsLiveAsLongAsTheGraph) {
  auto held = std::make_shared<int>(0);
  const std::weak_ptr<int> watched = held;
  {
    Plan plan = around([held] { ++*held; });
    const int* calls = held.get();
    held.reset();
    ExplicitGraph exec(std::move(plan));
    CapturedGraph captured(exec.plan(), stream_);
    exec.launch(stream_);
    captured.launch(stream_);
    stream_.synchronize();
    ASSERT_FALSE(watched.expired());
    EXPECT_EQ(*calls, 2);
  }
  EXPECT_TRUE(watched.expired());
}

TEST_F(HostNodeTest, WhatAFunctionThrowsIsReportedOnceByTheNextLaunchOfEveryRun) {
  for (const RunMode mode : kAllRuns) {
    SCOPED_TRACE(to_string(mode));
    reset();
    auto fails = std::make_shared<bool>(true);
    PlanRun run(around([fails] {
                  if (*fails) throw std::runtime_error("the disk is full");
                }),
                mode, stream_);
    run.launch();
    stream_.synchronize();
    expect_words(error_of([&] { run.launch(); }), {"host node 'double'", "the disk is full"});
    *fails = false;
    EXPECT_EQ(error_of([&] { run.launch(); }), "") << "reported and forgotten";
    stream_.synchronize();
    EXPECT_EQ(error_of([&] { run.launch(); }), "");
    stream_.synchronize();
  }
}

TEST_F(HostNodeTest, AFunctionInsideAChildIsReportedByItsNameToo) {
  GraphBuilder inner(device(), "inner");
  inner.host("calls", [] { throw 7; }, {});
  GraphBuilder g(device(), "outer");
  g.child("part", std::move(inner).finish(EdgePolicy::full));
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  for (const RunMode mode : kAllRuns) {
    PlanRun run(plan, mode, stream_);
    run.launch();
    stream_.synchronize();
    expect_words(error_of([&] { run.launch(); }), {"host node 'calls'", "no std::exception"});
  }
}

// The driver calls a function whose graph is gone already.
TEST_F(HostNodeTest, AGraphDestroyedInFlightStillCallsItsFunctionsWithTheirData) {
  auto calls = std::make_shared<int>(0);
  for (const RunMode mode : {RunMode::captured, RunMode::explicit_}) {
    reset();
    *calls = 0;
    {
      PlanRun run(around([calls, data = std::make_shared<std::vector<int>>(1000, 1)] { *calls += data->at(999); }),
                  mode, stream_);
      for (int launch = 0; launch < 5; ++launch) run.launch();
    }
    stream_.synchronize();
    EXPECT_EQ(*calls, 5) << to_string(mode);
  }
}

TEST_F(HostNodeTest, DeviceMemoryAndAMissingFunctionAreRefused) {
  GraphBuilder g(device(), "refusals");
  declare_all(g);
  expect_words(error_of([&] {
                 g.host("peek", [] {}, {{"x", x_, Access::in}});
               }),
               {"'peek'", "'x' is device memory", "pinned"});
  expect_words(error_of([&] { g.host("nothing", {}, {}); }), {"'nothing'", "no function"});
  EXPECT_EQ(g.node_count(), 0u);
}

}  // namespace
}  // namespace nodewright
