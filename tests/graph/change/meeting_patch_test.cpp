// Patches of what a graph meets the outside by, host functions and events, and of copies of rows.
#include "graph/patch.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class MeetingPatchTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;

  struct Nodes {
    NodeId call, done, hold;
    CopyNode load, rows, one_row;
  };
  Nodes add_all(GraphBuilder& g) {
    Nodes nodes;
    nodes.hold = g.wait_event("hold", first_, {writes(x_)});
    nodes.load = g.copy("load", y_, x_, y_.bytes());
    nodes.rows = g.copy_rows("rows", z_, x_, {.bytes = 16, .rows = 5, .to_pitch = 64, .from_pitch = 32});
    nodes.one_row = g.copy_rows("one_row", w_, x_, {.bytes = 40, .rows = 1});
    g.copy("store", host_end(out_), y_, y_.bytes());
    nodes.call = g.host("call", [this] { out_.data[0] = 1; }, {{"out", host_end(out_), Access::inout}});
    nodes.done = g.record_event("done", first_, {reads(z_)});
    return nodes;
  }
  Plan plan_of(bool in_child, Nodes& nodes) {
    GraphBuilder g(device(), "meeting");
    declare_all(g);
    if (in_child) {
      GraphBuilder part(device(), "part");
      declare_all(part);
      nodes = add_all(part);
      g.child("part", std::move(part).finish());
    } else {
      nodes = add_all(g);
    }
    return std::move(g).finish();
  }
  uint32_t called(ExplicitGraph& exec) {
    out_.data[0] = 0;
    exec.launch(stream_);
    stream_.synchronize();
    return out_.data[0];
  }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), w_ = words("w", n), out_ = pinned("out", n);
  Event first_{device(), "first"}, second_{device(), "second"}, third_{device(), "third"};
  Stream other_{device(), "other"};
};

TEST_F(MeetingPatchTest, AHostNodeCallsAnotherFunctionFromTheNextLaunchOn) {
  for (const bool in_child : {false, true}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(in_child, nodes));
    EXPECT_EQ(called(exec), 1u);
    PatchSet patches(exec);
    auto held = std::make_shared<uint32_t>(7);
    const std::weak_ptr<uint32_t> watched = held;
    patches.host(nodes.call, [this, held] { out_.data[0] = *held; });
    held.reset();
    EXPECT_EQ(called(exec), 1u) << "not applied yet";
    patches.apply();
    EXPECT_EQ(called(exec), 7u);
    patches.host(nodes.call, [] { throw std::runtime_error("out of paper"); });
    patches.apply();
    called(exec);
    expect_words(error_of([&] { called(exec); }), {"run host node", "'call'", "out of paper"});

    exec.launch(stream_);
    patches.host(nodes.call, [this] { out_.data[0] = 9; });
    patches.apply();  // while the launch before may run
    stream_.synchronize();
    expect_words(error_of([&] { called(exec); }), {"out of paper"});
    EXPECT_EQ(called(exec), 9u);
    ExplicitGraph again(plan_as_patched(exec));
    EXPECT_EQ(called(again), 9u) << "the patched plan calls it, too";
    EXPECT_EQ(read_back(again), std::vector<std::string>{});
    EXPECT_FALSE(watched.expired()) << "a launch under way might call it";
  }
}

TEST_F(MeetingPatchTest, FunctionsThatNoLaunchNeedsAreLetGo) {
  Nodes nodes;
  ExplicitGraph exec(plan_of(false, nodes));
  const auto counted = std::make_shared<uint32_t>(0);
  for (uint32_t i = 0; i < 5000; ++i) {
    PatchSet patches(exec);
    patches.host(nodes.call, [this, counted, i] { out_.data[0] = i; });
    patches.apply();
    if (i % 1000 == 0) {
      EXPECT_EQ(called(exec), i);
    }
  }
  EXPECT_LT(counted.use_count(), 2500);
  EXPECT_EQ(called(exec), 4999u);
}

TEST_F(MeetingPatchTest, AnEventNodeTakesAnotherEvent) {
  for (const bool in_child : {false, true}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(in_child, nodes));
    PatchSet patches(exec);
    patches.event(nodes.done, second_);
    patches.event(nodes.hold, third_);
    patches.apply();
    const Plan patched = plan_as_patched(exec);
    const Plan& inside = in_child ? *patched.nodes[0].bodies[0] : patched;
    EXPECT_EQ(inside.nodes[nodes.done.index].event, second_.get());
    EXPECT_EQ(inside.nodes[nodes.hold.index].event, third_.get());

    // What the other stream writes before the third event is there, and what the graph wrote is seen after the second.
    reset();
    HostModel reference = model();
    for (uint32_t i = 0; i < 10; ++i) reference.word(x_.address() + 4 * i) = 4242;
    const std::vector<uint32_t> written(10, 4242);
    device().driver().check(device().driver().cuMemcpyHtoDAsync(x_.address(), written.data(), 40, other_.get()),
                            "cuMemcpyHtoDAsync", "write", "x");
    third_.record(other_);
    reference.host_functions["call"] = [this](HostModel& m) { m.word(out_.address()) = 1; };
    reference.run(exec.plan());
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "");
    other_.wait(second_);
    other_.synchronize();
    EXPECT_TRUE(second_.done());
  }
}

TEST_F(MeetingPatchTest, ACopyOfRowsTakesWhatTheDriverTakesOrNamesItsRule) {
  for (const bool in_child : {false, true}) {
    Nodes nodes;
    ExplicitGraph exec(plan_of(in_child, nodes));
    const auto expect_launch = [&](const std::string& what) {
      reset();
      HostModel reference = model();
      reference.host_functions["call"] = [this](HostModel& m) { m.word(out_.address()) = 1; };
      reference.run(plan_as_patched(exec));
      exec.launch(stream_);
      EXPECT_EQ(difference(reference), "") << what;
    };
    PatchSet patches(exec);
    patches.copy_rows(nodes.one_row, w_.subview(2, 8), x_.subview(1, 8), {.bytes = 32, .rows = 1});
    patches.apply();
    expect_launch("a copy of one row");

    patches.copy_rows(nodes.rows, z_.subview(16, 60), x_.subview(0, 60),
                      {.bytes = 12, .rows = 3, .to_pitch = 64, .from_pitch = 64});
    const std::string message = error_of([&] { patches.apply(); });
    if (!message.empty()) expect_words(message, {"'rows'", "were undone", "a copy of one row"});
    EXPECT_TRUE(!message.empty() || !device().driver().is_cpu()) << "cuda.h says that it takes none";
    expect_launch("a copy of rows");
  }
}

TEST_F(MeetingPatchTest, WhatIsRefusedNamesTheNode) {
  Nodes nodes;
  ExplicitGraph exec(plan_of(false, nodes));
  PatchSet patches(exec);
  const auto refused = [&](auto action, std::initializer_list<std::string_view> words) {
    expect_words(error_of(action), words);
    EXPECT_EQ(patches.size(), 0u);
  };
  refused([&] { patches.host(nodes.call, {}); }, {"'call'", "no function"});
  refused([&] { patches.host(nodes.done, [] {}); }, {"'done'", "event record", "no function"});
  refused([&] { patches.event(nodes.call, second_); }, {"'call'", "host", "no event"});
  Event moved(device(), "moved");
  const Event kept(std::move(moved));
  refused([&] { patches.event(nodes.done, moved); }, {"'done'", "moved away"});
  const CopyRows shape{.bytes = 16, .rows = 5, .to_pitch = 64, .from_pitch = 32};
  const auto with = [&](auto edit) {
    CopyRows changed = shape;
    edit(changed);
    return changed;
  };
  refused([&] { patches.copy_rows(nodes.rows, z_, x_, with([](auto& s) { s.bytes = 20; })); },
          {"'rows'", "row 0 of 'to'"});
  refused([&] { patches.copy_rows(nodes.rows, z_, x_, with([](auto& s) { s.rows = 6; })); },
          {"'rows'", "row 5 of 'to'"});
  refused([&] { patches.copy_rows(nodes.rows, z_, x_, with([](auto& s) { s.from_pitch = 36; })); },
          {"row 1 of 'from'"});
  refused([&] { patches.copy_rows(nodes.rows, z_, x_, with([](auto& s) { s.to_pitch = 8; })); }, {"8 bytes apart"});
  refused([&] { patches.copy_rows(nodes.rows, z_, x_, with([](auto& s) { s.rows = 0; })); }, {"0 bytes to copy"});
  refused([&] { patches.copy_rows(nodes.rows, host_end(out_), x_, shape); },
          {"'rows'", "device memory", "host memory"});
  refused([&] { patches.copy_rows(nodes.rows, z_.subview(0, 50), x_, shape); }, {"'rows'", "row 3 of 'to'"});
}

}  // namespace
}  // namespace nodewright
