// What conditional nodes run: bodies chosen and repeated by values that kernels set.
#include "tests/cpu_driver/conditional_fixture.h"

namespace nodewright {
namespace {

TEST_F(ConditionalTest, AnIfNodeRunsItsFirstBodyOrTheSecondByTheValue) {
  uint32_t* value = upload(std::vector<uint32_t>{1});
  uint32_t* result = allocate<uint32_t>(1);
  const CUgraphConditionalHandle handle = handle_of(graph_), alone = handle_of(graph_);
  const CUgraphNode decided = add_decide(graph_, value, handle), also = add_decide(graph_, value, alone);
  const CUgraphNode cleared = add_node(graph_, word_fill(result, 30));
  const auto bodies = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 2, {decided, cleared});
  ASSERT_OK(add_result_);
  const CUgraphNode first = conditional_;
  ASSERT_EQ(2u, bodies.size());
  add_node(bodies[0], word_fill(result, 10));
  add_node(bodies[1], word_fill(result, 20));
  const auto lone = add_conditional(graph_, alone, CU_GRAPH_COND_TYPE_IF, 1, {also, first});
  ASSERT_OK(add_result_);
  uint32_t* second = upload(std::vector<uint32_t>{0});
  add_node(lone[0], word_fill(second, 5));
  const CUgraphExec exec = instantiate(graph_);
  launch_and_wait(exec);
  EXPECT_EQ(10u, word(result));
  EXPECT_EQ(5u, word(second));
  set_word(value, 0);
  set_word(second, 0);
  launch_and_wait(exec);
  EXPECT_EQ(20u, word(result)) << "ELSE";
  EXPECT_EQ(0u, word(second)) << "IF without ELSE";
  set_word(value, 77);
  launch_and_wait(exec);
  EXPECT_EQ(10u, word(result)) << "whatever is not 0";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, AWhileNodeTestsItsConditionBeforeEachRound) {
  for (const CpuDriverOptions& options : all_schedules()) {
    begin_with(options);
    uint32_t* rounds = upload(std::vector<uint32_t>{0});
    uint32_t* left = upload(std::vector<uint32_t>{5});
    const CUgraphConditionalHandle handle = handle_of(graph_, 1);
    const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    ASSERT_OK(add_result_);
    add_round(body[0], rounds, left, handle);
    const CUgraphExec exec = instantiate(graph_);
    launch_and_wait(exec);
    EXPECT_EQ(5u, word(rounds));
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
  begin_with({});
  uint32_t* rounds = upload(std::vector<uint32_t>{0});
  const CUgraphConditionalHandle handle = handle_of(graph_, 0);
  const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  add_round(body[0], rounds, rounds, handle);
  const CUgraphExec exec = instantiate(graph_);
  launch_and_wait(exec);
  EXPECT_EQ(0u, word(rounds)) << "0 from the start";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, ASwitchNodeRunsTheBodyOfItsValueOrNone) {
  uint32_t* value = upload(std::vector<uint32_t>{0});
  uint32_t* result = allocate<uint32_t>(1);
  const CUgraphConditionalHandle handle = handle_of(graph_);
  const CUgraphNode decided = add_decide(graph_, value, handle);
  const CUgraphNode cleared = add_node(graph_, word_fill(result, 99), {decided});
  const auto bodies = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_SWITCH, 3, {cleared});
  for (unsigned i = 0; i < 3; ++i) add_node(bodies[i], word_fill(result, 100 + i));
  const CUgraphExec exec = instantiate(graph_);
  for (const auto& [given, expected] : {std::pair{0u, 100u}, {1u, 101u}, {2u, 102u}, {3u, 99u}, {~0u, 99u}}) {
    set_word(value, given);
    launch_and_wait(exec);
    EXPECT_EQ(expected, word(result)) << given;
  }
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, ADefaultIsAssignedAtEachLaunchOnlyWhenAsked) {
  for (const bool assign : {true, false}) {
    begin_with({});
    uint32_t* rounds = upload(std::vector<uint32_t>{0});
    uint32_t* left = upload(std::vector<uint32_t>{3});
    uint32_t* first = upload(std::vector<uint32_t>{1});
    const CUgraphConditionalHandle handle =
        handle_of(graph_, assign ? 1 : 0, assign ? CU_GRAPH_COND_ASSIGN_DEFAULT : 0);
    std::vector<CUgraphNode> after;
    if (!assign) after.push_back(add_decide(graph_, first, handle));
    const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1, after);
    add_round(body[0], rounds, left, handle);
    const CUgraphExec exec = instantiate(graph_);
    launch_and_wait(exec);
    EXPECT_EQ(3u, word(rounds));
    launch_and_wait(exec);
    EXPECT_EQ(4u, word(rounds)) << "the first round of the second launch finds nothing left";
    if (!assign) {
      ASSERT_OK(api().cuGraphNodeSetEnabled(exec, after[0], 0));
      launch_and_wait(exec);
      EXPECT_EQ(5u, word(rounds)) << "undefined: not the 0 that the last launch left";
    }
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
}

TEST_F(ConditionalTest, ACheckedLaunchObeysNoConditionThatNothingHasSet) {
  CpuDriverOptions options;
  options.check_accesses = true;
  begin_with(options);
  uint32_t* chosen = upload(std::vector<uint32_t>{1});
  const CUgraphConditionalHandle handle = handle_of(graph_, 7, 0);
  const CUgraphNode setter = add_decide(graph_, chosen, handle);
  api().label("branch");
  add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1, {setter});
  const CUgraphExec exec = instantiate(graph_);
  launch_and_wait(exec);
  ASSERT_OK(api().cuGraphNodeSetEnabled(exec, setter, 0));
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, synchronize());
  expect_reported("node 'branch': its condition is undefined");
  api().clear_error();
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

// 3 outer rounds of 2 inner rounds each: the outer body fills `left` again and sets the inner condition.
TEST_F(ConditionalTest, ConditionalsNestInBodies) {
  for (const CpuDriverOptions& options : all_schedules()) {
    begin_with(options);
    uint32_t *outer_rounds = upload(std::vector<uint32_t>{0}), *inner_rounds = upload(std::vector<uint32_t>{0});
    uint32_t *outer_left = upload(std::vector<uint32_t>{3}), *inner_left = allocate<uint32_t>(1);
    const CUgraphConditionalHandle outer = handle_of(graph_, 1), inner = handle_of(graph_, 0);
    const auto body = add_conditional(graph_, outer, CU_GRAPH_COND_TYPE_WHILE, 1);
    ASSERT_OK(add_result_);
    const CUgraphNode filled = add_node(body[0], word_fill(inner_left, 2));
    const CUgraphNode decided = add_decide(body[0], inner_left, inner, {filled});
    const auto deeper = add_conditional(body[0], inner, CU_GRAPH_COND_TYPE_WHILE, 1, {decided});
    ASSERT_OK(add_result_);
    add_round(deeper[0], inner_rounds, inner_left, inner);
    add_round(body[0], outer_rounds, outer_left, outer, {conditional_});
    const CUgraphExec exec = instantiate(graph_);
    launch_and_wait(exec);
    EXPECT_EQ(3u, word(outer_rounds));
    EXPECT_EQ(6u, word(inner_rounds));
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
}

// The planted bug: a body whose second kernel does not wait for the first.
TEST_F(ConditionalTest, AMissingEdgeInABodyShowsInTheReverseSchedule) {
  for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::reverse}) {
    begin_with({.schedule = schedule});
    const CUgraphConditionalHandle handle = handle_of(graph_, 1);
    const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
    add_kernel(body[0], add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
    add_kernel(body[0], add_one_, 1, 64, AddOne{{b_, 64}, {c_, 64}, 64});
    const CUgraphExec exec = instantiate(graph_);
    EXPECT_EQ(schedule == CpuSchedule::forward, run(exec, c_) == 3.0f);
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
}

// Planted: an outer kernel reads what a body's second kernel writes, without an edge. Only a schedule that mixes the
// nodes of a body with those beside it finds the half-done state.
TEST_F(ConditionalTest, ASeededScheduleMixesABodyWithTheNodesBesideIt) {
  int between = 0;
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    begin_with({.schedule = CpuSchedule::seeded, .seed = seed});
    uint32_t* value = upload(std::vector<uint32_t>{0});
    uint32_t* seen = upload(std::vector<uint32_t>{9, 9});
    const CUgraphConditionalHandle handle = handle_of(graph_, 1);
    const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
    const CUgraphNode first = add_node(body[0], word_fill(value, 1));
    add_node(body[0], word_fill(value, 2), {first});
    CUgraphNodeParams copy = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
    auto& c = copy.memcpy.copyParams;
    c.srcMemoryType = c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
    c.srcDevice = reinterpret_cast<CUdeviceptr>(value);
    c.dstDevice = reinterpret_cast<CUdeviceptr>(seen);
    c.WidthInBytes = 4;
    c.Height = c.Depth = 1;
    add_node(graph_, copy);
    const CUgraphExec exec = instantiate(graph_);
    launch_and_wait(exec);
    between += word(seen) == 1 ? 1 : 0;
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
  EXPECT_GT(between, 0) << "of twelve seeds";
}

TEST_F(ConditionalTest, AnEndlessLoopEndsInATimeOut) {
  for (const bool empty : {true, false}) {
    begin_with({.launch_timeout_ms = 300});  // far more than one round takes
    const CUgraphConditionalHandle handle = handle_of(graph_, 4);
    api().label("forever");
    const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
    if (!empty) add_kernel(body[0], add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
    const CUgraphExec exec = instantiate(graph_);
    ASSERT_OK(api().cuGraphLaunch(exec, stream_));
    EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, synchronize());
    expect_reported("node 'forever', WHILE: ");
    expect_reported("the condition is still 4");
    EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, api().cuCtxSynchronize()) << "sticky";
    api().clear_error();
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
}

TEST_F(ConditionalTest, NodesInBodiesArePatchedThroughTheExec) {
  uint32_t* rounds = upload(std::vector<uint32_t>{0});
  uint32_t* others = upload(std::vector<uint32_t>{0});
  uint32_t* left = upload(std::vector<uint32_t>{2});
  const CUgraphConditionalHandle handle = handle_of(graph_, 1);
  const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  const CUgraphNode round = add_round(body[0], rounds, left, handle);
  const CUgraphNode filled = add_node(body[0], word_fill(others, 7), {round});
  const CUgraphExec exec = instantiate(graph_);
  CUDA_KERNEL_NODE_PARAMS params{};
  ASSERT_OK(api().cuGraphKernelNodeGetParams(round, &params));
  Round changed = *static_cast<Round*>(params.kernelParams[0]);
  changed.rounds = {others, 1};
  void* pointers[] = {&changed};
  params.kernelParams = pointers;
  ASSERT_OK(api().cuGraphExecKernelNodeSetParams(exec, round, &params));
  ASSERT_OK(api().cuGraphNodeSetEnabled(exec, filled, 0));
  launch_and_wait(exec);
  EXPECT_EQ(0u, word(rounds));
  EXPECT_EQ(2u, word(others));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, ABodyMayBeFilledByCapture) {
  uint32_t* rounds = upload(std::vector<uint32_t>{0});
  uint32_t* left = upload(std::vector<uint32_t>{4});
  const CUgraphConditionalHandle handle = handle_of(graph_, 1);
  const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  ASSERT_OK(api().cuStreamBeginCaptureToGraph(stream_, body[0], nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(launch(round_, 1, 32, Round{{rounds, 1}, {left, 1}, {handle, nullptr}}));
  CUgraph captured = nullptr;
  ASSERT_OK(api().cuStreamEndCapture(stream_, &captured));
  EXPECT_EQ(body[0], captured);
  const CUgraphExec exec = instantiate(graph_);
  launch_and_wait(exec);
  EXPECT_EQ(4u, word(rounds));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalTest, AnExecOutlivesItsGraphAndTheGraphsHandles) {
  uint32_t* rounds = upload(std::vector<uint32_t>{0});
  uint32_t* left = upload(std::vector<uint32_t>{2});
  const CUgraphConditionalHandle handle = handle_of(graph_, 1);
  const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  add_round(body[0], rounds, left, handle);
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphDestroy(graph_));
  size_t count = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphGetNodes(body[0], nullptr, &count)) << "gone with its node";
  launch_and_wait(exec);
  EXPECT_EQ(2u, word(rounds));
  ASSERT_OK(api().cuGraphCreate(&graph_, 0));
  add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_WHILE, 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, add_result_);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

}  // namespace
}  // namespace nodewright
