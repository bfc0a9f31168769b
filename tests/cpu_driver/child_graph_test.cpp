// Child graphs that are moved into their node, arguments through `extra`, and event record nodes as other streams see
// them.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class ChildGraphTest : public GraphTest {
 protected:
  static constexpr auto kMove = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE;

  void SetUp() override {
    GraphTest::SetUp();
    ASSERT_OK(api().cuGraphCreate(&inner_, 0));
    node_ = add_kernel(inner_, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  }

  CUgraph inner_ = nullptr;
  CUgraphNode node_ = nullptr;
};

TEST_F(ChildGraphTest, AMovedChildKeepsItsHandlesAndItsNodesStayPatchable) {
  const CUgraphNode child = add_node(graph_, child_node(inner_, kMove));
  ASSERT_OK(add_result_);
  CUgraph same = nullptr;
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &same));
  EXPECT_EQ(inner_, same);
  add_kernel(inner_, add_one_, 1, 64, AddOne{{b_, 64}, {c_, 64}, 64}, {node_});
  ASSERT_OK(add_result_) << "nodes may still be added";
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(3.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphNodeSetEnabled(exec, node_, 0));
  ASSERT_OK(api().cuMemsetD8(reinterpret_cast<CUdeviceptr>(b_), 0, 256));
  EXPECT_EQ(1.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  const CUgraph outer = graph_;
  graph_ = nullptr;
  ASSERT_OK(api().cuGraphDestroy(outer));
  size_t count = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphGetNodes(inner_, nullptr, &count)) << "destroyed with its parent";
}

TEST_F(ChildGraphTest, AMovedChildIsNeitherDestroyedNorInstantiatedNorMovedAgain) {
  add_node(graph_, child_node(inner_, kMove));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphDestroy(inner_));
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&exec, inner_, &params));
  expect_reported("cannot be instantiated alone");
  CUgraph other = nullptr;
  ASSERT_OK(api().cuGraphCreate(&other, 0));
  for (const auto ownership : {CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, kMove}) {
    add_node(other, child_node(inner_, ownership));
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
    expect_reported("cannot be a child graph again");
  }
  ASSERT_OK(api().cuGraphDestroy(other));
  exec = instantiate(graph_);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecUpdate(exec, inner_, &info));
  expect_reported("cannot be the source of an update");
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ChildGraphTest, ARefusedMoveLeavesTheGraphToItsOwner) {
  const CUgraphNode first = add(a_, b_);
  CUgraphNodeParams params = child_node(inner_, kMove);
  const CUgraphNode twice[] = {first, first};
  CUgraphNode refused = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphAddNode(&refused, graph_, twice, nullptr, 2, &params));
  add_node(inner_, child_node(inner_, kMove));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("would hold itself");
  add_node(graph_, child_node(inner_, static_cast<CUgraphChildGraphNodeOwnership>(7)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  const CUgraphExec exec = instantiate(inner_);
  EXPECT_EQ(2.0f, run(exec, b_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuGraphDestroy(inner_));
}

TEST_F(ChildGraphTest, AGraphMayNotHoldAGraphThatHoldsIt) {
  CUgraph deepest = nullptr;
  ASSERT_OK(api().cuGraphCreate(&deepest, 0));
  add_node(inner_, child_node(deepest, kMove));
  ASSERT_OK(add_result_);
  add_node(deepest, child_node(inner_, kMove));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("would hold itself");
  ASSERT_OK(api().cuGraphDestroy(inner_));
}

TEST_F(ChildGraphTest, ArgumentsThroughExtraAreCopiedAndReadBackAsExtra) {
  AddOne args{{a_, 64}, {b_, 64}, 64};
  size_t bytes = sizeof args;
  void* extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, &args, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes, CU_LAUNCH_PARAM_END};
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
  auto& kernel = params.kernel;
  kernel.func = add_one_;
  kernel.gridDimX = kernel.gridDimY = kernel.gridDimZ = kernel.blockDimY = kernel.blockDimZ = 1;
  kernel.blockDimX = 64;
  kernel.extra = extra;
  const CUgraphNode node = add_node(graph_, params);
  ASSERT_OK(add_result_);
  args.n = -1;
  CUDA_KERNEL_NODE_PARAMS held{};
  ASSERT_OK(api().cuGraphKernelNodeGetParams(node, &held));
  EXPECT_EQ(nullptr, held.kernelParams);
  ASSERT_NE(nullptr, held.extra);
  EXPECT_EQ(CU_LAUNCH_PARAM_BUFFER_POINTER, held.extra[0]);
  EXPECT_EQ(64, static_cast<const AddOne*>(held.extra[1])->n);
  EXPECT_EQ(sizeof args, *static_cast<const size_t*>(held.extra[3]));
  CUkernelNodeAttrValue yes{};
  yes.cooperative = 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_COOPERATIVE, &yes));
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(2.0f, run(exec, b_));
  ASSERT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &held)) << "what was read back can be set";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  bytes = 8;
  add_node(graph_, params);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("8 argument bytes through `extra`, it takes 40");
  void* pointers[] = {&args};
  kernel.kernelParams = pointers;
  add_node(graph_, params);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << "both ways at once";
  kernel.kernelParams = nullptr;
  extra[2] = CU_LAUNCH_PARAM_END;
  add_node(graph_, params);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << "no size";
}

// A stream that waits for an event after the launch waits for this launch's record node, and not for the whole graph.
TEST_F(ChildGraphTest, AnEventNodeIsRecordedByTheLaunchAndDoneWhenItsNodeRuns) {
  for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::reverse, CpuSchedule::seeded}) {
    begin({.schedule = schedule, .seed = 5});
    CUevent event = nullptr;
    CUstream other = nullptr;
    ASSERT_OK(api().cuEventCreate(&event, 0));
    ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    const CUgraphNode first = add(a_, b_);
    const CUgraphNode recorded = add_node(graph_, event_node(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event), {first});
    add(b_, c_, {recorded});
    const CUgraphExec exec = instantiate(graph_);
    ASSERT_OK(api().cuGraphLaunch(exec, stream_));
    EXPECT_EQ(CUDA_ERROR_NOT_READY, api().cuEventQuery(event));
    ASSERT_OK(api().cuStreamWaitEvent(other, event, 0));
    float* seen = allocate<float>(1);
    ASSERT_OK(
        api().cuMemcpyDtoDAsync(reinterpret_cast<CUdeviceptr>(seen), reinterpret_cast<CUdeviceptr>(b_), 4, other));
    ASSERT_OK(api().cuStreamSynchronize(other));
    EXPECT_EQ(2.0f, download(seen, 1)[0]);
    ASSERT_OK(synchronize());
    EXPECT_OK(api().cuEventQuery(event));
    ASSERT_OK(api().cuGraphExecDestroy(exec));
    ASSERT_OK(api().cuStreamDestroy(other));
    ASSERT_OK(api().cuEventDestroy(event));
  }
}

// Planted: the kernel before the record node fails, so that node never runs.
TEST_F(ChildGraphTest, AFailedRunLeavesNoEventPending) {
  CUevent event = nullptr;
  ASSERT_OK(api().cuEventCreate(&event, 0));
  const auto* nowhere = reinterpret_cast<const float*>(uintptr_t{4096});
  const CUgraphNode fails = add_kernel(graph_, add_one_, 1, 64, AddOne{{nowhere, 64}, {b_, 64}, 64});
  add_node(graph_, event_node(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event), {fails});
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, synchronize());
  api().clear_error();
  EXPECT_OK(api().cuEventSynchronize(event)) << "and does not hang";
  EXPECT_OK(api().cuEventQuery(event));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuEventDestroy(event));
}

}  // namespace
}  // namespace nodewright
