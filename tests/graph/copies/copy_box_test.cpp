// GraphBuilder::copy_box: what it copies, which bytes order it, what the driver holds of it, and what is refused.
#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/patch.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class CopyBoxTest : public BlendTest {
 protected:
  // Tensors of 4 x 6 x 10 words, 6 x 5 x 12 words.
  Words x_ = words("x", 240), y_ = words("y", 360), in_ = pinned("in", 240);

  // 2 slices of 3 rows of 4 words, from row 1 and word 2 of slice 1 of x to row 2 and word 5 of slice 3 of y.
  static constexpr CopyBox kBox{
      .bytes = 16, .rows = 3, .slices = 2, .to_pitch = 48, .to_height = 5, .from_pitch = 40, .from_height = 6};
  Words from() const { return x_.subview(1 * 60 + 1 * 10 + 2, 240 - 72); }
  Words to() const { return y_.subview(3 * 60 + 2 * 12 + 5, 360 - 209); }

  Plan box_plan(const std::function<void(GraphBuilder&)>& more = {}) {
    GraphBuilder g(device(), "box");
    declare_all(g);
    node_ = g.copy_box("box", to(), from(), kBox);
    if (more) more(g);
    return std::move(g).finish();
  }

  CopyNode node_;
};

TEST_F(CopyBoxTest, EveryRunCopiesTheBoxAndNothingElse) {
  const Plan plan = box_plan();
  EXPECT_EQ(plan.nodes[0].copy.slices, 2u);
  expect_runs(plan, kAllRuns);
  reset();
  ExplicitGraph exec(plan);
  exec.launch(stream_);
  const std::vector<uint32_t> x = values(x_), y = values(y_);
  for (const Initial& memory : initial_) {
    if (memory.name != "y") continue;
    for (size_t slice = 0; slice < 6; ++slice)
      for (size_t row = 0; row < 5; ++row)
        for (size_t word = 0; word < 12; ++word) {
          const bool inside = slice >= 3 && slice < 5 && row >= 2 && word >= 5 && word < 9;
          const size_t at = slice * 60 + row * 12 + word;
          const size_t source = (slice - 2) * 60 + (row - 1) * 10 + word - 3;
          EXPECT_EQ(y[at], inside ? x[source] : memory.words[at]) << slice << " " << row << " " << word;
        }
  }
}

TEST_F(CopyBoxTest, HostMemoryIsAnEnd) {
  GraphBuilder g(device(), "upload");
  declare_all(g);
  g.copy_box("upload", to(), host_end(in_), kBox);
  g.copy_box("download", host_end(in_), to(),
             {.bytes = 16, .rows = 3, .slices = 2, .to_pitch = 40, .to_height = 6, .from_pitch = 48, .from_height = 5});
  expect_runs(std::move(g).finish(), kAllRuns);
}

TEST_F(CopyBoxTest, OnlyBytesOfTheBoxOrderOtherNodes) {
  const Plan plan = box_plan([&](GraphBuilder& g) {
    g.fill("beside", y_.subview(3 * 60 + 2 * 12 + 9, 8), 1u);  // between two rows of the box
    g.fill("between", y_.subview(3 * 60 + 5 * 12, 20), 1u);    // between its slices
    g.fill("inside", y_.subview(4 * 60 + 3 * 12 + 8, 1), 1u);  // the last word of a row
    g.fill("source", x_.subview(2 * 60 + 3 * 10 + 2, 1), 1u);  // the first word of the last row
    g.fill("before source", x_.subview(2 * 60 + 3 * 10 + 1, 1), 1u);
  });
  expect_edges(plan, {"box>inside", "box>source"});
}

TEST_F(CopyBoxTest, ABoxThatRowsDescribeIsACopyOfRows) {
  GraphBuilder g(device(), "rows");
  declare_all(g);
  g.copy_box("dense", y_, x_,
             {.bytes = 8, .rows = 3, .slices = 4, .to_pitch = 20, .to_height = 3, .from_pitch = 16, .from_height = 3});
  g.copy_box("one row a slice", y_, x_,
             {.bytes = 8, .slices = 4, .to_pitch = 20, .to_height = 3, .from_pitch = 16, .from_height = 2});
  g.copy_box("one slice", y_, x_, {.bytes = 8, .rows = 3, .to_pitch = 20, .from_pitch = 16});
  const Plan plan = std::move(g).finish();
  EXPECT_EQ(plan.nodes[0].copy.rows, 12u);
  EXPECT_EQ(plan.nodes[1].copy.rows, 4u);
  EXPECT_EQ(plan.nodes[1].copy.to_pitch, 60u);
  EXPECT_EQ(plan.nodes[1].copy.from_pitch, 32u);
  EXPECT_EQ(plan.nodes[2].copy.rows, 3u);
  for (const PlanNode& node : plan.nodes) EXPECT_EQ(node.copy.slices, 1u) << node.name;
  expect_runs(plan, kAllRuns);
}

TEST_F(CopyBoxTest, DumpsAndReadBackKnowTheSlices) {
  const Plan plan = box_plan();
  EXPECT_NE(to_text(plan).find("memcpy 2 slices of 3 rows of 16 B on device"), std::string::npos) << to_text(plan);
  EXPECT_NE(to_json(plan).find("\"slices\": 2"), std::string::npos);
  const std::string json = to_json(plan);
  EXPECT_TRUE(diff_plans({json, "one"}, {to_json(box_plan()), "two"}).equal());
  ExplicitGraph exec(plan);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(CopyBoxTest, NeitherAPatchNorAnUpdateTakesAnotherBox) {
  ExplicitGraph exec(box_plan());
  PatchSet patches(exec);
  expect_error([&] { patches.copy(node_, to(), from(), 16); }, {"'box'", "it copies rows"});
  expect_error(
      [&] { patches.copy_rows(node_, to(), from(), {.bytes = 16, .rows = 2, .to_pitch = 48, .from_pitch = 40}); },
      {"'box'", "it copies a box", "replace()"});
  GraphBuilder g(device(), "box");
  declare_all(g);
  CopyBox fewer = kBox;
  fewer.slices = 1;
  g.copy_box("box", to(), from(), fewer);
  const Plan next = std::move(g).finish();
  expect_error([&] { exec.update(next); }, {"node 'box'", "it copies rows or a box", "no parameter", "replace()"});
  exec.update(box_plan());
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(CopyBoxTest, BoxesThatDoNotFitAreRefused) {
  const auto refused = [&](CopyBox box, std::initializer_list<std::string_view> words) {
    GraphBuilder g(device(), "box");
    declare_all(g);
    expect_error([&] { g.copy_box("box", to(), from(), box); }, words);
    EXPECT_EQ(g.node_count(), 0u);
  };
  CopyBox box = kBox;
  box.slices = 0;
  refused(box, {"'box'", "0 bytes to copy"});
  box = kBox;
  box.to_pitch = 12;
  refused(box, {"rows of 16 bytes lie 12 bytes apart in 'to'"});
  box = kBox;
  box.from_height = 2;
  refused(box, {"slices of 3 rows of 16 bytes lie 2 rows of 40 bytes apart in 'from'", "a height of at least"});
  box = kBox;
  box.slices = 4;
  refused(box, {"4 rows of 112 bytes, 240 bytes apart, in the 604 bytes of 'to'"});
  box = kBox;
  box.to_height = uint64_t{1} << 62;
  refused(box, {"'to'"});
  GraphBuilder g(device(), "box");
  declare_all(g);
  expect_error([&] { g.copy_box("box", host_end(in_), host_end(in_), kBox); }, {"both ends are host memory"});
  expect_error(
      [&] {
        g.copy_box(
            "box", x_, x_,
            {.bytes = 8, .rows = 2, .slices = 2, .to_pitch = 16, .to_height = 4, .from_pitch = 24, .from_height = 3});
      },
      {"'to'", "'from'", "memory of its own"});
}

}  // namespace
}  // namespace nodewright
