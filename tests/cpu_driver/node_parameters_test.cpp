// Reading a node back and changing it in an executable graph: host, event and child nodes, and nodes inside children.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class NodeParametersTest : public GraphTest {};

void count_up(void* data) { ++*static_cast<int*>(data); }
void count_ten(void* data) { *static_cast<int*>(data) += 10; }

TEST_F(NodeParametersTest, AHostNodeTellsItsFunctionAndTakesAnotherOneInTheExec) {
  int first = 0, second = 0;
  const CUgraphNode node = add_node(graph_, host_node(count_up, &first));
  ASSERT_OK(add_result_);
  CUDA_HOST_NODE_PARAMS params{};
  ASSERT_OK(api().cuGraphHostNodeGetParams(node, &params));
  EXPECT_EQ(&count_up, params.fn);
  EXPECT_EQ(&first, params.userData);
  const CUgraphExec exec = instantiate(graph_);
  params = {count_ten, &second};
  ASSERT_OK(api().cuGraphExecHostNodeSetParams(exec, node, &params));
  run(exec, a_);
  EXPECT_EQ(0, first);
  EXPECT_EQ(10, second);
  ASSERT_OK(api().cuGraphHostNodeGetParams(node, &params));
  EXPECT_EQ(&count_up, params.fn) << "the graph keeps what it had";
  params.fn = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecHostNodeSetParams(exec, node, &params));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphHostNodeGetParams(node, nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphHostNodeGetParams(add(a_, b_), &params)) << "a kernel node";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(NodeParametersTest, EventNodesTellTheirEventAndTakeAnotherOneInTheExec) {
  CUevent events[2] = {};
  for (CUevent& event : events) {
    ASSERT_OK(api().cuEventCreate(&event, 0));
  }
  const CUgraphNode record = add_node(graph_, event_node(CU_GRAPH_NODE_TYPE_EVENT_RECORD, events[0]));
  const CUgraphNode wait = add_node(graph_, event_node(CU_GRAPH_NODE_TYPE_WAIT_EVENT, events[1]), {record});
  ASSERT_OK(add_result_);
  CUevent event = nullptr;
  ASSERT_OK(api().cuGraphEventRecordNodeGetEvent(record, &event));
  EXPECT_EQ(events[0], event);
  ASSERT_OK(api().cuGraphEventWaitNodeGetEvent(wait, &event));
  EXPECT_EQ(events[1], event);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphEventRecordNodeGetEvent(wait, &event));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphEventWaitNodeGetEvent(record, &event));

  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphExecEventRecordNodeSetEvent(exec, record, events[1]));
  ASSERT_OK(api().cuGraphExecEventWaitNodeSetEvent(exec, wait, events[0]));
  run(exec, a_);
  float ms = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuEventElapsedTime(&ms, events[0], events[1])) << "0 was never recorded";
  EXPECT_OK(api().cuEventElapsedTime(&ms, events[1], events[1]));
  ASSERT_OK(api().cuEventDestroy(events[0]));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphExecEventRecordNodeSetEvent(exec, record, events[0]));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecEventRecordNodeSetEvent(exec, wait, events[1]));
  ASSERT_OK(api().cuEventDestroy(events[1]));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(NodeParametersTest, TheGraphOfAChildNodeIsTheNodesOwn) {
  CUgraph given = nullptr, inner = nullptr;
  ASSERT_OK(api().cuGraphCreate(&given, 0));
  add_kernel(given, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  const CUgraphNode child = add_node(graph_, child_node(given));
  ASSERT_OK(add_result_);
  ASSERT_OK(api().cuGraphDestroy(given));
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &inner));
  EXPECT_NE(given, inner) << "cloned when the node was added";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphDestroy(inner));
  expect_reported("cannot be destroyed");
  CUgraphNode first = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetNodes(inner, &first, &count));
  EXPECT_EQ(1u, count);
  add_kernel(inner, add_one_, 1, 64, AddOne{{b_, 64}, {c_, 64}, 64}, {first});
  ASSERT_OK(add_result_);
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(3.0f, run(exec, c_)) << "the node that was added to the child's graph ran too";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  CUgraph same = nullptr;
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &same));
  EXPECT_EQ(inner, same);
  ASSERT_OK(api().cuGraphDestroyNode(child));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphGetNodes(inner, nullptr, &count)) << "gone with its node";
}

TEST_F(NodeParametersTest, NodesInsideAChildAreChangedThroughTheExecOfTheOutermostGraph) {
  CUgraph given = nullptr, inner = nullptr;
  ASSERT_OK(api().cuGraphCreate(&given, 0));
  add_kernel(given, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  const CUgraphNode child = add_node(graph_, child_node(given));
  ASSERT_OK(api().cuGraphDestroy(given));
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &inner));
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetNodes(inner, &node, &count));
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_)) << "a run under way keeps a_ -> b_";
  AddOneParams other(add_one_, a_, c_);
  ASSERT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &other.params));
  ASSERT_OK(synchronize());
  EXPECT_EQ(2.0f, download(b_, 1)[0]);
  EXPECT_EQ(2.0f, run(exec, c_));
  ASSERT_OK(api().cuMemsetD8(reinterpret_cast<CUdeviceptr>(c_), 0, 256));
  ASSERT_OK(api().cuGraphNodeSetEnabled(exec, node, 0));
  EXPECT_EQ(0.0f, run(exec, c_)) << "disabled inside the child";
  unsigned enabled = 1;
  ASSERT_OK(api().cuGraphNodeGetEnabled(exec, node, &enabled));
  EXPECT_EQ(0u, enabled);
  const CUgraphNode late = add_kernel(inner, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphNodeSetEnabled(exec, late, 0));
  expect_reported("was not in the graph when it was instantiated");
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(NodeParametersTest, NodesInsideAChildKeepAnsweringToTheirGraphAfterAnUpdate) {
  CUgraph given = nullptr, inner = nullptr, other = nullptr;
  ASSERT_OK(api().cuGraphCreate(&given, 0));
  add_kernel(given, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  const CUgraphNode child = add_node(graph_, child_node(given));
  ASSERT_OK(api().cuGraphDestroy(given));
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &inner));
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetNodes(inner, &node, &count));
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphClone(&other, graph_));
  CUgraphExecUpdateResultInfo info{};
  ASSERT_OK(api().cuGraphExecUpdate(exec, other, &info));
  EXPECT_OK(api().cuGraphNodeSetEnabled(exec, node, 0));
  ASSERT_OK(api().cuGraphDestroy(other));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(NodeParametersTest, AChildNodeTakesAGraphOfTheSameShapeInTheExec) {
  CUgraph given = nullptr, next = nullptr, inner = nullptr;
  ASSERT_OK(api().cuGraphCreate(&given, 0));
  ASSERT_OK(api().cuGraphCreate(&next, 0));
  add_kernel(given, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  add_kernel(next, add_one_, 1, 64, AddOne{{a_, 64}, {c_, 64}, 64});
  const CUgraphNode child = add_node(graph_, child_node(given));
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphExecChildGraphNodeSetParams(exec, child, next));
  EXPECT_EQ(2.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &inner));
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetNodes(inner, &node, &count));
  EXPECT_OK(api().cuGraphNodeSetEnabled(exec, node, 1)) << "inner nodes keep answering to the child's graph";
  add_kernel(next, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecChildGraphNodeSetParams(exec, child, next)) << "two nodes";
  expect_reported("differs from the child");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecChildGraphNodeSetParams(exec, add(a_, b_), next));
  for (const CUgraph graph : {given, next}) {
    ASSERT_OK(api().cuGraphDestroy(graph));
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphExecChildGraphNodeSetParams(exec, child, next));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(NodeParametersTest, ADestroyedNodeTakesItsEdgesWithIt) {
  const CUgraphNode first = add(a_, b_), second = add(b_, c_, {first}), third = add(c_, a_, {second});
  ASSERT_OK(api().cuGraphDestroyNode(second));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphDestroyNode(second));
  size_t edges = 9, nodes = 9;
  ASSERT_OK(api().cuGraphGetEdges(graph_, nullptr, nullptr, nullptr, &edges));
  ASSERT_OK(api().cuGraphGetNodes(graph_, nullptr, &nodes));
  EXPECT_EQ(0u, edges);
  EXPECT_EQ(2u, nodes);
  ASSERT_OK(api().cuGraphAddDependencies(graph_, &first, &third, nullptr, 1));
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(NodeParametersTest, AnEdgeIsRemovedByItsEndsAndItsData) {
  const CUgraphNode first = add(a_, b_), second = add(b_, c_, {first}, {kProgrammatic});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphRemoveDependencies(graph_, &first, &second, nullptr, 1));
  expect_reported("edge 0 with this data is not in the graph");
  ASSERT_OK(api().cuGraphRemoveDependencies(graph_, &first, &second, &kProgrammatic, 1));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphRemoveDependencies(graph_, &first, &second, &kProgrammatic, 1));
  size_t edges = 9;
  ASSERT_OK(api().cuGraphGetEdges(graph_, nullptr, nullptr, nullptr, &edges));
  EXPECT_EQ(0u, edges);
}

TEST_F(NodeParametersTest, ExternalEventsOfACaptureBecomeEventNodes) {
  CUevent begun = nullptr, awaited = nullptr;
  ASSERT_OK(api().cuEventCreate(&begun, 0));
  ASSERT_OK(api().cuEventCreate(&awaited, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuEventRecordWithFlags(begun, stream_, CU_EVENT_RECORD_EXTERNAL));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuStreamWaitEvent(stream_, begun, CU_EVENT_WAIT_EXTERNAL));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuStreamWaitEvent(stream_, begun, 2));
  ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(api().cuStreamWaitEvent(stream_, awaited, CU_EVENT_WAIT_EXTERNAL));
  ASSERT_OK(api().cuEventRecordWithFlags(begun, stream_, CU_EVENT_RECORD_EXTERNAL));
  CUgraph captured = nullptr;
  ASSERT_OK(api().cuStreamEndCapture(stream_, &captured));
  CUgraphNode nodes[2] = {};
  size_t count = 2;
  ASSERT_OK(api().cuGraphGetNodes(captured, nodes, &count));
  CUevent event = nullptr;
  ASSERT_OK(api().cuGraphEventWaitNodeGetEvent(nodes[0], &event));
  EXPECT_EQ(awaited, event);
  ASSERT_OK(api().cuGraphEventRecordNodeGetEvent(nodes[1], &event));
  EXPECT_EQ(begun, event);
  count = 0;
  ASSERT_OK(api().cuGraphGetEdges(captured, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(1u, count);
  ASSERT_OK(api().cuGraphDestroy(captured));
  ASSERT_OK(api().cuEventDestroy(begun));
  ASSERT_OK(api().cuEventDestroy(awaited));
}

TEST_F(NodeParametersTest, GraphsHoldNoMemoryOfTheirOwn) {
  for (const CUgraphMem_attribute attribute :
       {CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH}) {
    cuuint64_t bytes = 1;
    ASSERT_OK(api().cuDeviceGetGraphMemAttribute(0, attribute, &bytes));
    EXPECT_EQ(0u, bytes);
  }
  cuuint64_t bytes = 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_DEVICE,
            api().cuDeviceGetGraphMemAttribute(1, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &bytes));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            api().cuDeviceGetGraphMemAttribute(0, static_cast<CUgraphMem_attribute>(9), &bytes));
}

}  // namespace
}  // namespace nodewright
