// InstantiateOptions: memory that a launch leaves allocated, uploads at once, and what device launch forbids.
#include "graph/nodes/instantiate_rules.h"

#include "graph/dump/graph_dump.h"
#include "graph/edit/plan_edit.h"
#include "graph/run/captured_run.h"
#include "graph/run/eager_run.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/nodes/library_work.h"

namespace nodewright {
namespace {

class InstantiateOptionsTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 100;

  // Leaves x + 1 in memory of its own; `address`: the planned one.
  Plan leaving_plan(uint64_t& address, bool frees = false) {
    GraphBuilder g(device(), "leaves");
    declare_all(g);
    const Allocation result = g.allocate("result", n * sizeof(uint32_t));
    address = result.address;
    g.launch("blend", machine().blend_of(n), {.a = x_, .b = y_, .key = {}, .y = result.view<uint32_t>(), .salt = 3});
    g.declare(result.range(), {.live_out = true});
    if (frees) g.free(result);
    return std::move(g).finish();
  }

  Words x_ = words("x", n), y_ = words("y", n);
};

TEST_F(InstantiateOptionsTest, MemoryLeftAllocatedIsThereUntilTheNextLaunchAndThenFreed) {
  uint64_t planned = 0;
  const Plan plan = leaving_plan(planned);
  EXPECT_NE(to_text(plan).find("buffer result 400 B allocation live-out"), std::string::npos) << to_text(plan);
  {
    ExplicitGraph exec(plan, {.auto_free_on_launch = true});
    const Words held{reinterpret_cast<uint32_t*>(exec.memory().address_of(planned)), n};
    for (int launch = 0; launch < 3; ++launch) {
      reset();
      exec.launch(stream_);
      const std::vector<uint32_t> found = values(held);
      HostModel reference = model();
      EXPECT_EQ(found[0], (reference.word(x_.address()) * 1664525u + reference.word(y_.address()) * 22695477u) ^ 3u);
    }
    EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  }
  // Each graph frees what it has left: a hundred of them do not add up.
  ExplicitGraph again(plan, {.auto_free_on_launch = true});
  const auto reserved = [&] {
    cuuint64_t bytes = 0;
    device().driver().check(
        device().driver().cuDeviceGetGraphMemAttribute(device().get(), CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes),
        "cuDeviceGetGraphMemAttribute", "read", "graph memory");
    return bytes;
  };
  const cuuint64_t before = reserved();
  for (int i = 0; i < 100; ++i) {
    ExplicitGraph exec(plan, {.auto_free_on_launch = true});
    exec.launch(stream_);
  }
  EXPECT_EQ(reserved(), before);
}

TEST_F(InstantiateOptionsTest, MemoryLeftAllocatedNeedsTheOptionAndAnExplicitGraph) {
  uint64_t planned = 0;
  const Plan plan = leaving_plan(planned);
  for (const auto& [run, doing] :
       {std::pair<std::function<void()>, std::string_view>{[&] { ExplicitGraph exec(plan); }, "instantiate graph"},
        {[&] { run_eager(plan, stream_); }, "run plan node by node"},
        {[&] { CapturedGraph exec(plan, stream_); }, "capture plan"}})
    expect_error(run, {doing, "'leaves'", "no node frees the memory of node 'result'", "auto_free_on_launch"});
  expect_error([&] { leaving_plan(planned, true); },
               {"'leaves'", "'result' is declared live-out, and node 'result.free' frees it"});
  PlanEdit edit(plan);
  edit.insert_before("result", [&](GraphBuilder& g) { g.fill("first", x_, 1u); });
  EXPECT_EQ(error_of([&] { ExplicitGraph exec(edit.finish(), {.auto_free_on_launch = true}); }), "");
}

TEST_F(InstantiateOptionsTest, TheOptionIsReadBack) {
  uint64_t planned = 0;
  ExplicitGraph exec(leaving_plan(planned), {.auto_free_on_launch = true});
  cuuint64_t flags = 0;
  ASSERT_EQ(device().driver().cuGraphExecGetFlags(exec.exec(), &flags), CUDA_SUCCESS);
  EXPECT_EQ(flags, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
}

TEST_F(InstantiateOptionsTest, AGraphIsUploadedAsItIsInstantiated) {
  GraphBuilder g(device(), "updated by the device");
  declare_all(g);
  g.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 1},
           {.attributes = {.device_updatable = true}});
  const Plan plan = std::move(g).finish();
  {
    ExplicitGraph exec(plan);
    expect_error([&] { exec.launch(stream_); }, {"not uploaded"});
  }
  ExplicitGraph exec(plan, {.upload = &stream_});
  EXPECT_EQ(error_of([&] { exec.launch(stream_); }), "");
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(InstantiateOptionsTest, DeviceLaunchNamesTheNodeThatForbidsIt) {
  const auto expect_forbidden = [&](const std::function<void(GraphBuilder&)>& add,
                                    std::initializer_list<std::string_view> words) {
    GraphBuilder g(device(), "from a kernel");
    declare_all(g);
    g.fill("fill", x_, 1u);
    add(g);
    const Plan plan = std::move(g).finish();
    expect_error([&] { check_device_launch(plan); }, words);
  };
  const Event event(device(), "event");
  expect_forbidden([](GraphBuilder& g) { g.host("call", [] {}, {}); }, {"'call' of plan 'from a kernel'", "kind host"});
  expect_forbidden([](GraphBuilder& g) { g.empty("join", {}); }, {"'join'", "kind empty"});
  expect_forbidden([&](GraphBuilder& g) { g.record_event("record", event, {}); }, {"'record'", "kind event record"});
  expect_forbidden([&](GraphBuilder& g) { g.wait_event("wait", event, {}); }, {"'wait'", "kind event wait"});
  expect_forbidden([&](GraphBuilder& g) { g.write_value("write", x_, 1u); }, {"'write'", "kind values"});
  expect_forbidden([&](GraphBuilder& g) { g.free(g.allocate("memory", 4)); }, {"'memory'", "kind allocate"});
  expect_forbidden(
      [&](GraphBuilder& g) {
        g.if_else("choose", g.condition("which", 1), [&](GraphBuilder& body) { body.fill("inside", y_, 1u); });
      },
      {"'choose'", "kind conditional"});
  expect_forbidden(
      [&](GraphBuilder& g) {
        GraphBuilder inner(device(), "part");
        declare_all(inner);
        inner.host("deep", [] {}, {});
        g.child("child", std::move(inner).finish(), ChildOwnership::cloned);
      },
      {"node 'deep' of plan 'part'", "kind host"});

  GraphBuilder nothing(device(), "from a kernel");
  const Plan empty_plan = std::move(nothing).finish();
  expect_error([&] { check_device_launch(empty_plan); }, {"no kernel, copy or fill"});

  GraphBuilder allowed(device(), "from a kernel");
  declare_all(allowed);
  allowed.copy("copy", x_, y_, 40);
  allowed.launch("add", machine().accumulate_of(n), {.y = y_, .x = x_, .salt = 1});
  const Plan plan = std::move(allowed).finish();
  EXPECT_EQ(error_of([&] { check_device_launch(plan); }), "");
  expect_error([&] { ExplicitGraph exec(plan, {.auto_free_on_launch = true, .device_launch = true}); },
               {"exclude each other"});
}

class GraphOptionsOnCpuDriver : public InstantiateOptionsTest {};

TEST_F(GraphOptionsOnCpuDriver, KernelsLaunchNoGraphs) {
  GraphBuilder g(device(), "from a kernel");
  declare_all(g);
  g.fill("fill", x_, 1u);
  const Plan plan = std::move(g).finish();
  expect_error([&] { ExplicitGraph exec(plan, {.device_launch = true}); },
               {"'from a kernel'", "kernels launch no graphs on the CPU driver"});
  const ExplicitGraph exec(plan);
  CUgraphExec refused = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  how.flags = CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH;
  EXPECT_EQ(device().driver().cuGraphInstantiateWithParams(&refused, exec.graph(), &how), CUDA_ERROR_NOT_SUPPORTED);
}

}  // namespace
}  // namespace nodewright
