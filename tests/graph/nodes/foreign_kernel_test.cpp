// Kernels of others in a plan: what is derived from their arguments, refused, dumped, patched and run.
#include <nlohmann/json.hpp>

#include "graph/dump/graph_dump.h"
#include "graph/nodes/node_parameters.h"
#include "graph/patch.h"
#include "graph/timing/timed_twin.h"
#include "runtime/compilers/cubin_reader.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

struct alignas(8) Pointers {
  const float* from;
};
struct Small {
  uint16_t a, b;
};

static_assert(argument_problem<uint32_t>() == ArgumentProblem::none);
static_assert(argument_problem<double>() == ArgumentProblem::none);
static_assert(argument_problem<Small>() == ArgumentProblem::none);
static_assert(argument_problem<ValueArgument<float, "a">>() == ArgumentProblem::none);
static_assert(argument_problem<float*>() == ArgumentProblem::raw_pointer);
static_assert(argument_problem<const void*>() == ArgumentProblem::raw_pointer);
static_assert(argument_problem<std::nullptr_t>() == ArgumentProblem::raw_pointer);
static_assert(argument_problem<float[4]>() == ArgumentProblem::raw_pointer);
static_assert(argument_problem<ValueArgument<float*, "p">>() == ArgumentProblem::raw_pointer);
static_assert(argument_problem<View<float>>() == ArgumentProblem::bare_view);
static_assert(argument_problem<DeviceBuffer>() == ArgumentProblem::bare_view);
static_assert(argument_problem<std::string>() == ArgumentProblem::not_bytes);
static_assert(argument_problem<ConditionHandle>() == ArgumentProblem::none);
static_assert(argument_problem<ValueArgument<ConditionHandle, "c">>() == ArgumentProblem::none);
static_assert(argument_problem<Pointers>() == ArgumentProblem::perhaps_pointers);
static_assert(argument_problem<StructArgument<false, Pointers, "">>() == ArgumentProblem::no_uses);
static_assert(argument_problem<StructArgument<false, Pointers, "", OpaqueArgument<"">>>() == ArgumentProblem::none);
static_assert(argument_problem<StructArgument<true, Pointers, "">>() == ArgumentProblem::none);
static_assert(argument_problem<StructArgument<true, std::string, "">>() == ArgumentProblem::not_bytes);
static_assert(std::is_convertible_v<decltype(reads(View<float>())), DeclaredUse>);
static_assert(!std::is_convertible_v<decltype(sends(View<Packet>())), DeclaredUse>);
static_assert(argument_problem<StructArgument<false, std::string, "">>() == ArgumentProblem::not_bytes);

class ForeignKernelTest : public BlendTest {
 protected:
  static const ForeignKernel& foreign() { return *machine().foreign; }
  using Foreign = ForeignBlendNode;

  static LaunchShape over(uint64_t n) { return blend_shape(n); }

  // x = blend(a); y = foreign(x, key, y); x = x * 31 + y: a kernel of ours before and after.
  Plan sandwich(Foreign& node, bool waits = false, EdgePolicy policy = EdgePolicy::programmatic) {
    GraphBuilder g(device(), "sandwich");
    declare_all(g);
    g.launch("before", machine().blend_of(n), {.a = a_, .b = a_, .key = {}, .y = x_, .salt = 1});
    node = launch_foreign_blend(g, "foreign", foreign(), over(n), x_, key_, y_, 77, 3, {.waits_for_inputs = waits});
    g.launch("behind", machine().accumulate_of(n), {.y = x_, .x = y_, .salt = 2});
    return std::move(g).finish(policy);
  }

  // The plan with an argument of its node "foreign" changed, for the model.
  template <class T>
  static Plan edited(Plan plan, size_t argument, const T& value) {
    PlanNode& node = plan.nodes.at(1);
    std::memcpy(node.arguments.data() + node.fields[argument].offset, &value, sizeof value);
    return plan;
  }
  void expect_launch(ExplicitGraph& exec, const Plan& plan, const std::string& what) {
    reset();
    HostModel reference = model();
    reference.run(plan);
    exec.launch(stream_);
    EXPECT_EQ(difference(reference), "") << what;
  }

  static constexpr uint64_t n = 200;
  const Words a_ = words("a", 50), key_ = words("key", 4), x_ = words("x", n), y_ = words("y", n);
};

TEST_F(ForeignKernelTest, EveryRunComputesTheSameAndTheDriverHoldsThePlan) {
  Foreign node;
  expect_runs(sandwich(node), kAllRuns);
  expect_runs(sandwich(node, false, EdgePolicy::serial), kAllRuns);
}

TEST_F(ForeignKernelTest, AReadBackNamesTheArgumentThatDiffers) {
  Foreign node;
  const Plan plan = sandwich(node);
  ExplicitGraph exec(plan);
  const Plan other = edited(plan, 3, uint32_t{78});
  ParameterPointers pointers(other.nodes[1]);
  const CUDA_KERNEL_NODE_PARAMS parameters = kernel_parameters(other.nodes[1], pointers.get());
  const Driver& driver = device().driver();
  driver.check(driver.cuGraphKernelNodeSetParams(exec.node(1), &parameters), "cuGraphKernelNodeSetParams", "alter", "");
  EXPECT_EQ(read_back(exec), std::vector<std::string>{"node 'foreign': argument 'salt' differs"});
}

TEST_F(ForeignKernelTest, EdgesIntoItAreFullUnlessTheAuthorDeclaresThatItWaits) {
  Foreign node;
  expect_edges(sandwich(node), {"before>foreign", "foreign~>behind"});
  expect_edges(sandwich(node, true), {"before~>foreign", "foreign~>behind"});
}

TEST_F(ForeignKernelTest, ItsUsesAreThoseOfViewsAndOfStructs) {
  Foreign node;
  const Plan plan = sandwich(node);
  std::vector<std::string> uses;
  for (const Use& use : plan.nodes[1].uses)
    uses.push_back(std::string(use.field) + " " + std::string(to_string(use.access)) + " " +
                   describe_range(plan, use.buffer, use.offset, use.bytes));
  EXPECT_EQ(uses, (std::vector<std::string>{"a.words in x[0,800)", "key in key[0,16)", "y inout y[0,800)"}));
}

TEST_F(ForeignKernelTest, DumpsShowArgumentsByPlaceOrName) {
  Foreign node;
  const Plan plan = sandwich(node);
  const auto json = nlohmann::json::parse(to_json(plan));
  EXPECT_EQ(json["nodes"][1]["kernel"], "foreign_blend");
  EXPECT_EQ(json["nodes"][1]["arguments"], nlohmann::json::parse(R"([
    {"field": "0", "role": "scalar", "type": "uint8", "value": 3},
    {"field": "a", "role": "scalar", "type": "other", "value": null},
    {"field": "key", "role": "in", "type": "uint32", "count": 4},
    {"field": "salt", "role": "scalar", "type": "uint32", "value": 77},
    {"field": "y", "role": "inout", "type": "uint32", "count": 200},
    {"field": "5", "role": "scalar", "type": "uint64", "value": 200}])"))
      << json["nodes"][1]["arguments"].dump(1);
  for (const std::string& text : {to_text(plan), to_dot(plan), to_html(plan)})
    expect_words(text, {"foreign_blend", "RAW x[0,800)"});
}

TEST_F(ForeignKernelTest, ArgumentsThatTheCodeDoesNotTakeAreRefusedByKernelAndIndex) {
  GraphBuilder g(device(), "refused");
  declare_all(g);
  const auto source = foreign_source(x_);
  const uint8_t shift = 3;
  const uint32_t salt = 1;
  expect_error([&] { g.launch("few", foreign(), over(n), shift, source, reads(key_), salt, updates(y_)); },
               {"node 'few'", "kernel 'foreign_blend' takes 6 parameters", "the launch has 5 arguments"});
  expect_error([&] { g.launch("size", foreign(), over(n), shift, source, reads(key_), salt, updates(y_), salt); },
               {"node 'size'", "argument 5 has 4 bytes at offset 48", "parameter 5", "'foreign_blend' has 8 at 48"});
  // 16 bytes, as the kernel's struct, but at an offset of another alignment.
  struct Loose {
    uint32_t words[4];
  };
  expect_error(
      [&] { g.launch("place", foreign(), over(n), shift, value<"a">(Loose{}), reads(key_), salt, updates(y_), n); },
      {"node 'place'", "argument 1 ('a') has 16 bytes at offset 4", "parameter 1", "has 16 at 8"});
  EXPECT_EQ(g.node_count(), 0u);
}

TEST_F(ForeignKernelTest, MemoryRulesHoldAsForKernelsOfOurs) {
  GraphBuilder g(device(), "rules");
  declare_all(g);
  const auto launch = [&](const Words& a, const Words& key, const Words& y) {
    launch_foreign_blend(g, "node", foreign(), over(n), a, key, y, 1);
  };
  expect_error([&] { launch({x_.data + n, 1}, key_, y_); }, {"field 'a.words'", "outside every declared buffer"});
  expect_error([&] { launch(x_, y_.subview(3, 1), y_); }, {"field 'key'", "field 'y'"});
  expect_error([&] { launch(x_, {key_.data, ~0ull / 2}, y_); }, {"field 'key'", "beyond the last address"});
  expect_error(
      [&] {
        launch(x_, {reinterpret_cast<uint32_t*>(key_.address() + 2), 1}, y_);
      },
      {"field 'key'", "not a multiple"});
}

TEST_F(ForeignKernelTest, AnEmptyRangeIsRefusedByNodeAndArgument) {
  GraphBuilder g(device(), "empty");
  declare_all(g);
  const auto launch = [&](const auto& source, const auto& key) {
    g.launch("node", foreign(), over(n), uint8_t{1}, source, key, 1u, updates(y_), uint64_t{n});
  };
  const Words none{key_.data, 0};
  expect_error([&] { launch(foreign_source(x_), reads<"key">(none)); },
               {"node 'node'", "argument 'key' (in) is empty", "opaque(pointer)"});
  expect_error([&] { launch(foreign_source(x_), reads<"key">(none).within(key_)); }, {"argument 'key' (in) is empty"});
  expect_error([&] { launch(foreign_source(none), reads(key_)); }, {"argument 'a.words' (in) is empty"});
  expect_error([&] { g.record_event("event", Event(device(), "event"), {reads<"x">(none)}); },
               {"node 'event'", "'x' (in) is empty", "leave the use out"});
  expect_error([&] { launch_foreign_blend(g, "node", foreign(), over(n), x_, key_, y_, 1, 3, {.exchange = 2}); },
               {"node 'node'", "its options name exchange 2", "memory of packets"});
  expect_error(
      [&] { launch_foreign_blend(g, "node", foreign(), over(n), x_, key_, y_, 1, 3, {.envelope = Accumulate{}}); },
      {"node 'node'", "its options have an envelope", "within(whole)"});
  EXPECT_EQ(g.node_count(), 0u);
  Foreign node;
  const Plan plan = sandwich(node);
  ExplicitGraph exec(plan);
  expect_error([&] { exec.patch<"key">(node, none); }, {"node 'foreign'", "argument 'key' would be empty"});
  expect_error([&] { exec.patch<"a">(node, foreign_source(none)); }, {"argument 'a.words' would be empty"});
}

TEST_F(ForeignKernelTest, AListedUseReachesAsFarAsPatchesMay) {
  GraphBuilder g(device(), "within");
  declare_all(g);
  g.library(
      "work", {reads<"key">(key_.subview(0, 1)).within(key_)}, [](CUstream) {}, [] {});
  EXPECT_EQ(std::move(g).finish().nodes[0].uses[0].bytes, key_.bytes());
}

TEST_F(ForeignKernelTest, AnOpaquePointerUsesNothingAndFrozenMemoryIsWrittenByNobody) {
  GraphBuilder g(device(), "opaque");
  declare_all(g);
  const Weight<uint32_t> key{key_.data, key_.count};
  const ForeignSource source{x_.data, x_.count};
  g.launch("frozen", foreign(), over(n), uint8_t{1}, with_uses(source, frozen(Weight<uint32_t>{x_.data, x_.count})),
           frozen(key), 1u, updates(y_), uint64_t{n});
  expect_error([&] { g.fill("fill", key_, 0u); }, {"fill", "node 'frozen' declares frozen"});
  expect_error([&] { g.fill("fill", x_, 0u); }, {"fill", "node 'frozen' declares frozen"});
  // No element is computed, so the kernel follows no pointer.
  g.launch("opaque", foreign(), over(1), uint8_t{1}, without_pointers(ForeignSource{}), opaque(nullptr), 1u,
           opaque(y_.data), uint64_t{0});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_EQ(plan.nodes[1].uses.size(), 0u);
  EXPECT_EQ(plan.edges.size(), 0u);
  const auto arguments = nlohmann::json::parse(to_json(plan))["nodes"][1]["arguments"];
  EXPECT_EQ(arguments[2], nlohmann::json::parse(R"({"field": "2", "role": "scalar", "type": "other", "value": null})"));
  expect_runs(plan, kAllRuns);
}

TEST_F(ForeignKernelTest, AScalarAViewAndAStructArePatchedByPlaceAndByName) {
  Foreign node;
  const Plan plan = sandwich(node);
  ExplicitGraph exec(plan);
  exec.patch<"salt">(node, 99u);
  Plan changed = edited(plan, 3, uint32_t{99});
  expect_launch(exec, changed, "by name");
  exec.patch<0>(node, uint8_t{7});
  changed = edited(changed, 0, uint8_t{7});
  expect_launch(exec, changed, "by place");
  exec.patch<"key">(node, key_.subview(2, 1));
  changed = edited(changed, 2, key_.address() + 8);
  expect_launch(exec, changed, "a view");
  exec.patch<"a">(node, foreign_source(x_.subview(10, 20)));
  changed = edited(changed, 1, ForeignSource{x_.data + 10, 20});
  expect_launch(exec, changed, "a struct");
  PatchSet patches(exec);
  patches.set<"salt">(node, 5u);
  patches.set<5>(node, uint64_t{100});
  patches.set<"key">(node, key_);
  patches.apply();
  changed = edited(edited(edited(changed, 3, uint32_t{5}), 5, uint64_t{100}), 2, key_.address());
  expect_launch(exec, changed, "a set");
}

TEST_F(ForeignKernelTest, APatchBeyondTheRangeOrOfAnotherNodeIsRefused) {
  Foreign node;
  const Plan plan = sandwich(node);
  ExplicitGraph exec(plan);
  PatchSet patches(exec);
  expect_error([&] { exec.patch<"key">(node, x_); }, {"foreign", "field 'key'", "outside its envelope key[0,16)"});
  expect_error([&] { exec.patch<"a">(node, foreign_source(y_)); },
               {"field 'a.words'", "outside its envelope x[0,800)"});
  expect_error([&] { patches.set<"y">(node, x_); }, {"field 'y'", "outside its envelope"});
  Foreign other = node;
  other.index = 0;
  expect_error([&] { exec.patch<"salt">(other, 1u); }, {"before", "other arguments"});
  expect_error([&] { patches.set<"salt">(other, 1u); }, {"before", "other arguments"});
  expect_launch(exec, plan, "nothing has changed");
}

TEST_F(ForeignKernelTest, AViewMayMoveWithinTheRangeItWasDeclaredFor) {
  GraphBuilder g(device(), "wide");
  declare_all(g);
  const auto node = g.launch("foreign", foreign(), over(n), uint8_t{1}, foreign_source(x_),
                             reads<"key">(key_.subview(0, 1)).within(key_), 1u, updates<"y">(y_), uint64_t{n});
  Plan plan = std::move(g).finish(EdgePolicy::full);
  EXPECT_EQ(
      describe_range(plan, plan.nodes[0].uses[1].buffer, plan.nodes[0].uses[1].offset, plan.nodes[0].uses[1].bytes),
      "key[0,16)");
  ExplicitGraph exec(plan);
  exec.patch<"key">(node, key_.subview(3, 1));
  const uint64_t moved = key_.address() + 12;
  std::memcpy(plan.nodes[0].arguments.data() + plan.nodes[0].fields[2].offset, &moved, sizeof moved);
  expect_launch(exec, plan, "moved");
  GraphBuilder refused(device(), "narrow");
  declare_all(refused);
  expect_error(
      [&] {
        refused.launch("foreign", foreign(), over(n), uint8_t{1}, foreign_source(x_),
                       reads<"key">(key_).within(key_.subview(1, 2)), 1u, updates<"y">(y_), uint64_t{n});
      },
      {"field 'key'", "outside its envelope"});
}

TEST_F(ForeignKernelTest, ATimedTwinBracketsItWithStamps) {
  Foreign node;
  const Plan plan = sandwich(node);
  const TimedTwin twin = timed_twin(plan, *machine().kernels);
  EXPECT_TRUE(twin.nodes[1].bracketed);
  EXPECT_FALSE(twin.nodes[0].bracketed);
  reset();
  HostModel reference = model();
  reference.run(plan);
  ExplicitGraph(twin.plan).launch(stream_);
  EXPECT_EQ(difference(reference), "");
}

// Compiles for a GPU that need not be there.
TEST_F(ForeignKernelTest, TheCompilerLaysParametersOutAsTheArgumentsAre) {
  const NvrtcSource source{"foreign_blend.cu", kernel_text("foreign_blend.cu"), {}};
  const auto kernels = read_cubin(Nvrtc::load()->compile(source, nvrtc_options(9, 0)).cubin, "foreign_blend");
  std::vector<KernelParameter> compiled;
  for (const CubinParameter& parameter : kernels.at(0).parameters)
    compiled.push_back({parameter.offset, parameter.bytes});
  EXPECT_EQ(compiled, HostStandIn(foreign_blend_on_host).parameters());
}

// A CUdeviceptr is an integer: without a role it would be a scalar, and the plan would miss an edge.
TEST_F(ForeignKernelTest, AnAddressAsAScalarIsRefusedByNodeArgumentAndBuffer) {
  GraphBuilder g(device(), "integers");
  g.declare({"y", y_.address(), y_.bytes(), "activation"}, {.live_in = true});
  const auto launch = [&](auto key) {
    g.launch("node", foreign(), over(n), uint8_t{1}, foreign_source(y_), key, 1u, updates(y_.subview(0, 1)), n);
  };
  const auto refused = [&](auto key, const std::string& memory) {
    expect_error([&] { launch(key); },
                 {"node 'node'", "argument '2' holds 0x", "an address in " + memory, "what the kernel does there",
                  "reads(view)", "updates(view)", "opaque(pointer)"});
  };
  refused(y_.address(), "buffer 'y'");
  refused(CUdeviceptr{y_.address() + y_.bytes() - 1}, "buffer 'y'");
  refused(static_cast<int64_t>(y_.address()), "buffer 'y'");
  enum class Handle : uint64_t {};
  refused(static_cast<Handle>(y_.address()), "buffer 'y'");
  refused(a_.address(), "buffer 'a'");  // alive, and not declared
  expect_error(
      [&] {
        g.launch("named", foreign(), over(n), uint8_t{1}, foreign_source(y_), value<"key">(y_.address()), 1u,
                 updates(y_.subview(0, 1)), n);
      },
      {"node 'named'", "argument 'key' holds 0x"});
  const Words host = pinned("host", 8);
  refused(host.address(), "buffer 'host'");
  const Driver& driver = device().driver();
  CUdeviceptr adopted = 0;
  driver.check(driver.cuMemAlloc(&adopted, 512), "cuMemAlloc", "allocate", "adopted");
  refused(adopted + 8, "device memory that was allocated elsewhere, 0x");
  EXPECT_EQ(g.node_count(), 0u);
  driver.cuMemFree(adopted);
  const Allocation scratch = g.allocate("scratch", 64);
  refused(scratch.address, "buffer 'scratch'");
  // Numbers that are no addresses stay scalars, however large.
  for (const uint64_t number : {uint64_t{0}, uint64_t{1} << 33, ~uint64_t{0}, y_.address() << 8})
    g.launch("number " + std::to_string(number), foreign(), over(n), uint8_t{1}, without_pointers(ForeignSource{}),
             number, 1u, writes(y_.subview(0, 1)), n);
}

TEST_F(ForeignKernelTest, AnAddressInAStructIsRefusedUnlessTheStructNamesItsRange) {
  GraphBuilder g(device(), "structs");
  declare_all(g);
  const auto launch = [&](const auto& source) {
    g.launch("node", foreign(), over(n), uint8_t{1}, source, reads(key_), 1u, opaque(nullptr), n);
  };
  expect_error(
      [&] { launch(without_pointers<"a">(foreign_source(x_).value)); },
      {"node 'node'", "argument 'a' holds 0x", "at byte 0, an address in buffer 'x'", "with_uses(value, ...)"});
  expect_error([&] { launch(with_uses(foreign_source(x_).value, reads(y_))); },
               {"argument '1' holds 0x", "at byte 0, an address in buffer 'x'"});
  const Words front = x_.subview(0, 8), back = x_.subview(8, 8);
  expect_error([&] { launch(with_uses(foreign_source(back).value, reads(front))); }, {"argument '1' holds 0x"});
  expect_error(
      [&] {
        launch(with_uses(ForeignSource{x_.data, y_.address()}, reads(x_)));
      },
      {"argument '1' holds 0x", "at byte 8, an address in buffer 'y'"});
  struct Halves {
    uint32_t low, high, more[2];
  };
  struct alignas(8) Aligned {
    Halves halves;
  };
  const Halves halves{static_cast<uint32_t>(x_.address()), static_cast<uint32_t>(x_.address() >> 32), {}};
  expect_error([&] { launch(without_pointers(Aligned{halves})); }, {"argument '1' holds 0x", "at byte 0"});
  EXPECT_EQ(g.node_count(), 0u);
  launch(with_uses(ForeignSource{x_.data, y_.address()}, reads(x_), opaque(y_.address())));
  const Plan plan = std::move(g).finish();
  ASSERT_EQ(plan.nodes.at(0).uses.size(), 2u);
  EXPECT_EQ(plan.nodes[0].uses[0].field, "1.0");
}

TEST_F(ForeignKernelTest, APatchMakesNoScalarAnAddress) {
  Foreign node;
  const Plan plan = sandwich(node);
  ExplicitGraph exec(plan);
  PatchSet patches(exec);
  expect_error([&] { exec.patch<5>(node, y_.address()); },
               {"node 'foreign'", "argument '5' holds 0x", "an address in buffer 'y'", "opaque(pointer)"});
  expect_error([&] { patches.set<5>(node, x_.address()); }, {"argument '5' holds 0x", "an address in buffer 'x'"});
  expect_error(
      [&] {
        exec.patch<"a">(node, with_uses<"a">(ForeignSource{x_.data, y_.address()}, reads<"words">(x_)));
      },
      {"argument 'a' holds 0x", "at byte 8, an address in buffer 'y'"});
  expect_launch(exec, plan, "nothing has changed");
}

class ForeignStandInOnCpuDriver : public ForeignKernelTest {
 protected:
  static void set(uint64_t handle, uint32_t value) { device().driver().set_condition(handle, value); }
};

// cudaGraphSetConditional in a kernel that was compiled elsewhere.
TEST_F(ForeignStandInOnCpuDriver, AKernelGetsTheDriversHandleOfAConditionAndRunsBeforeItsNode) {
  static unsigned long long got = 0;
  const ForeignKernel choose = load_kernel(device(), {}, "choose", [](unsigned long long handle, uint32_t value) {
    got = handle;
    set(handle, value);
  });
  GraphBuilder g(device(), "handles");
  declare_all(g);
  g.fill("zero", y_, 0u);
  const ConditionHandle more = g.condition("more", 0);
  const auto node = g.launch("choose", choose, LaunchShape{}, value<"again">(more), value<"value">(1u));
  g.if_else(
      "if", more, [&](GraphBuilder& body) { body.fill("one", y_, 1u); },
      [&](GraphBuilder& body) { body.fill("two", y_, 2u); });
  const Plan plan = std::move(g).finish();
  expect_edges(plan, {"zero>if", "choose>if"});
  EXPECT_EQ(nlohmann::json::parse(to_json(plan))["nodes"][1]["arguments"], nlohmann::json::parse(R"([
    {"field": "again", "role": "condition", "type": "other"},
    {"field": "value", "role": "scalar", "type": "uint32", "value": 1}])"));
  for (const std::string& text : {to_text(plan), to_dot(plan)}) expect_words(text, {"RAW more[0,4)"});
  ExplicitGraph exec(plan);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  exec.launch(stream_);
  EXPECT_EQ(values(y_)[0], 1u);
  EXPECT_EQ(got, exec.condition(more.address));
  exec.patch<"value">(node, 0u);
  exec.launch(stream_);
  EXPECT_EQ(values(y_)[0], 2u);
  EXPECT_EQ(got, exec.condition(more.address));
  expect_error([&] { exec.patch<"again">(node, more); }, {"node 'choose'", "'again' is a condition"});
  PatchSet patches(exec);
  expect_error([&] { patches.set<0>(node, more); }, {"node 'choose'", "'again' is a condition"});
  expect_error([&] { PlanRun(plan, RunMode::eager, stream_).launch(); },
               {"node 'choose': kernel 'choose' sets a condition by the driver's handle", "as an ExplicitGraph"});
}

TEST_F(ForeignStandInOnCpuDriver, AKernelInTheBodyOfALoopSetsItsCondition) {
  const ForeignKernel count =
      load_kernel(device(), {}, "count", [](uint32_t* rounds, uint64_t handle) { set(handle, ++rounds[0] < 5); });
  GraphBuilder g(device(), "loop");
  declare_all(g);
  g.fill("zero", y_, 0u);
  const ConditionHandle again = g.condition("again", 1);
  g.while_loop("while", again, [&](GraphBuilder& body) {
    body.launch("count", count, LaunchShape{}, updates(y_.subview(0, 1)), again);
  });
  ExplicitGraph exec(std::move(g).finish());
  exec.launch(stream_);
  EXPECT_EQ(values(y_)[0], 5u);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(ForeignStandInOnCpuDriver, AHandleInAStructANumberOrOfAnotherPlanIsRefused) {
  struct Carrier {
    ConditionHandle handle;
    uint64_t n;
  };
  const ForeignKernel plain = load_kernel(device(), {}, "plain", [](uint64_t) {});
  const ForeignKernel carried = load_kernel(device(), {}, "carried", [](Carrier) {});
  GraphBuilder g(device(), "refused"), other(device(), "other");
  const ConditionHandle more = g.condition("more", 0), far = other.condition("far", 0);
  const std::initializer_list<std::string_view> words{"node 'set'", "argument '0' holds 0xc0de",
                                                      "stands for the condition 'more'", "an argument of its own"};
  expect_error([&] { g.launch("set", plain, LaunchShape{}, without_pointers(more)); }, words);
  expect_error([&] { g.launch("set", plain, LaunchShape{}, more.address); }, words);
  expect_error([&] { g.launch("set", carried, LaunchShape{}, without_pointers(Carrier{more, 1})); }, words);
  expect_error([&] { g.launch("set", plain, LaunchShape{}, far); },
               {"node 'set'", "field '0' is a condition of another plan"});
  expect_error([&] { g.launch("set", plain, LaunchShape{}, ConditionHandle{}); },
               {"node 'set'", "argument '0' is no condition"});
  EXPECT_EQ(g.node_count(), 0u);
}

TEST_F(ForeignStandInOnCpuDriver, AnUnknownHandleIsReportedWithTheNode) {
  const ForeignKernel wrong = load_kernel(device(), {}, "wrong", [](uint64_t handle) { set(handle, 1); });
  GraphBuilder g(device(), "wrong");
  g.launch("stray", wrong, LaunchShape{}, uint64_t{12345});
  ExplicitGraph exec(std::move(g).finish());
  expect_error(
      [&] {
        exec.launch(stream_);
        stream_.synchronize();
      },
      {"node 'stray'", "cannot set condition '12345'", "no graph that lives has this handle"});
  device().driver().clear_cpu_error();
}

TEST_F(ForeignStandInOnCpuDriver, AKernelMayHaveNoParametersOrManyOrLargeOnes) {
  struct Large {
    uint64_t words[100];
  };
  static uint64_t seen = 0;
  const auto take = [](auto... p) { seen = (static_cast<uint64_t>(p) + ... + 0); };
  const ForeignKernel none = load_kernel(device(), {}, "none", [] { seen = 1; });
  const ForeignKernel many =
      load_kernel(device(), {}, "many",
                  [&](char a, int b, char c, long d, char e, int f, char g, long h, char i, int j, char k, long l,
                      char m, int n, char o, long p, char q, int r, char s,
                      long t) { take(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t); });
  const ForeignKernel large = load_kernel(device(), {}, "large", [](char, Large large) { seen = large.words[99]; });
  Large value{};
  value.words[99] = 17;
  GraphBuilder g(device(), "counts");
  const auto first = g.launch("none", none, LaunchShape{});
  g.launch("many", many, LaunchShape{}, {.after = {first}}, char{1}, 2, char{3}, 4L, char{5}, 6, char{7}, 8L, char{9},
           10, char{11}, 12L, char{13}, 14, char{15}, 16L, char{17}, 18, char{19}, 20L);
  const Plan counts = std::move(g).finish(EdgePolicy::full);
  ExplicitGraph exec(counts);
  exec.launch(stream_);
  stream_.synchronize();
  EXPECT_EQ(seen, 210u);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});

  GraphBuilder other(device(), "large");
  const auto node = other.launch("large", large, LaunchShape{}, char{1}, without_pointers(value));
  ExplicitGraph patched(std::move(other).finish(EdgePolicy::full));
  patched.launch(stream_);
  stream_.synchronize();
  EXPECT_EQ(seen, 17u);
  value.words[99] = 18;
  patched.patch<1>(node, without_pointers(value));
  patched.launch(stream_);
  stream_.synchronize();
  EXPECT_EQ(seen, 18u);
}

TEST_F(ForeignStandInOnCpuDriver, WhatAStandInThrowsIsReportedWithNodeAndKernel) {
  const ForeignKernel thrower =
      load_kernel(device(), {}, "thrower", [](uint32_t) { throw std::runtime_error("no such page"); });
  GraphBuilder g(device(), "throws");
  g.launch("l3.bad", thrower, LaunchShape{}, 1u);
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  expect_error(
      [&] {
        exec.launch(stream_);
        stream_.synchronize();
      },
      {"node 'l3.bad'", "kernel thrower", "its stand-in threw: no such page"});
  device().driver().clear_cpu_error();
}

}  // namespace
}  // namespace nodewright
