// Fills of rows with a pitch, in the three runs, patched, switched off, inside children, timed and dumped.
#include <nlohmann/json.hpp>

#include "graph/dump/graph_dump.h"
#include "graph/patch.h"
#include "graph/timing/node_timer.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class RowFillTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;

  struct Nodes {
    FillNode words, halves, bytes, flat;
  };

  View<uint16_t> halves_of(const Words& words, uint64_t skipped) {
    return {reinterpret_cast<uint16_t*>(words.data) + skipped, words.count * 2 - skipped};
  }
  View<uint8_t> bytes_of(const Words& words, uint64_t skipped) {
    return {reinterpret_cast<uint8_t*>(words.data) + skipped, words.bytes() - skipped};
  }

  // Rows in x, y and z, half a word at the end of z, and an add after all of them.
  Nodes add_all(GraphBuilder& g) {
    Nodes nodes;
    nodes.words = g.fill_rows("words", x_.subview(3, 100), {.count = 2, .rows = 5, .pitch = 28}, 0xdeadbeefu);
    nodes.halves = g.fill_rows("halves", halves_of(y_, 1), {.count = 3, .rows = 4, .pitch = 14}, uint16_t{0xabcd});
    nodes.bytes = g.fill_rows("bytes", bytes_of(z_, 1), {.count = 5, .rows = 3, .pitch = 11}, uint8_t{0x5a});
    nodes.flat = g.fill("flat", halves_of(z_, 2 * n - 3), uint16_t{0x1234});
    g.launch("blend", machine().blend_of(n), {.a = x_, .b = y_, .key = {}, .y = h_, .salt = 1});
    g.launch("add", machine().accumulate_of(n), {.y = h_, .x = z_, .salt = 2});
    return nodes;
  }

  Plan plan_of(const std::string& name, Nodes* nodes = nullptr) {
    GraphBuilder g(device(), name);
    declare_all(g);
    const Nodes added = add_all(g);
    if (nodes != nullptr) *nodes = added;
    return std::move(g).finish(EdgePolicy::programmatic);
  }

  static PlanNode& node_of(Plan& plan, std::string_view name) {
    for (PlanNode& node : plan.nodes)
      if (node.name == name) return node;
    throw std::out_of_range("no such node");
  }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n), h_ = words("h", n);
};

TEST_F(RowFillTest, EveryRunFillsTheSame) { expect_runs(plan_of("rows"), kAllRuns); }

// The host model fills by the same parameters: here the elements are counted out.
TEST_F(RowFillTest, TheRowsAreFilledAndNothingBetweenThem) {
  const auto held_bytes = [&](const Words& words) {
    const std::vector<uint32_t> held = values(words);
    std::vector<unsigned char> bytes(words.bytes());
    std::memcpy(bytes.data(), held.data(), bytes.size());
    return bytes;
  };
  const auto filled = [](size_t at, size_t first, size_t row_bytes, size_t rows, size_t pitch) {
    return at >= first && (at - first) / pitch < rows && (at - first) % pitch < row_bytes;
  };
  for (const RunMode mode : kAllRuns) {
    reset();
    const auto x = held_bytes(x_), y = held_bytes(y_), z = held_bytes(z_);
    PlanRun run(plan_of("rows"), mode, stream_);
    run.launch();
    const auto x_now = held_bytes(x_), y_now = held_bytes(y_), z_now = held_bytes(z_);
    for (size_t at = 0; at < x.size(); ++at) {
      const unsigned char word[] = {0xef, 0xbe, 0xad, 0xde}, half[] = {0xcd, 0xab}, flat[] = {0x34, 0x12};
      ASSERT_EQ(x_now[at], filled(at, 12, 8, 5, 28) ? word[at % 4] : x[at]) << to_string(mode) << ", byte " << at;
      ASSERT_EQ(y_now[at], filled(at, 2, 6, 4, 14) ? half[at % 2] : y[at]) << to_string(mode) << ", byte " << at;
      const unsigned char expected = at >= x.size() - 6 ? flat[at % 2] : filled(at, 1, 5, 3, 11) ? 0x5a : z[at];
      ASSERT_EQ(z_now[at], expected) << to_string(mode) << ", byte " << at;
    }
  }
}

TEST_F(RowFillTest, OnAStreamEachElementHasItsEntryAndAGraphUsesNone) {
  const DriverEntry entries[] = {DriverEntry::cuMemsetD2D8Async, DriverEntry::cuMemsetD2D16Async,
                                 DriverEntry::cuMemsetD2D32Async, DriverEntry::cuMemsetD16Async};
  for (const RunMode mode : kAllRuns) {
    std::vector<uint64_t> before;
    for (const DriverEntry entry : entries) before.push_back(interposer().calls(entry));
    PlanRun run(plan_of("rows"), mode, stream_);
    run.launch();
    stream_.synchronize();
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(interposer().calls(entries[i]) - before[i], mode == RunMode::explicit_ ? 0u : 1u)
          << to_string(mode) << ", " << entry_name(entries[i]);
  }
}

TEST_F(RowFillTest, ValuesArePatchedAndRowsSwitchedOffAndOn) {
  Nodes nodes;
  ExplicitGraph exec(plan_of("rows", &nodes));
  Plan plan = exec.plan();
  std::set<std::string, std::less<>> off;
  PatchSet patches(exec);
  const auto expect_launch = [&](const std::string& what) {
    patches.apply();
    reset();
    HostModel reference = model();
    reference.off = off;
    reference.run(plan);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << what;
  };
  patches.fill(nodes.words, 0x01020304);
  patches.fill(nodes.halves, 0xfffe);
  patches.fill(nodes.bytes, 0xff);
  node_of(plan, "words").fill.value = 0x01020304;
  node_of(plan, "halves").fill.value = 0xfffe;
  node_of(plan, "bytes").fill.value = 0xff;
  expect_launch("other values");
  expect_words(error_of([&] { patches.fill(nodes.halves, 0x10000); }), {"'halves'", "0x10000", "elements of 2 bytes"});

  // Each reaches further than the one before it, so that spare memory grows while some of it is in use.
  const std::pair<FillNode, std::string> switched[] = {
      {nodes.flat, "flat"}, {nodes.bytes, "bytes"}, {nodes.halves, "halves"}, {nodes.words, "words"}};
  for (const auto& [node, name] : switched) {
    patches.enable(node, false);
    off.insert(name);
    expect_launch(name + " off");
  }
  patches.fill(nodes.words, 7);
  node_of(plan, "words").fill.value = 7;
  expect_launch("a value while it is off");
  for (const auto& [node, name] : switched) {
    patches.enable(node, true);
    off.erase(name);
    expect_launch(name + " on");
  }
}

TEST_F(RowFillTest, AChildTakesOtherValuesAndNoOtherElement) {
  for (const ChildOwnership ownership : {ChildOwnership::moved, ChildOwnership::cloned}) {
    GraphBuilder g(device(), "whole");
    declare_all(g);
    const ChildNode child = g.child("part", plan_of("part"), ownership);
    const Plan whole = std::move(g).finish(EdgePolicy::programmatic);
    expect_runs(whole, kAllRuns);

    ExplicitGraph exec(whole);
    Plan part = plan_of("part");
    FillParameters& fill = node_of(part, "halves").fill;
    fill.value = 0x4321;
    exec.patch_child(child, part);
    reset();
    HostModel reference = model();
    reference.run(part);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "");
    fill.element_bytes = 1;
    fill.count *= 2;
    fill.value = 0x43;
    expect_words(error_of([&] { exec.patch_child(child, part); }), {"'part'", "element of the fill", "'halves'"});
  }
}

TEST_F(RowFillTest, TheTimedTwinFillsTheSameRows) {
  GraphBuilder g(device(), "rows");
  declare_all(g);
  g.fill_rows("words", x_, {.count = 2, .rows = 5, .pitch = 28}, 5u);
  g.fill_rows("more", x_.subview(3, 100), {.count = 1, .rows = 4, .pitch = 28}, 6u);
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  NodeTimer timer(plan, *machine().kernels, stream_);
  reset();
  HostModel reference = model();
  reference.run(plan);
  timer.stamps_of_one_launch();
  EXPECT_EQ(difference(reference), "");
  const PlanTimings timings =
      timer.measure({.samples = 1, .launches_per_sample = 1, .before_launch = {}, .read_peak = {}});
  EXPECT_EQ(timings.nodes.size(), 2u);
}

TEST_F(RowFillTest, DumpsTellTheRows) {
  const Plan plan = plan_of("rows");
  const std::string text = to_text(plan);
  EXPECT_NE(text.find("node 0 words | memset 5 rows of 2 x 4 B to 0xdeadbeef | >to=x[12,20) >to=x[40,48)"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("node 3 flat | memset 3 x 2 B to 0x1234 |"), std::string::npos) << text;
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["nodes"][1]["fill"],
            nlohmann::json::parse(R"({"value": 43981, "element_bytes": 2, "count": 3, "rows": 4})"));
  EXPECT_EQ(json["nodes"][1]["uses"].size(), 4u);
  EXPECT_NE(to_dot(plan).find("label=\"bytes\\nmemset\""), std::string::npos) << to_dot(plan);
  EXPECT_NE(to_html(plan).find(R"("fill":{"value":90,"element_bytes":1,"count":5,"rows":3})"), std::string::npos);
}

}  // namespace
}  // namespace nodewright
