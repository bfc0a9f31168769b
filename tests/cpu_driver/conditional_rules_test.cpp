// What CUDA refuses of conditional nodes, their handles, their bodies, and of kernels that set a condition. Each test
// plants what it expects to be refused.
#include "tests/cpu_driver/conditional_fixture.h"

namespace nodewright {
namespace {

class ConditionalRulesTest : public ConditionalTest {
 protected:
  CUgraph other_graph() {
    CUgraph graph = nullptr;
    EXPECT_OK(api().cuGraphCreate(&graph, 0));
    others_.push_back(graph);
    return graph;
  }
  void TearDown() override {
    for (const CUgraph graph : others_) api().cuGraphDestroy(graph);
    ConditionalTest::TearDown();
  }

  // A launch of `decide` alone, checked; returns its result.
  CUresult run_decide(Condition condition, int64_t planted) {
    const Decide args{{upload(std::vector<uint32_t>{3}), 1}, condition, planted};
    api().label("decision");
    EXPECT_OK(launch(decide_, 1, 32, args));
    return synchronize();
  }

  std::vector<CUgraph> others_;
};

TEST_F(ConditionalRulesTest, AHandleNeedsAGraphTheContextAndKnownFlags) {
  CUgraphConditionalHandle handle = 0;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphConditionalHandleCreate(&handle, nullptr, context_, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, api().cuGraphConditionalHandleCreate(&handle, graph_, nullptr, 0, 0));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphConditionalHandleCreate(&handle, graph_, context_, 0, 2));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphConditionalHandleCreate(nullptr, graph_, context_, 0, 0));
}

TEST_F(ConditionalRulesTest, EachTypeTakesItsNumberOfBodies) {
  struct Case {
    CUgraphConditionalNodeType type;
    unsigned size;
    bool allowed;
  };
  for (const Case& c :
       {Case{CU_GRAPH_COND_TYPE_IF, 0, false}, Case{CU_GRAPH_COND_TYPE_IF, 1, true},
        Case{CU_GRAPH_COND_TYPE_IF, 2, true}, Case{CU_GRAPH_COND_TYPE_IF, 3, false},
        Case{CU_GRAPH_COND_TYPE_WHILE, 0, false}, Case{CU_GRAPH_COND_TYPE_WHILE, 1, true},
        Case{CU_GRAPH_COND_TYPE_WHILE, 2, false}, Case{CU_GRAPH_COND_TYPE_SWITCH, 0, false},
        Case{CU_GRAPH_COND_TYPE_SWITCH, 5, true}, Case{static_cast<CUgraphConditionalNodeType>(9), 1, false}}) {
    const auto bodies = add_conditional(graph_, handle_of(graph_), c.type, c.size);
    EXPECT_EQ(c.allowed ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE, add_result_) << c.type << " " << c.size;
    EXPECT_EQ(c.allowed ? c.size : 0, bodies.size());
  }
}

TEST_F(ConditionalRulesTest, AHandleServesOneNodeOfItsGraphOrOfABodyInIt) {
  const CUgraphConditionalHandle handle = handle_of(graph_);
  add_conditional(graph_, handle + 1, CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, add_result_);
  expect_reported("no such conditional handle");
  add_conditional(other_graph(), handle, CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("made for another graph");
  CUgraphNodeParams foreign = conditional(handle, CU_GRAPH_COND_TYPE_IF, 1);
  foreign.conditional.ctx = nullptr;
  add_node(graph_, foreign);
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, add_result_);
  const auto body = add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  ASSERT_OK(add_result_);
  add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("another conditional node uses the same handle");
  add_conditional(body[0], handle_of(graph_), CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_OK(add_result_) << "of a graph around the body";
  const CUgraphConditionalHandle inner = handle_of(body[0]);
  add_conditional(graph_, inner, CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << "of the body, not of the graph around it";
  add_conditional(body[0], inner, CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_OK(add_result_);
}

TEST_F(ConditionalRulesTest, AHandleWithoutANodeStopsInstantiation) {
  const CUgraphConditionalHandle handle = handle_of(graph_);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&exec, graph_, &params));
  EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED, params.result_out);
  add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  ASSERT_OK(api().cuGraphInstantiateWithParams(&exec, graph_, &params));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuGraphDestroyNode(conditional_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&exec, graph_, &params));
}

TEST_F(ConditionalRulesTest, ABodyHoldsNeitherHostNorEventNodesNorCopiesOfPageableMemoryOrArrays) {
  CUevent event = nullptr;
  ASSERT_OK(api().cuEventCreate(&event, 0));
  const auto outer = add_conditional(graph_, handle_of(graph_), CU_GRAPH_COND_TYPE_IF, 1);
  const auto inner = add_conditional(outer[0], handle_of(graph_), CU_GRAPH_COND_TYPE_WHILE, 1);
  const CUhostFn function = [](void*) {};
  const CUgraph with_host = other_graph();
  add_node(with_host, host_node(function, nullptr));
  float pageable[4] = {};
  CUgraphNodeParams copy = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  auto& c = copy.memcpy.copyParams;
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.srcHost = pageable;
  c.dstDevice = reinterpret_cast<CUdeviceptr>(a_);
  c.WidthInBytes = 16;
  c.Height = c.Depth = 1;
  const CUDA_ARRAY_DESCRIPTOR row{.Width = 8, .Height = 0, .Format = CU_AD_FORMAT_HALF, .NumChannels = 1};
  CUgraphNodeParams from_array = copy;
  auto& from = from_array.memcpy.copyParams;
  from.srcMemoryType = CU_MEMORYTYPE_ARRAY;
  ASSERT_OK(api().cuArrayCreate(&from.srcArray, &row));
  for (const CUgraph body : {outer[0], inner[0]}) {
    for (const CUgraphNodeParams& refused :
         {host_node(function, nullptr), event_node(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event),
          event_node(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event), child_node(with_host), copy, from_array,
          child_node(with_host, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE)}) {
      add_node(body, refused);
      EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, add_result_) << refused.type;
      expect_reported("in a body of conditional node");
    }
    add_kernel(body, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
    EXPECT_OK(add_result_);
    add_node(body, of_type(CU_GRAPH_NODE_TYPE_EMPTY));
    EXPECT_OK(add_result_);
  }
  // What is refused in a body is refused in a child graph in it, when it comes later too.
  const CUgraphNode child = add_node(outer[0], child_node(other_graph()));
  ASSERT_OK(add_result_);
  CUgraph inside = nullptr;
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &inside));
  add_node(inside, host_node(function, nullptr));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, add_result_);
  // And by capture.
  ASSERT_OK(api().cuStreamBeginCaptureToGraph(stream_, inner[0], nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, api().cuLaunchHostFunc(stream_, function, nullptr));
  CUgraph captured = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api().cuStreamEndCapture(stream_, &captured));
  ASSERT_OK(api().cuEventDestroy(event));
  ASSERT_OK(api().cuArrayDestroy(from.srcArray));
}

TEST_F(ConditionalRulesTest, AGraphWithConditionalsIsNeitherClonedNorAChildNorInstantiatedTwice) {
  const CUgraphConditionalHandle handle = handle_of(graph_);
  add_conditional(graph_, handle, CU_GRAPH_COND_TYPE_IF, 1);
  CUgraph clone = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphClone(&clone, graph_));
  expect_reported("cannot be cloned");
  const CUgraph outer = other_graph();
  for (const auto ownership : {CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE, CU_GRAPH_CHILD_GRAPH_OWNERSHIP_MOVE}) {
    add_node(outer, child_node(graph_, ownership));
    EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, add_result_);
    expect_reported("the child graph holds a conditional node");
  }
  // Nor does a child graph get one later.
  const CUgraphNode child = add_node(outer, child_node(other_graph()));
  CUgraph inside = nullptr;
  ASSERT_OK(api().cuGraphChildGraphNodeGetGraph(child, &inside));
  add_conditional(inside, handle_of(outer), CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, add_result_);
  expect_reported("child graphs hold none");

  const CUgraphExec exec = instantiate(graph_);
  CUgraphExec second = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&second, graph_, &params));
  expect_reported("one executable graph at a time");
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuGraphExecDestroy(instantiate(graph_)));
}

TEST_F(ConditionalRulesTest, ABodyBelongsToItsNode) {
  const auto body = add_conditional(graph_, handle_of(graph_), CU_GRAPH_COND_TYPE_IF, 1);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphDestroy(body[0]));
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&exec, body[0], &params));
  expect_reported("cannot be instantiated alone");
  add_node(other_graph(), child_node(body[0]));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  exec = instantiate(graph_);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecUpdate(exec, body[0], &info));
  EXPECT_OK(api().cuGraphExecUpdate(exec, graph_, &info)) << "the graph it was made from";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalRulesTest, AnotherConditionalOrACycleInABodyIsNoUpdate) {
  add_conditional(graph_, handle_of(graph_), CU_GRAPH_COND_TYPE_IF, 1);
  const CUgraphExec exec = instantiate(graph_);
  const CUgraph other = other_graph();
  const auto body = add_conditional(other, handle_of(other), CU_GRAPH_COND_TYPE_IF, 1);
  CUgraphExecUpdateResultInfo info{};
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api().cuGraphExecUpdate(exec, other, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_PARAMETERS_CHANGED, info.result);
  const CUgraphNode first = add_node(body[0], of_type(CU_GRAPH_NODE_TYPE_EMPTY));
  const CUgraphNode second = add_node(body[0], of_type(CU_GRAPH_NODE_TYPE_EMPTY), {first});
  ASSERT_OK(api().cuGraphAddDependencies(body[0], &second, &first, nullptr, 1));
  CUgraphExec none = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&none, other, &params));
  EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, params.result_out);
  EXPECT_EQ(first, params.hErrNode_out);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(ConditionalRulesTest, WithoutAHandleTheValueGoesToTheSlot) {
  for (const bool checked : {false, true}) {
    begin_with({.check_accesses = checked}, checked);
    uint32_t* slot = upload(std::vector<uint32_t>{0, 9});
    EXPECT_OK(run_decide({0, slot}, 0));
    EXPECT_EQ(3u, word(slot));
    EXPECT_EQ(9u, word(slot + 1));
  }
}

TEST_F(ConditionalRulesTest, ASetterThatBreaksARuleIsReportedByNode) {
  struct Case {
    int64_t planted;
    bool by_handle;
    const char* report;
  };
  for (const Case& c :
       {Case{1, true, "set_condition() before wait_for_inputs()"}, Case{1, false, "an access before wait_for_inputs()"},
        Case{2, false, "an undeclared write"}, Case{3, true, "set_condition() with a handle that no live graph has"}}) {
    begin_with({.check_accesses = true}, true);
    uint32_t* slot = upload(std::vector<uint32_t>{0, 0});
    const Condition condition{c.by_handle ? handle_of(graph_) : 0, slot};
    EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, run_decide(condition, c.planted)) << c.report;
    expect_reported("node 'decision', kernel decide");
    expect_reported(c.report);
    api().clear_error();
  }
}

TEST_F(ConditionalRulesTest, AHandleOfADestroyedGraphIsReportedWhenAKernelSetsIt) {
  const CUgraph gone = other_graph();
  const CUgraphConditionalHandle handle = handle_of(gone);
  ASSERT_OK(run_decide({handle, nullptr}, 0)) << "outside of its graph, while that lives";
  ASSERT_OK(api().cuGraphDestroy(gone));
  others_.clear();
  EXPECT_EQ(CUDA_ERROR_LAUNCH_FAILED, run_decide({handle, nullptr}, 0));
  expect_reported("no live graph has");
}

}  // namespace
}  // namespace nodewright
