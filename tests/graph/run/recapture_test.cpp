// A captured graph that is captured again with a function for what changed.
#include "graph/run/recapture.h"

#include "graph/run/captured_run.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class RecaptureTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), part_ = words("part", 64);

  struct Form {
    uint32_t salt = 1, value = 3;
    bool from_x = false, longer = false;
  };
  Plan plan_of(const Form& form) {
    GraphBuilder g(device(), "again");
    declare_all(g);
    g.fill("fill", y_, form.value);
    GraphBuilder inner(device(), "inner");
    declare_all(inner);
    inner.launch("blend", machine().blend_of(n), {.a = x_, .b = y_, .key = {}, .y = z_, .salt = form.salt});
    g.child("child", std::move(inner).finish());
    g.copy("copy", part_, form.from_x ? x_ : z_, part_.bytes());
    if (form.longer) g.fill("more", x_, 1u);
    return std::move(g).finish();
  }
  // What the function is called with; from the one numbered `most` on it returns false.
  std::vector<std::string> changes(CapturedGraph& captured, const Plan& plan, size_t most = 100) {
    std::vector<std::string> found;
    const bool taken = captured.recapture(plan, stream_, [&](const RecaptureChange& change) {
      EXPECT_NE(change.before, nullptr);
      EXPECT_EQ(change.before->type, change.after->type);
      found.push_back(describe(change));
      return found.size() < most;
    });
    EXPECT_EQ(taken, found.size() < most);
    return found;
  }
  // A launch computes what the plan does.
  void expect_computes(CapturedGraph& captured, const Plan& plan) {
    reset();
    HostModel reference = model();
    reference.run(plan);
    captured.launch(stream_);
    EXPECT_EQ(difference(reference), "");
  }
};
class RecaptureOnCpuDriver : public RecaptureTest {};

TEST_F(RecaptureOnCpuDriver, EveryChangeIsNamedByItsNodeAndByWhatIsOther) {
  const Plan plan = plan_of({});
  CapturedGraph captured(plan, stream_);
  EXPECT_EQ(changes(captured, plan), std::vector<std::string>{});
  const Plan later = plan_of({.salt = 2, .value = 4, .from_x = true});
  EXPECT_EQ(changes(captured, later),
            (std::vector<std::string>{"fill: value", "blend: argument 'salt'", "copy: from"}));
  expect_computes(captured, later);
  EXPECT_EQ(changes(captured, plan).size(), 3u);  // against what was captured last
  expect_computes(captured, plan);
}

TEST_F(RecaptureOnCpuDriver, WithoutAFunctionItTakesEveryChange) {
  const Plan plan = plan_of({}), later = plan_of({.salt = 2});
  CapturedGraph captured(plan, stream_);
  EXPECT_TRUE(captured.recapture(later, stream_, OnRecaptureChange{}));
  expect_computes(captured, later);
}

TEST_F(RecaptureOnCpuDriver, AFunctionThatEndsItOrThrowsLeavesTheGraphAsItWas) {
  const Plan plan = plan_of({}), later = plan_of({.salt = 2, .value = 4});
  CapturedGraph captured(plan, stream_);
  EXPECT_EQ(changes(captured, later, 1), std::vector<std::string>{"fill: value"});
  expect_computes(captured, plan);
  EXPECT_THROW(captured.recapture(later, stream_, [](const RecaptureChange&) -> bool { throw 7; }), int);
  expect_computes(captured, plan);
  EXPECT_EQ(changes(captured, later).size(), 2u);
  expect_computes(captured, later);
}

TEST_F(RecaptureOnCpuDriver, OtherNodesAreRefusedAndTheGraphStaysAsItWas) {
  const Plan plan = plan_of({}), longer = plan_of({.longer = true});
  CapturedGraph captured(plan, stream_);
  expect_error([&] { changes(captured, longer); }, {"node 'more'", "there are more nodes than before"});
  expect_computes(captured, plan);
  expect_error([&] { captured.recapture(longer, stream_); }, {"'again'", "the edges or the number of nodes changed"});
  expect_computes(captured, plan);
  CapturedGraph of_longer(longer, stream_);
  expect_error([&] { changes(of_longer, plan); }, {"'again'", "cuStreamEndCapture", "fewer nodes than before"});
  expect_computes(of_longer, longer);
}

// The nodes that both have are named all the same.
TEST_F(RecaptureOnCpuDriver, AChangeBeforeANodeThatIsNewOrGoneIsNamed) {
  const Plan plan = plan_of({}), longer = plan_of({.salt = 2, .value = 4, .longer = true});
  std::vector<std::string> found;
  const auto note = [&](const RecaptureChange& change) {
    found.push_back(describe(change));
    return true;
  };
  CapturedGraph captured(plan, stream_), of_longer(longer, stream_);
  const std::vector<std::string> expected = {"fill: value", "blend: argument 'salt'"};
  expect_error([&] { captured.recapture(longer, stream_, note); }, {"node 'more'"});
  EXPECT_EQ(std::exchange(found, {}), expected);
  expect_error([&] { of_longer.recapture(plan, stream_, note); }, {"fewer nodes than before"});
  EXPECT_EQ(found, expected);
}

TEST_F(RecaptureOnCpuDriver, AChangeThatTheInstantiatedGraphCannotTakeIsSaidAndRefused) {
  const auto rows = [&](uint64_t bytes) {
    GraphBuilder g(device(), "rows");
    declare_all(g);
    g.copy_rows("rows", part_, z_, {.bytes = bytes, .rows = 2, .to_pitch = 64, .from_pitch = 64});
    return std::move(g).finish();
  };
  CapturedGraph captured(rows(32), stream_);
  std::vector<std::string> found;
  const auto note = [&](const RecaptureChange& change) {
    EXPECT_FALSE(change.updatable);
    found.push_back(describe(change));
    return true;
  };
  const std::initializer_list<std::string_view> words = {
      "cuGraphExecUpdate", "'rows'", "node 'rows': a parameter changed that may not; the graph is as before"};
  expect_error([&] { captured.recapture(rows(48), stream_, note); }, words);
  expect_error([&] { captured.recapture(rows(48), stream_); }, words);
  EXPECT_EQ(found, std::vector<std::string>{"rows: size; the instantiated graph cannot take it"});
  expect_computes(captured, rows(32));
}

TEST_F(RecaptureTest, ADriverWithoutTheCallIsRefusedByTheVersionThatHasIt) {
  Driver& driver = device().driver();
  const auto call = std::exchange(driver.cuStreamBeginRecaptureToGraph, {});
  const Plan plan = plan_of({});
  CapturedGraph captured(plan, stream_);
  expect_error([&] { captured.recapture(plan, stream_, [](const RecaptureChange&) { return true; }); },
               {"'again'", "cuStreamBeginRecaptureToGraph", "CUDA 13.3", "recapture without a function"});
  captured.recapture(plan, stream_);
  expect_computes(captured, plan);
  driver.cuStreamBeginRecaptureToGraph = call;
}

}  // namespace
}  // namespace nodewright
