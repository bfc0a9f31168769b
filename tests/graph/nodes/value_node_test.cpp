// Values by which a graph meets the host and other streams, and external semaphores: edges, runs, patches, misuse.
#include <thread>

#include "graph/dump/graph_dump.h"
#include "graph/hazard_check.h"
#include "graph/patch.h"
#include "runtime/context_guard.h"
#include "tests/graph/blend_fixture.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

class ValueNodeTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 200;
  ValueNodeTest() {
    set_initial(flags_, {0, 0, 0, 0});
    set_initial(host_flags_, {0, 0, 0, 0});
  }

  Words x_ = words("x", n), y_ = words("y", n), flags_ = words("flags", 4), host_flags_ = pinned("host_flags", 4);
  View<uint64_t> wide_ = {reinterpret_cast<uint64_t*>(flags_.data), 2};
  Stream other_{device(), "other"};

  Words flag(uint64_t index) const { return flags_.subview(index, 1); }
  void blend(GraphBuilder& g, std::string_view name, const Words& from, const Words& to) {
    g.launch(name, machine().blend_of(n), {.a = from, .b = from, .key = {}, .y = to, .salt = 1});
  }
  std::string refused(const std::function<void(GraphBuilder&)>& misuse) {
    GraphBuilder g(device(), "misuse");
    declare_all(g);
    const std::string text = error_of([&] { misuse(g); });
    EXPECT_EQ(g.node_count(), 0u);
    return text;
  }
};

TEST_F(ValueNodeTest, EdgesFollowFromTheWordsAndTheRangesBehindThem) {
  GraphBuilder g(device(), "edges");
  declare_all(g);
  g.wait_value("arrived", flag(0), Until::at_least, 3u, {writes<"x">(x_)});
  blend(g, "use", x_, y_);
  g.write_value("done", flag(1), 7u, {reads<"y">(y_)});
  g.values("again", {wait_until(flag(1), Until::equal, 7u), write_to(flag(0), 0u)});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"arrived>use", "use>done", "done>again"});
  EXPECT_TRUE(missing_orders(plan).empty());
  expect_words(to_text(plan), {"node 0 arrived | values 32 bits >= 0x3 | <value=flags[0,4) >x=x[0,800) | after nothing",
                               "node 2 done | values 32 bits := 0x7 | >value=flags[4,8) <y=y[0,800) | after use",
                               "| values 32 bits == 0x7, 32 bits := 0x0 | <value=flags[4,8) >value 1=flags[0,4)"});
  expect_words(to_json(plan), {"\"kind\": \"values\"", "\"32 bits == 0x7\""});
}

TEST_F(ValueNodeTest, EveryRunWritesAndWaits) {
  GraphBuilder g(device(), "runs");
  declare_all(g);
  g.write_value("set", flag(0), 5u);
  g.wait_value("met", flag(0), Until::equal, 5u, {writes<"x">(x_)});
  blend(g, "use", x_, y_);
  g.values("both", {write_to(wide_.subview(1, 1), uint64_t{1} << 40),
                    wait_until(wide_.subview(1, 1), Until::equal, uint64_t{1} << 40)});
  expect_runs(std::move(g).finish(EdgePolicy::programmatic), kAllRuns);
}

TEST_F(ValueNodeTest, AnotherStreamWritesWhatAGraphWaitsFor) {
  GraphBuilder g(device(), "consumer");
  declare_all(g);
  g.wait_value("arrived", flag(0), Until::at_least, 1u, {writes<"x">(x_)});
  blend(g, "use", x_, y_);
  const Plan consumer = std::move(g).finish(EdgePolicy::programmatic);
  GraphBuilder p(device(), "producer");
  declare_all(p);
  p.fill("make", x_, 9u);
  p.write_value("announce", flag(0), 1u, {reads<"x">(x_)});
  const Plan producer = std::move(p).finish(EdgePolicy::programmatic);
  HostModel reference = model();
  reference.run(producer);
  reference.run(consumer);
  for (const RunMode mode : kAllRuns) {
    reset();
    PlanRun waiting(consumer, mode, stream_), announcing(producer, RunMode::explicit_, other_);
    waiting.launch();
    announcing.launch();
    EXPECT_EQ(difference(reference), "") << to_string(mode);
  }
}

TEST_F(ValueNodeTest, TheHostWritesPinnedMemory) {
  GraphBuilder g(device(), "host");
  declare_all(g);
  g.wait_value("go", host_flags_.subview(0, 1), Until::any_bit, 4u);
  g.write_value("gone", host_flags_.subview(1, 1), 8u);
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  reset();
  exec.launch(stream_);
  std::thread writer([&] { __atomic_store_n(&host_flags_.data[0], 6u, __ATOMIC_RELEASE); });
  stream_.synchronize();
  writer.join();
  EXPECT_EQ(host_flags_.data[1], 8u);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(ValueNodeTest, ValuesArePatched) {
  GraphBuilder g(device(), "patched");
  declare_all(g);
  const ValueNode node = g.values("step", {write_to(flag(0), 1u), write_to(flag(1), 2u)});
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  reset();
  PatchSet patches(exec);
  patches.value(node, 1, 9);
  patches.value(node, 0, 8);
  patches.apply();
  exec.launch(stream_);
  EXPECT_EQ(values(flags_), (std::vector<uint32_t>{8, 9, 0, 0}));
  expect_error([&] { patches.value(node, 2, 1); }, {"'step'", "2 operations and no number 2"});
  expect_error([&] { patches.value(node, 0, uint64_t{1} << 32); }, {"'step'", "32 bits"});
  ExplicitGraph wrong(Plan(exec.plan()));
  EXPECT_EQ(read_back(wrong), std::vector<std::string>{});
}

TEST_F(ValueNodeTest, ReadBackTellsWhatIsDifferent) {
  GraphBuilder g(device(), "read");
  declare_all(g);
  g.values("step", {write_to(flag(0), 1u), wait_until(flag(0), Until::equal, 1u)});
  Plan plan = std::move(g).finish(EdgePolicy::full);
  const ExplicitGraph exec(plan);
  const_cast<PlanNode&>(exec.plan().nodes[0]).values[1].value = 2;
  const_cast<PlanNode&>(exec.plan().nodes[0]).values[1].until = Until::at_least;
  const auto differences = read_back(exec);
  ASSERT_EQ(differences.size(), 2u);
  expect_words(differences[0], {"'step'", "operation 1's value is 2 in the plan and 1 in the driver"});
  expect_words(differences[1], {"'step'", "operation 1's flags"});
}

TEST_F(ValueNodeTest, MisuseIsRefusedByName) {
  expect_words(refused([&](GraphBuilder& g) { g.values("none", {}); }), {"'none'", "0 operations"});
  expect_words(
      refused([&](GraphBuilder& g) { g.values("many", std::vector<ValueOperation>(256, write_to(flag(0), 1u))); }),
      {"'many'", "256 operations", "1 to 255"});
  expect_words(refused([&](GraphBuilder& g) {
                 g.write_value("far", Words{flags_.data + 4, 1}, 1u);
               }),
               {"'far'", "'value'", "outside every declared buffer"});
  expect_words(refused([&](GraphBuilder& g) {
                 g.write_value("odd", View<uint64_t>{reinterpret_cast<uint64_t*>(flags_.data + 1), 1}, 1u);
               }),
               {"'odd'", "'value'", "not a multiple of its element's 8 bytes"});
  expect_words(refused([&](GraphBuilder& g) { g.wait_value("w", flag(0), Until::equal, 1u, {reads<"x">(x_)}); }),
               {"'w'", "'x'", "is declared in, and this node's ranges are out"});
  expect_words(refused([&](GraphBuilder& g) { g.write_value("w", flag(0), 1u, {updates<"x">(x_)}); }),
               {"'w'", "'x'", "is declared inout, and this node's ranges are in"});
  expect_words(refused([&](GraphBuilder& g) {
                 const ConditionHandle c = g.condition("c", 1);
                 g.if_else("i", c, [&](GraphBuilder& body) { body.write_value("w", flag(0), 1u); });
               }),
               {"'w'", "a conditional node's body cannot hold a node of kind values"});
  GraphBuilder own(device(), "own");
  const Allocation scratch = own.allocate("scratch", 4);
  expect_words(error_of([&] { own.write_value("w", scratch.view<uint32_t>(), 1u); }),
               {"'w'", "'value' lies in memory that the plan allocates"});
  GraphBuilder g(device(), "undefined");
  const DeviceBuffer word(device(), "word", 4);
  g.declare(word);
  expect_error([&] { g.wait_value("w", view_of<uint32_t>(word), Until::equal, 1u); },
               {"'w'", "no earlier node writes", "live-in"});
}

class ValueNodeOnCpuDriver : public ValueNodeTest {
 protected:
  CUexternalSemaphore import() {
    CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC from{};
    from.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
    CUexternalSemaphore semaphore = nullptr;
    const ContextGuard current(device());
    EXPECT_EQ(machine().opened.driver->cuImportExternalSemaphore(&semaphore, &from), CUDA_SUCCESS);
    return semaphore;
  }
  void destroy(CUexternalSemaphore semaphore) { machine().opened.driver->cuDestroyExternalSemaphore(semaphore); }
};

TEST_F(ValueNodeOnCpuDriver, SemaphoresAreSignalledAndAwaitedInEveryRun) {
  const CUexternalSemaphore made = import(), used = import();
  GraphBuilder g(device(), "semaphores");
  declare_all(g);
  g.wait_semaphore("acquire", made, 1, {writes<"x">(x_)});
  blend(g, "use", x_, y_);
  g.signal_semaphore("release", used, 4, {reads<"y">(y_)});
  const Plan plan = std::move(g).finish(EdgePolicy::programmatic);
  expect_edges(plan, {"acquire>use", "use>release"});
  expect_words(to_text(plan),
               {"acquire | semaphore wait 1 | >x=x[0,800)", "release | semaphore signal 4 | <y=y[0,800)"});
  expect_words(to_json(plan), {"\"kind\": \"semaphore wait\"", "\"semaphore_value\": 4"});
  GraphBuilder p(device(), "producer");
  declare_all(p);
  p.signal_semaphore("make", made, 1, {reads<"x">(x_)});
  ExplicitGraph producer(std::move(p).finish(EdgePolicy::full));
  producer.launch(other_);
  expect_runs(plan, kAllRuns);
  ExplicitGraph exec(plan);
  const_cast<PlanNode&>(exec.plan().nodes[0]).semaphore.value = 2;
  const auto differences = read_back(exec);
  ASSERT_EQ(differences.size(), 1u);
  expect_words(differences[0], {"'acquire'", "value is 2 in the plan and 1 in the driver"});
  expect_words(refused([&](GraphBuilder& b) { b.signal_semaphore("none", nullptr, 1, {}); }),
               {"'none'", "no semaphore"});
  expect_words(refused([&](GraphBuilder& b) { b.signal_semaphore("s", used, 1, {writes<"y">(y_)}); }), {"'s'", "'y'"});
  destroy(made);
  destroy(used);
}

TEST_F(ValueNodeOnCpuDriver, AForeignGraphsSemaphoresAreNamedAndReadBack) {
  const Driver& driver = *machine().opened.driver;
  CUexternalSemaphore semaphore = import();
  CUgraph foreign = nullptr;
  CUgraphNode node = nullptr;
  ASSERT_EQ(driver.cuGraphCreate(&foreign, 0), CUDA_SUCCESS);
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  signal.params.fence.value = 6;
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_EXT_SEMAS_SIGNAL;
  parameters.extSemSignal = {&semaphore, &signal, 1};
  for (int i = 0; i < 2; ++i)
    ASSERT_EQ(driver.cuGraphAddNode(&node, foreign, nullptr, nullptr, 0, &parameters), CUDA_SUCCESS);
  parameters = {};
  parameters.type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_EQ(driver.cuGraphAddNode(&node, foreign, nullptr, nullptr, 0, &parameters), CUDA_SUCCESS);
  GraphBuilder g(device(), "holder");
  declare_all(g);
  g.graph("theirs", foreign, {reads(y_)});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_words(to_text(plan), {"theirs | graph of 1 × empty, 2 × external semaphore signal |"});
  ExplicitGraph exec(plan);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
  exec.launch(stream_);
  stream_.synchronize();
  EXPECT_EQ(driver.cuGraphDestroy(foreign), CUDA_SUCCESS);
  destroy(semaphore);
}

class ImpatientValueNodeOnCpuDriver : public ValueNodeTest {
 protected:
  static void SetUpTestSuite() { spec_ = "cpu:timeout_ms=30"; }
  static void TearDownTestSuite() {
    ValueNodeTest::TearDownTestSuite();
    spec_ = test::test_device();
  }
};

TEST_F(ImpatientValueNodeOnCpuDriver, AValueThatNobodyWritesIsAnErrorThatNamesTheNode) {
  GraphBuilder g(device(), "stuck");
  declare_all(g);
  g.wait_value("forever", flag(0), Until::at_least, 1u);
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  reset();
  exec.launch(stream_);
  expect_error([&] { stream_.synchronize(); },
               {"node 'forever' waits for a value at least 0x1, and 0x0 is at byte 0 of buffer 'flags'",
                "nobody has changed it for 30 ms"});
  machine().opened.driver->clear_cpu_error();
}

}  // namespace
}  // namespace nodewright
