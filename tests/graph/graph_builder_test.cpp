#include "graph/graph_builder.h"

#include <chrono>

#include "graph/hazard_check.h"
#include "tests/graph/sketch.h"
#include "tests/support/error_text.h"
#include "tests/support/processor_time.h"

NODEWRIGHT_ARGS(Other, { nodewright::Out<float> y; })

namespace nodewright {
namespace {

using GraphBuilderTest = SketchTest;

// A weight is no target of a copy.
template <class Builder, class To>
concept CopiesTo = requires(Builder& g, To to, View<float> from) {
  g.copy("n", to, from, 4);
};
template <class Builder, class To>
concept CopiesRowsTo = requires(Builder& g, To to, View<float> from) {
  g.copy_rows("n", to, from, CopyRows{4});
};
static_assert(CopiesTo<GraphBuilder, View<float>> && !CopiesTo<GraphBuilder, Weight<float>>);
static_assert(CopiesRowsTo<GraphBuilder, View<float>> && !CopiesRowsTo<GraphBuilder, Weight<float>>);

TEST_F(GraphBuilderTest, DerivesAForkAndAJoinFromBuffersAlone) {
  GraphBuilder g(device(), "fork");
  const auto x = buffer(g, "x", {.live_in = true}), h = buffer(g, "h"), l = buffer(g, "l"), r = buffer(g, "r");
  const auto y = buffer(g, "y", {.live_out = true});
  g.launch("head", waiting, {.left = x, .right = x, .y = h, .scale = 1});
  g.launch("left", waiting, {.left = h, .right = h, .y = l, .scale = 1});
  g.launch("right", waiting, {.left = h, .right = h, .y = r, .scale = 1});
  g.launch("join", waiting, {.left = l, .right = r, .y = y, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_edges(plan, {"head>left", "head>right", "left>join", "right>join"});
  EXPECT_EQ(describe(plan, plan.edges[2].reasons.at(0)), "RAW l[0,1024)");
}

TEST_F(GraphBuilderTest, DropsAnEdgeThatAPathImpliesAcrossBothTypes) {
  GraphBuilder g(device(), "implied");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b"), c = buffer(g, "c");
  g.launch("one", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  g.launch("two", hasty, {.left = a, .right = a, .y = b, .scale = 1});
  g.launch("three", waiting, {.left = a, .right = b, .y = c, .scale = 1});  // one before three is implied by two
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"one>two", "two~>three"});
}

TEST_F(GraphBuilderTest, EveryNodeTakesAfterAndTrafficAndRefusesWhatItsKindHasNot) {
  GraphBuilder g(device(), "options");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y");
  const NodeId first = g.empty("first", {});
  const NodeOptions options{.after = {first}, .traffic = Traffic{3, 4}};
  g.copy("copy", y, x, 4, options);
  g.fill("fill", y, 0.0f, options);
  g.host(
      "host", [] {}, {}, options);
  g.if_else(
      "maybe", g.condition("go", 1), [](GraphBuilder& body) { body.empty("end", {}); }, {}, options);
  const auto refused = [&](const NodeOptions& wrong, std::string_view what) {
    expect_words(error_of([&] { g.fill("node", y, 0.0f, wrong); }), {"'node'", what, "of kind memset has none"});
  };
  refused({.attributes = {.priority = -1}}, "attributes");
  refused({.envelope = Mix{.left = x, .right = x, .y = y, .scale = 1}}, "an envelope");
  refused({.waits_for_inputs = true}, "whether it waits");
  refused({.exchange = 0}, "which exchange");
  const auto launch = [&](const NodeOptions& wrong) {
    return error_of([&] { g.launch("node", waiting, {.left = x, .right = x, .y = y, .scale = 1}, wrong); });
  };
  expect_words(launch({.waits_for_inputs = true}), {"'node'", "of a foreign kernel"});
  expect_words(launch({.exchange = 0}), {"'node'", "of a foreign kernel"});
  expect_words(launch({.envelope = Other{.y = y}}), {"'node'", "its envelope is another argument struct"});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  ASSERT_EQ(plan.nodes.size(), 5u);
  for (size_t i = 1; i < plan.nodes.size(); ++i) {
    EXPECT_EQ(plan.nodes[i].traffic.bytes_read, 3u) << plan.nodes[i].name;
    EXPECT_EQ(plan.nodes[i].traffic.bytes_written, 4u) << plan.nodes[i].name;
    EXPECT_EQ(plan.after.at(i - 1).node, i);
    EXPECT_EQ(plan.after.at(i - 1).earlier, 0u);
  }
}

TEST_F(GraphBuilderTest, ProgrammaticEdgesGoOnlyFromAKernelToAKernelThatWaits) {
  GraphBuilder g(device(), "types");
  const auto a = buffer(g, "a"), b = buffer(g, "b"), c = buffer(g, "c"), d = buffer(g, "d");
  g.fill("fill", a, 0.0f);
  g.launch("first", waiting, {.left = a, .right = a, .y = b, .scale = 1});
  g.launch("second", waiting, {.left = b, .right = b, .y = c, .scale = 1});
  g.launch("hasty", hasty, {.left = c, .right = c, .y = d, .scale = 1});
  g.copy("copy", a, d, d.bytes());
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"fill>first", "first~>second", "second>hasty", "hasty>copy"});
}

TEST_F(GraphBuilderTest, ANodeMayHaveAFullAndAProgrammaticInEdge) {
  GraphBuilder g(device(), "mixed");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b"), c = buffer(g, "c");
  g.fill("fill", a, 0.0f);
  g.launch("kernel", waiting, {.left = x, .right = x, .y = b, .scale = 1});
  g.launch("both", waiting, {.left = a, .right = b, .y = c, .scale = 1});
  expect_edges(std::move(g).finish(EdgePolicy::programmatic), {"fill>both", "kernel~>both"});
}

TEST_F(GraphBuilderTest, ReusedBuffersOrderWritersBehindReaders) {
  GraphBuilder g(device(), "reuse");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b"), c = buffer(g, "c");
  g.launch("w1", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  g.launch("r1", waiting, {.left = a, .right = x, .y = b, .scale = 1});
  g.launch("r2", waiting, {.left = a, .right = x, .y = c, .scale = 1});
  g.launch("w2", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_edges(plan, {"w1>r1", "w1>r2", "r1>w2", "r2>w2"}, "w1 before w2 is implied");
  EXPECT_EQ(describe(plan, plan.edges[3].reasons.at(0)), "WAR a[0,1024)");
}

TEST_F(GraphBuilderTest, HalvesOfOneBufferAreIndependent) {
  GraphBuilder g(device(), "halves");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  g.launch("low", waiting, {.left = x, .right = x, .y = a.subview(0, 128), .scale = 1});
  g.launch("high", waiting, {.left = x, .right = x, .y = a.subview(128, 128), .scale = 1});
  g.launch("across", waiting, {.left = a.subview(64, 128), .right = x, .y = b, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_edges(plan, {"low>across", "high>across"});
  EXPECT_EQ(describe(plan, plan.edges[1].reasons.at(0)), "RAW a[512,768)");
}

TEST_F(GraphBuilderTest, SerialMakesOneChainOfFullEdges) {
  GraphBuilder g(device(), "serial");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  g.launch("one", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  g.launch("two", waiting, {.left = x, .right = x, .y = b, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::serial);
  expect_edges(plan, {"one>two"});
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "serial");
}

TEST_F(GraphBuilderTest, DeclaredOrdersBecomeEdgesWithThatReason) {
  GraphBuilder g(device(), "after");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  const NodeId one = g.launch("one", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  const NodeId two = g.launch("two", waiting, {.left = x, .right = x, .y = b, .scale = 1}, {.after = {one}});
  g.empty("end", {.after = {one, two}});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"one~>two", "two>end"});
  EXPECT_EQ(describe(plan, plan.edges[0].reasons.at(0)), "declared");
}

TEST_F(GraphBuilderTest, ScopesPrefixNamesAndTheOutermostIsTheLayer) {
  GraphBuilder g(device(), "scopes");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a");
  {
    const auto layer = g.scope("l3");
    const auto block = g.scope("attention");
    g.launch("norm", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  }
  g.launch("head", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_EQ(plan.nodes[0].name, "l3.attention.norm");
  EXPECT_EQ(plan.nodes[0].layer(), "l3");
  EXPECT_EQ(plan.nodes[1].name, "head");
  EXPECT_EQ(plan.nodes[1].layer(), "");
}

TEST_F(GraphBuilderTest, TrafficIsTheBytesOfTheUsesUnlessGiven) {
  GraphBuilder g(device(), "traffic");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  g.launch("one", waiting, {.left = x, .right = x.subview(0, 1), .y = a, .scale = 1});
  g.launch("two", waiting, {.left = x, .right = x, .y = b, .scale = 1}, {.traffic = Traffic{7, 8}});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_EQ(plan.nodes[0].traffic.bytes_read, 1028u);
  EXPECT_EQ(plan.nodes[0].traffic.bytes_written, 1024u);
  EXPECT_EQ(plan.nodes[1].traffic.bytes_read, 7u);
}

TEST_F(GraphBuilderTest, EdgesComeFromTheEnvelope) {
  GraphBuilder g(device(), "envelope");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  g.launch("one", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  const Mix args{.left = x.subview(0, 1), .right = x, .gain = {}, .y = b, .scale = 1};
  Mix wide = args;
  wide.right = a;
  expect_words(error_of([&] { g.launch("two", waiting, args, {.envelope = wide}); }),
               {"'two'", "field 'right'", "outside its envelope"});
  wide.right = x;
  wide.left = x;
  g.launch("two", waiting, args, {.envelope = wide});
  g.fill("late", x.subview(100, 1), 0.0f);
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_edges(plan, {"one>late", "two>late"}, "two may be patched to read x[100]");
}

TEST_F(GraphBuilderTest, RefusesAUseOutsideEveryBufferWithTheNearestOne) {
  GraphBuilder g(device(), "outside");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a");
  const auto layer = g.scope("l0");
  const std::string message = error_of(
      [&] { g.launch("norm", waiting, {.left = sketch_view(x.address(), 257), .right = x, .y = a, .scale = 1}); });
  expect_words(message, {"'l0.norm'", "field 'left'", "1028 bytes", "'x'", "1024 bytes"});
  expect_words(error_of([&] { g.fill("zero", sketch_view(64), 0.0f); }), {"'l0.zero'", "no buffer is declared below"});
  EXPECT_EQ(g.node_count(), 0u);
}

TEST_F(GraphBuilderTest, ABufferOfTheDeviceIsDeclaredWhereANodeFirstUsesIt) {
  const DeviceArray<float> x(device(), "own_x", kSketchCount), y(device(), "own_y", kSketchCount);
  GraphBuilder g(device(), "own");
  g.fill("ones", x, 1.0f);
  g.launch("norm", waiting, {.left = x, .right = x, .y = y.view().subview(0, 8), .scale = 1});
  const ConditionHandle again = g.condition("again", 0);
  const DeviceArray<float> z(device(), "own_z", kSketchCount);
  const auto clear_z = [&](GraphBuilder& body) { body.fill("zero", z, 0.0f); };
  expect_error([&] { g.if_else("perhaps", again, clear_z); }, {"'perhaps'", "reads own_z[0,1024)", "live-in"});
  g.fill("z", z, 1.0f);
  g.if_else("perhaps", again, clear_z);
  const Plan plan = std::move(g).finish();
  std::vector<std::string> names;
  for (const Buffer& buffer : plan.buffers)
    if (buffer.range.kind == "activation")
      names.push_back(buffer.range.name + (buffer.live_in ? " in" : "") + (buffer.live_out ? " out" : ""));
  EXPECT_EQ(names, (std::vector<std::string>{"own_x out", "own_y out", "own_z out"}));
  EXPECT_EQ(plan.buffers[1].range.bytes, kSketchCount * sizeof(float)) << "the whole buffer";
  EXPECT_EQ(plan.edges.at(0).to, 1u);
}

TEST_F(GraphBuilderTest, ABufferThatDeclaresItselfHoldsNoValueAndGoesWithARefusedNode) {
  const DeviceArray<float> x(device(), "own_x", kSketchCount), y(device(), "own_y", kSketchCount);
  GraphBuilder g(device(), "own");
  expect_error([&] { g.launch("norm", waiting, {.left = x, .right = x, .y = y, .scale = 1}); },
               {"'norm'", "no earlier node writes own_x"});
  g.declare({"x", x.address(), x.bytes(), "input"}, {.live_in = true});  // nothing of the refused node is left
  g.launch("norm", waiting, {.left = x, .right = x, .y = y, .scale = 1});
  EXPECT_EQ(std::move(g).finish().buffers.size(), 2u);
}

TEST_F(GraphBuilderTest, OnlyAWholeBufferUnderAFreeNameDeclaresItself) {
  const DeviceArray<float> x(device(), "own_x", kSketchCount), twin(device(), "own_x", kSketchCount);
  GraphBuilder g(device(), "own");
  g.declare({"first_half", x.address(), x.bytes() / 2, "activation"});
  expect_error([&] { g.fill("all", x, 1.0f); }, {"'all'", "outside every declared buffer", "'first_half'"});
  g.fill("twin", twin, 1.0f);
  GraphBuilder named(device(), "named");
  named.fill("twin", twin, 1.0f);
  expect_error([&] { named.fill("all", x, 1.0f); }, {"'all'", "outside every declared buffer"});
}

TEST_F(GraphBuilderTest, RefusesAMemoryFieldLeftEmptyUnlessItIsOptional) {
  GraphBuilder g(device(), "empty");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y");
  expect_error([&] { g.launch("forgot_y", waiting, {.left = x, .right = x, .scale = 1}); },
               {"'forgot_y'", "in plan 'empty'", "field 'y' (out) is empty", "Optional"});
  expect_error([&] { g.launch("none", waiting, {.left = x.subview(3, 0), .right = x, .y = y, .scale = 1}); },
               {"'none'", "field 'left' (in) is empty"});
  EXPECT_EQ(g.node_count(), 0u);
  g.launch("without_gain", waiting, {.left = x, .right = x, .y = y, .scale = 1});
  EXPECT_EQ(std::move(g).finish(EdgePolicy::full).nodes.at(0).uses.size(), 3u);
}

TEST_F(GraphBuilderTest, RefusesAReadOfBytesThatNothingWrote) {
  GraphBuilder g(device(), "unwritten");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  g.launch("half", waiting, {.left = x, .right = x, .y = a.subview(0, 128), .scale = 1});
  expect_words(error_of([&] { g.launch("reader", waiting, {.left = a, .right = x, .y = b, .scale = 1}); }),
               {"'reader'", "field 'left'", "a[0,1024)", "no earlier node writes a[512,1024)"});
  g.launch("rest", waiting, {.left = x, .right = x, .y = a.subview(128, 128), .scale = 1});
  g.launch("reader", waiting, {.left = a, .right = x, .y = b, .scale = 1});
}

TEST_F(GraphBuilderTest, RefusesOverlappingFieldsWhenEitherWrites) {
  GraphBuilder g(device(), "overlap");
  const auto x = buffer(g, "x", {.live_in = true});
  expect_words(error_of([&] {
                 g.launch("n", waiting,
                          {.left = x.subview(0, 128), .right = x.subview(0, 128), .y = x.subview(127, 8), .scale = 1});
               }),
               {"'n'", "field 'left' (in)", "x[0,512)", "field 'y' (out)", "x[508,540)"});
  expect_words(error_of([&] { g.copy("c", x.subview(0, 8), x.subview(4, 8), 32); }), {"'c'", "'to'", "'from'"});
}

TEST_F(GraphBuilderTest, RefusesToFreezeWhatANodeWritesWhicheverComesFirst) {
  GraphBuilder g(device(), "frozen");
  const auto x = buffer(g, "x", {.live_in = true}), w = buffer(g, "w", {.live_in = true}), y = buffer(g, "y");
  const Frozen<float> gain{w.data, w.count};
  g.launch("reads", waiting, {.left = x, .right = x, .gain = gain, .y = y, .scale = 1});
  expect_words(error_of([&] { g.fill("late", w.subview(3, 1), 0.0f); }),
               {"'late'", "w[12,16)", "'reads' declares frozen"});
  const auto v = buffer(g, "v", {.live_in = true});
  g.fill("early", v, 0.0f);
  expect_words(error_of([&] {
                 g.launch("n", waiting, {.left = x, .right = x, .gain = {v.data, v.count}, .y = y, .scale = 1});
               }),
               {"'n'", "field 'gain'", "'early' writes"});
}

TEST_F(GraphBuilderTest, RefusesShapesThatTheDeviceOrTheKernelDoesNotTake) {
  GraphBuilder g(device(), "shapes");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y");
  const auto shaped = [&](LaunchShape shape) {
    Kernel<Mix> kernel = waiting;
    kernel.shape = shape;
    return error_of([&] { g.launch("n", kernel, {.left = x, .right = x, .y = y, .scale = 1}); });
  };
  expect_words(shaped({{1, 65536, 1}, {32, 1, 1}, 0}), {"'n'", "grid 1x65536x1", "grid y must be 1 to 65535"});
  expect_words(shaped({{0, 1, 1}, {32, 1, 1}, 0}), {"grid x must be 1 to 2147483647"});
  expect_words(shaped({{1, 1, 1}, {1, 1, 65}, 0}), {"block z must be 1 to 64"});
  expect_words(shaped({{1, 1, 1}, {65, 1, 1}, 0}), {"'mix' takes at most 64 threads"});
  expect_words(shaped({{1, 1, 1}, {32, 1, 1}, 300000}), {"300000 shared bytes", "more than"});
}

TEST_F(GraphBuilderTest, RefusesNamesTwiceMisalignmentForeignIdsAndForeignArguments) {
  GraphBuilder g(device(), "refusals");
  const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y");
  const NodeId own = g.fill("n", y, 0.0f);
  expect_words(error_of([&] { g.fill("n", y, 0.0f); }), {"'n'", "name is taken"});
  expect_words(error_of([&] { g.fill("", y, 0.0f); }), {"name is empty"});
  expect_words(error_of([&] {
                 g.launch("odd", waiting, {.left = sketch_view(x.address() + 2, 4), .right = x, .y = y, .scale = 1});
               }),
               {"'odd'", "field 'left'", "not a multiple of its element's 4 bytes"});

  GraphBuilder other(device(), "other");
  const auto z = buffer(other, "z");
  const NodeId foreign = other.fill("far", z, 0.0f);
  expect_words(error_of([&] { g.empty("e", {.after = {foreign}}); }),
               {"'e'", "not one of the 1 nodes of plan 'refusals'"});
  expect_words(error_of([&] { g.empty("e", {.after = {NodeId{7, own.plan}}}); }), {"follow node 7"});
  const Weight<float> weight{x.data, x.count};
  expect_words(error_of([&] {
                 g.library("l", {{"w", weight, Access::out}}, [](CUstream) {});
               }),
               {"'l'", "'w' is written, and given as a weight"});
  GraphBuilder twin(device(), "refusals");
  const NodeId of_twin = twin.fill("n", buffer(twin, "y"), 0.0f);
  expect_words(error_of([&] { g.empty("e", {.after = {of_twin}}); }),
               {"'e'", "not one of the 1 nodes of plan 'refusals'"});

  LoadedKernel wrong = named_kernel("wrong", true);
  wrong.args_bytes = 8;
  const Kernel<Mix> mistyped{&wrong, mix_shape(1)};
  expect_words(error_of([&] { g.launch("m", mistyped, {.left = x, .right = x, .y = y, .scale = 1}); }),
               {"'m'", "'wrong' takes 8"});
  EXPECT_EQ(g.node_count(), 1u);
}

TEST_F(GraphBuilderTest, RefusesBuffersThatOverlapOrShareAName) {
  GraphBuilder g(device(), "buffers");
  g.declare({"a", 0x1000, 256, "activation"});
  g.declare({"a", 0x1000, 256, "activation"}, {.live_in = true});  // the same again
  expect_words(error_of([&] { g.declare({"a", 0x2000, 256, "activation"}); }), {"'a'", "0x1000", "0x2000"});
  expect_words(error_of([&] { g.declare({"b", 0x10ff, 2, "activation"}); }), {"'b'", "overlaps 'a'"});
  expect_words(error_of([&] { g.declare({"b", 0xfff, 2, "activation"}); }), {"'b'", "overlaps 'a'"});
  expect_words(error_of([&] { g.declare({"b", 0x3000, 0, "activation"}); }), {"'b'", "0 bytes"});
  g.declare({"b", 0x1100, 256, "activation"});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_EQ(plan.buffers.size(), 2u);
  EXPECT_TRUE(plan.buffers[0].live_in);
}

TEST_F(GraphBuilderTest, FillsTakeOneTwoAndFourByteValuesAndOthersOfEqualBytes) {
  GraphBuilder g(device(), "fills");
  g.declare({"a", 0x1000, 4096, "activation"});
  const View<double> doubles{reinterpret_cast<double*>(0x1000), 8};
  g.fill("words", View<int32_t>{reinterpret_cast<int32_t*>(0x1000), 8}, -2);
  g.fill("bytes", View<uint8_t>{reinterpret_cast<uint8_t*>(0x1000), 8}, uint8_t{7});
  g.fill("halves", View<bf16>{reinterpret_cast<bf16*>(0x1000), 8}, bf16{0x3f80});
  g.fill("zeros", doubles, 0.0);
  expect_words(error_of([&] { g.fill("n", doubles, 1.0); }), {"'n'", "8 bytes that differ", "1, 2 or 4 bytes"});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  const auto expect = [&](size_t node, FillParameters fill) {
    fill.to = 0x1000;
    EXPECT_EQ(plan.nodes[node].fill, fill) << plan.nodes[node].name;
  };
  expect(0, {.value = 0xfffffffeu, .element_bytes = 4, .count = 8});
  expect(1, {.value = 7, .element_bytes = 1, .count = 8});
  expect(2, {.value = 0x3f80, .element_bytes = 2, .count = 8});
  expect(3, {.value = 0, .element_bytes = 1, .count = 64});
}

TEST_F(GraphBuilderTest, AFillOfRowsWritesItsRowsAndIsOrderedByEachOfThem) {
  GraphBuilder g(device(), "rows");
  const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a"), b = buffer(g, "b");
  g.launch("before", waiting, {.left = x, .right = x, .y = a, .scale = 1});
  g.fill_rows("rows", a.subview(2, 100), {.count = 3, .rows = 4, .pitch = 64}, 0.5f);
  g.launch("between", waiting, {.left = a.subview(5, 13), .right = x, .y = b.subview(0, 8), .scale = 1});
  g.launch("last", waiting, {.left = a.subview(52, 1), .right = x, .y = b.subview(8, 8), .scale = 1});
  g.fill_rows("one", b.subview(16, 8), {.count = 5, .pitch = 1}, 0.5f);
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_edges(plan, {"before>rows", "before>between", "rows>last"});
  EXPECT_EQ(describe(plan, plan.edges[2].reasons.at(0)), "RAW a[208,212)");
  const PlanNode& rows = plan.nodes[1];
  ASSERT_EQ(rows.uses.size(), 4u);
  for (size_t row = 0; row < 4; ++row)
    EXPECT_EQ(describe_range(plan, rows.uses[row].buffer, rows.uses[row].offset, rows.uses[row].bytes),
              "a[" + std::to_string(8 + 64 * row) + "," + std::to_string(20 + 64 * row) + ")");
  EXPECT_EQ(rows.traffic.bytes_read, 0u);
  EXPECT_EQ(rows.traffic.bytes_written, 48u);
  const FillParameters expected{
      .to = a.address() + 8, .value = 0x3f000000, .element_bytes = 4, .count = 3, .rows = 4, .pitch = 64};
  EXPECT_EQ(rows.fill, expected);
  EXPECT_EQ(plan.nodes[4].fill.pitch, 0u) << "of one row it means nothing";
}

TEST_F(GraphBuilderTest, RefusesRowsToFillThatOverlapLeaveTheViewOrAreNotAligned) {
  GraphBuilder g(device(), "rows");
  const auto a = buffer(g, "a");
  const auto refusal = [&](const FillRows& rows) { return error_of([&] { g.fill_rows("n", a, rows, 1.0f); }); };
  expect_words(refusal({.count = 4, .rows = 2, .pitch = 12}), {"'n'", "rows of 16 bytes lie 12 bytes apart in 'to'"});
  expect_words(refusal({.count = 4, .rows = 2}), {"'n'", "lie 0 bytes apart"});
  expect_words(refusal({.count = 4, .rows = 5, .pitch = 256}),
               {"'n'", "5 rows of 16 bytes, 256 bytes apart, in the 1024 bytes of 'to'"});
  expect_words(refusal({.count = 4, .rows = 3, .pitch = uint64_t{1} << 63}), {"'n'", "in the 1024 bytes of 'to'"});
  expect_words(refusal({.count = 257}), {"'n'", "1 rows of 1028 bytes"});
  expect_words(refusal({.count = (uint64_t{1} << 62) + 1}), {"'n'", "elements of 4 bytes"});
  expect_words(refusal({.count = 1, .rows = 2, .pitch = 6}), {"'n'", "elements of 4 bytes lie 6 bytes apart"});
  for (const FillRows& nothing : {FillRows{}, FillRows{.count = 1, .rows = 0}})
    expect_words(refusal(nothing), {"'n'", "0 bytes to fill"});
  expect_words(
      error_of([&] { g.fill_rows("n", sketch_view(a.address() + 2, 8), {.count = 1, .rows = 2, .pitch = 8}, 1.0f); }),
      {"'n'", "field 'to'", "not a multiple of its element's 4 bytes"});
  EXPECT_EQ(g.node_count(), 0u);
  EXPECT_EQ(refusal({.count = 4, .rows = 4, .pitch = 336}), "") << "the last byte is the view's";
}

TEST_F(GraphBuilderTest, EveryOverlappingPairOfARandomPlanIsOrderedUnderEveryPolicy) {
  for (unsigned seed = 1; seed <= 60; ++seed)
    for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic}) {
      const Plan plan = make_random_plan(device(), waiting, hasty, {seed, 60, policy});
      EXPECT_TRUE(missing_orders(plan).empty()) << "seed " << seed;
      EXPECT_NO_THROW(check_plan(plan));
    }
}

TEST_F(GraphBuilderTest, TwoThousandNodesAreBuiltInLinearWork) {
  const double seconds = test::seconds_of([&] {
    GraphBuilder g(device(), "large");
    const auto x = buffer(g, "x", {.live_in = true}), a = buffer(g, "a", {.live_in = true});
    const auto b = buffer(g, "b", {.live_in = true});
    for (int n = 0; n < 2000; ++n)
      g.launch("n" + std::to_string(n), waiting, {.left = x, .right = n % 2 ? a : b, .y = n % 2 ? b : a, .scale = 1});
    const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
    EXPECT_EQ(plan.edges.size(), 1999u);
  });
  EXPECT_LT(seconds, test::allowed_seconds(1));  // 10 ms; 2000 times 2000 would show
}

}  // namespace
}  // namespace nodewright
