// Copies to and from CUDA arrays: what they copy, which boxes order them, what the driver holds, dumps, patches, and
// what is refused.
#include "graph/dump/graph_dump.h"
#include "graph/patch.h"
#include "graph/read/read_graph.h"
#include "runtime/context_guard.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class ArrayCopyTest : public BlendTest {
 protected:
  // 3 slices of 5 rows of 8 elements of 8 bytes; 6 rows of 10 elements of 4 bytes.
  ArrayCopyTest() : cube_(create(8, 5, 3, 2)), flat_(create(10, 6, 0, 1)) {}
  ~ArrayCopyTest() override {
    const ContextGuard current(device());
    for (const CUarray array : {cube_, flat_}) device().driver().cuArrayDestroy(array);
  }

  CUarray create(size_t width, size_t height, size_t depth, unsigned channels) {
    const ContextGuard current(device());
    const CUDA_ARRAY3D_DESCRIPTOR descriptor{.Width = width,
                                             .Height = height,
                                             .Depth = depth,
                                             .Format = CU_AD_FORMAT_UNSIGNED_INT32,
                                             .NumChannels = channels,
                                             .Flags = 0};
    CUarray array = nullptr;
    const Driver& driver = device().driver();
    driver.check(driver.cuArray3DCreate(&array, &descriptor), "cuArray3DCreate", "create", "array");
    return array;
  }
  void declare(GraphBuilder& g) {
    declare_all(g);
    cube = g.declare_array("cube", cube_);
    flat = g.declare_array("flat", flat_);
  }
  // Into a box of the cube, on within it, and back out to memory.
  Plan through(const std::function<void(GraphBuilder&)>& more = {}) {
    GraphBuilder g(device(), "through");
    declare(g);
    in_ = g.copy_box("in", cube.at(16, 1, 0), x_,
                     {.bytes = 24, .rows = 2, .slices = 2, .from_pitch = 32, .from_height = 3});
    g.copy_box("on", flat.at(4, 0), cube.at(16, 1, 1), {.bytes = 24, .rows = 2});
    out_ = g.copy("out", y_, flat.at(8, 1), 16);
    g.copy_rows("host", host_end(host_), flat.at(4, 0), {.bytes = 8, .rows = 2, .to_pitch = 20});
    if (more) more(g);
    return std::move(g).finish();
  }
  void add_arrays(HostModel& model) const {
    for (const ArrayRange& array : {cube, flat})
      model.add(array.address, std::vector<uint32_t>(array.shape.bytes() / sizeof(uint32_t)));
  }
  void expect_result(const Plan& plan, ExplicitGraph& exec) {
    reset();
    HostModel reference = model();
    add_arrays(reference);
    reference.run(plan);
    exec.launch(stream_);
    stream_.synchronize();
    EXPECT_EQ(difference(reference), "");
  }

  Words x_ = words("x", 60), y_ = words("y", 60), host_ = pinned("host", 60);
  CUarray cube_, flat_;
  ArrayRange cube, flat;
  CopyNode in_, out_;
};

TEST_F(ArrayCopyTest, BoxesPassThroughArraysInEveryRun) {
  const Plan plan = through();
  expect_edges(plan, {"in>on", "on>out", "on>host"});
  expect_runs(plan, kAllRuns, [&](HostModel& model) { add_arrays(model); });
}

TEST_F(ArrayCopyTest, OnlyTheElementsOfABoxOrderOtherNodes) {
  const Plan plan = through([&](GraphBuilder& g) {
    g.copy("beside", cube.at(40, 1, 0), x_, 24);
    g.copy("between", cube.at(0, 4, 0), x_, 64);
    g.copy("inside", cube.at(32, 2, 1), x_, 8);
    g.library(
        "listed", {reads(flat.bytes().subview(4, 8))}, [](CUstream) {}, [] {});
  });
  expect_edges(plan, {"in>on", "on>out", "on>host", "on>inside", "on>listed"});
}

TEST_F(ArrayCopyTest, AReadOfWhatNobodyWroteIsRefused) {
  GraphBuilder g(device(), "unwritten");
  declare(g);
  g.copy("in", cube.at(0, 0, 0), x_, 64);
  expect_error([&] { g.copy("out", y_, cube.at(0, 1, 0), 8); },
               {"'out'", "reads cube[64,72)", "no earlier node writes"});
}

TEST_F(ArrayCopyTest, DumpsAndReadGraphSayArrayAndOrigin) {
  const Plan plan = through();
  const std::string text = to_text(plan);
  expect_words(text, {"memcpy 2 slices of 2 rows of 24 B from device to array (16,1,0)",
                      "2 rows of 24 B from array (16,1,1) to array (4,0,0)", "16 B from array (8,1,0) to device",
                      "from array (4,0,0) to host"});
  expect_words(to_json(plan), {"\"to\": \"array\"", "\"to_origin\": ["});
  ExplicitGraph exec(plan);
  const Plan read = read_graph(device(), exec.graph());
  ASSERT_EQ(read.nodes.size(), plan.nodes.size());
  for (const PlanNode& node : read.nodes) {
    const auto same = [&](const PlanNode& other) { return other.copy == node.copy; };
    EXPECT_TRUE(std::any_of(plan.nodes.begin(), plan.nodes.end(), same)) << node.name;
  }
}

TEST_F(ArrayCopyTest, AForeignGraphStatesTheArraysThatItsCopiesTouch) {
  ExplicitGraph exec(through());
  const Plan read = read_graph(device(), exec.graph());
  const auto is_cube = [&](const Buffer& buffer) { return buffer.range.address == cube.address; };
  const auto found = std::find_if(read.buffers.begin(), read.buffers.end(), is_cube);
  ASSERT_NE(found, read.buffers.end());
  EXPECT_EQ(found->range.kind, "array");
  EXPECT_EQ(found->range.bytes, cube.shape.bytes());
  GraphBuilder g(device(), "around");
  declare(g);
  std::vector<DeclaredUse> uses{
      reads(x_), updates(y_), {"host", host_end(host_), Access::inout}, updates(cube.bytes())};
  g.declare_array("cube", cube_, {.live_in = true});
  g.declare_array("flat", flat_, {.live_in = true});
  expect_error([&] { g.graph("node", exec.graph(), uses); }, {"'node'", "flat[", "lies in none of the stated uses"});
  uses.push_back(updates(flat.bytes()));
  g.graph("node", exec.graph(), uses);
}

TEST_F(ArrayCopyTest, ACopyOfOneRowMovesWithinItsBoxByPatch) {
  Plan plan = through();
  ExplicitGraph exec(plan);
  PatchSet patches(exec);
  patches.copy(out_, y_.subview(1, 3), flat.at(12, 1), 12);
  patches.apply();
  plan.nodes[out_.index].copy.to += 4;
  plan.nodes[out_.index].copy.from += 4;
  plan.nodes[out_.index].copy.bytes = 12;
  expect_result(plan, exec);
  expect_error([&] { patches.copy(out_, y_, flat.at(4, 1), 16); }, {"'out'", "outside flat[48,64)"});
  expect_error([&] { patches.copy(out_, y_, x_, 16); }, {"'out'", "'from' was in an array and is to be memory"});
  expect_error([&] { patches.copy(out_, y_, cube.at(8, 1), 16); }, {"'out'", "'from' was in another array"});
  expect_error([&] { patches.copy(out_, y_, flat.at(8, 1), 10); }, {"'out'", "elements of 4 bytes"});
  expect_error([&] { patches.copy(in_, cube.at(16, 1, 0), x_, 24); }, {"'in'", "it copies rows"});
  expect_error([&] { patches.copy_rows(out_, y_, flat.at(8, 1), {.bytes = 16}); }, {"'out'", "an end is in an array"});
}

TEST_F(ArrayCopyTest, AnUpdateTakesNoMemoryInThePlaceOfAnArray) {
  const auto plan = [&](bool of_array) {
    GraphBuilder g(device(), "update");
    declare(g);
    g.declare_array("flat", flat_, {.live_in = true});
    g.copy("out", y_, of_array ? flat.at() : CopyEnd(x_), 16);
    return std::move(g).finish();
  };
  ExplicitGraph exec(plan(true));
  expect_error([&] { exec.update(plan(false)); },
               {"node 'out': 'from' is array 'flat' in the graph and memory in the plan"});
  exec.update(plan(true));
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(ArrayCopyTest, AnUpdateThatIsRefusedNamesBothEnds) {
  const auto plan = [&](bool before) {
    GraphBuilder g(device(), "update");
    declare(g);
    g.declare_array("flat", flat_, {.live_in = true, .live_out = true});
    g.declare_array("cube", cube_, {.live_in = true, .live_out = true});
    if (before)
      g.copy("out", flat.at(), cube.at(), 16);
    else
      g.copy("out", cube.at(), x_, 16);
    return std::move(g).finish();
  };
  ExplicitGraph exec(plan(true));
  expect_error([&] { exec.update(plan(false)); },
               {"node 'out'", "'to' is array 'flat' in the graph and array 'cube' in the plan",
                "'from' is array 'cube' in the graph and memory in the plan"});
}

// As a driver may that takes no other array.
struct RefusingUpdates : CallObserver {
  explicit RefusingUpdates(Driver& driver) : driver_(driver) { driver.observe(this); }
  ~RefusingUpdates() override { driver_.observe(nullptr); }
  std::optional<CUresult> before(const DriverCall& call) override {
    if (call.entry != DriverEntry::cuGraphExecUpdate) return std::nullopt;
    auto* info = reinterpret_cast<CUgraphExecUpdateResultInfo*>(call.words[2]);
    size_t count = 1;
    driver_.cuGraphGetNodes(reinterpret_cast<CUgraph>(call.words[1]), &info->errorNode, &count);
    info->result = CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED;
    return CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE;
  }
  CUresult after(const DriverCall&, CUresult result) override { return result; }
  Driver& driver_;
};

TEST_F(ArrayCopyTest, AnUpdateThatIsRefusedNamesTheArrays) {
  const auto plan = [&](bool of_flat, uint64_t rows) {
    GraphBuilder g(device(), "update");
    declare(g);
    g.declare_array("flat", flat_, {.live_in = true});
    g.declare_array("cube", cube_, {.live_in = true});
    g.copy_rows("out", y_, (of_flat ? flat : cube).at(), {.bytes = 16, .rows = rows, .to_pitch = 16});
    return std::move(g).finish();
  };
  constexpr std::string_view kArrays = "'from' is array 'flat' in the graph and array 'cube' in the plan";
  ExplicitGraph rows(plan(true, 2)), one(plan(true, 1));
  expect_error([&] { rows.update(plan(false, 2)); }, {"node 'out'", kArrays});
  const RefusingUpdates refusing(device().driver());
  expect_error([&] { one.update(plan(false, 1)); }, {"node 'out': a parameter changed that may not", kArrays});
}

TEST_F(ArrayCopyTest, WhatNoArrayTakesIsRefused) {
  GraphBuilder g(device(), "refused");
  declare(g);
  const auto refused = [&](const CopyEnd& to, CopyBox box, std::initializer_list<std::string_view> words) {
    box.from_pitch = 16;
    box.from_height = 4;
    expect_error([&] { g.copy_box("node", to, x_, box); }, words);
  };
  refused(cube.at(), {.bytes = 16, .rows = 2, .to_pitch = 64}, {"'node'", "'to' is an array", "a pitch or a height"});
  refused(cube.at(48), {.bytes = 24}, {"1 slices of 1 rows of 24 bytes at (48, 0, 0) in 'to'"});
  refused(cube.at(0, 4), {.bytes = 8, .rows = 2}, {"2 rows of 8 bytes at (0, 4, 0) in 'to'"});
  refused(cube.at(0, 0, 2), {.bytes = 8, .rows = 1, .slices = 2}, {"2 slices of 1 rows"});
  refused(cube.at(0, 0, 3), {.bytes = 8}, {"'to' begins outside its array"});
  refused(cube.at(4), {.bytes = 8}, {"'to' is an array of elements of 8 bytes"});
  refused(cube.at(), {.bytes = 12}, {"'to' is an array of elements of 8 bytes"});
  const View<uint32_t> pixels{reinterpret_cast<uint32_t*>(flat.address), 10};
  const auto no_address = [&](const std::function<void()>& add) {
    expect_error(add, {"'node'", "flat[0,40), an array, whose memory has no addresses", "with_uses"});
  };
  no_address([&] { g.fill("node", pixels, 0u); });
  no_address([&] { g.copy("node", pixels, x_, 40); });
  no_address([&] { g.launch("node", machine().accumulate_of(10), {.y = y_, .x = pixels, .salt = 1}); });
  EXPECT_EQ(g.node_count(), 0u);
  expect_error([&] { g.declare_array("cube", flat_); }, {"cube"});
  expect_error([&] { g.declare_array("none", nullptr); }, {"declare array", "none"});
}

TEST_F(ArrayCopyTest, AnOriginBeyondARowARowsOrSlicesIsOutside) {
  GraphBuilder g(device(), "outside");
  declare(g);
  uint32_t n = 0;
  for (const CopyEnd& end :
       {flat.at(40, 1), flat.at(0, 6), flat.at(0, 0, 1), cube.at(0, 5, 0), flat.at(40, ~uint64_t{0})})
    expect_error([&] { g.copy("n" + std::to_string(n++), end, x_, 4); }, {"'to' begins outside its array"});
}

TEST_F(ArrayCopyTest, ADumpThatIsReadAgainHasItsArrays) {
  const Plan plan = through();
  const Plan again = plan_of({to_json(plan), "dump.json"});
  EXPECT_EQ(to_text(again), to_text(plan));
}

// The driver's rules for bodies and for graphs that kernels launch.
TEST_F(ArrayCopyTest, NeitherABodyNorAGraphThatKernelsLaunchHoldsOne) {
  GraphBuilder g(device(), "body");
  declare(g);
  const auto refused = [&](const char* condition, const std::function<void(GraphBuilder&)>& body, const char* what) {
    expect_error([&] { g.if_else(condition, g.condition(condition, 1), body); },
                 {what, "a conditional node's body cannot hold"});
  };
  refused(
      "alone", [&](GraphBuilder& body) { body.copy("in", flat.at(), x_, 40); }, "a copy to or from an array");

  GraphBuilder child(device(), "child");
  declare(child);
  child.declare_array("flat", flat_, {.live_in = true});
  child.copy("out", y_, flat.at(), 40);
  const Plan inner = std::move(child).finish();
  refused(
      "inside", [&](GraphBuilder& body) { body.child("inner", inner); },
      "node 'out' of plan 'child' is a copy to or from an array");
  expect_error([&] { ExplicitGraph(inner, {.device_launch = true}); },
               {"node 'out' of plan 'child'", "a copy to or from an array"});
}

}  // namespace
}  // namespace nodewright
