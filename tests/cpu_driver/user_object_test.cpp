// User objects of the CPU driver: who refers to them, when they are destroyed, and what their function may not do.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class UserObjectTest : public GraphTest {
 protected:
  static void CUDA_CB count_down(void* data) { --*static_cast<std::atomic<int>*>(data); }

  CUuserObject make(unsigned references = 1) {
    ++alive_;
    CUuserObject object = nullptr;
    EXPECT_EQ(api().cuUserObjectCreate(&object, &alive_, count_down, references, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
              CUDA_SUCCESS);
    return object;
  }
  CUgraph new_graph() {
    CUgraph graph = nullptr;
    EXPECT_EQ(api().cuGraphCreate(&graph, 0), CUDA_SUCCESS);
    return graph;
  }
  // The driver calls the function on a thread of its own, some time after the last reference is gone.
  void expect_alive(int count) {
    for (int i = 0; i < 10000 && alive_ != count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(alive_, count);
  }

  static inline std::atomic<int> alive_ = 0;
};

TEST_F(UserObjectTest, ReferencesOfCallersKeepItAlive) {
  const CUuserObject object = make(2);
  EXPECT_EQ(api().cuUserObjectRetain(object, 1), CUDA_SUCCESS);
  EXPECT_EQ(api().cuUserObjectRelease(object, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuUserObjectRelease(object, 2), CUDA_SUCCESS);
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(api().cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  expect_alive(0);
  EXPECT_EQ(api().cuUserObjectRetain(object, 1), CUDA_ERROR_INVALID_HANDLE);
}

TEST_F(UserObjectTest, TheLastOfGraphCloneExecutableAndChildDestroysIt) {
  const CUuserObject object = make();
  const CUgraph graph = new_graph();
  ASSERT_EQ(api().cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  EXPECT_EQ(api().cuUserObjectRelease(object, 1), CUDA_ERROR_INVALID_VALUE) << "the caller's reference was moved";
  CUgraph clone = nullptr;
  ASSERT_EQ(api().cuGraphClone(&clone, graph), CUDA_SUCCESS);
  const CUgraph outer = new_graph();
  CUgraphNodeParams parameters{};
  parameters.type = CU_GRAPH_NODE_TYPE_GRAPH;
  parameters.graph.graph = graph;
  CUgraphNode node = nullptr;
  ASSERT_EQ(api().cuGraphAddNode(&node, outer, nullptr, nullptr, 0, &parameters), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  ASSERT_EQ(api().cuGraphInstantiateWithParams(&exec, outer, &how), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(graph), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(clone), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphDestroy(outer), CUDA_SUCCESS);
  EXPECT_EQ(alive_, 1) << "the executable graph refers to it";
  EXPECT_EQ(api().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  expect_alive(0);
}

TEST_F(UserObjectTest, AnUpdateReplacesTheReferencesOfTheExecutableGraph) {
  const CUgraph first = new_graph(), second = new_graph();
  const CUuserObject old_object = make(), new_object = make();
  ASSERT_EQ(api().cuGraphRetainUserObject(first, old_object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  ASSERT_EQ(api().cuGraphRetainUserObject(second, new_object, 1, CU_GRAPH_USER_OBJECT_MOVE), CUDA_SUCCESS);
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS how{};
  ASSERT_EQ(api().cuGraphInstantiateWithParams(&exec, first, &how), CUDA_SUCCESS);
  EXPECT_EQ(api().cuGraphReleaseUserObject(first, old_object, 2), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuGraphReleaseUserObject(first, new_object, 1), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuGraphReleaseUserObject(first, old_object, 1), CUDA_SUCCESS);
  EXPECT_EQ(alive_, 2);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_EQ(api().cuGraphExecUpdate(exec, second, &info), CUDA_SUCCESS);
  expect_alive(1);
  EXPECT_EQ(api().cuGraphExecDestroy(exec), CUDA_SUCCESS);
  EXPECT_EQ(alive_, 1);
  EXPECT_EQ(api().cuGraphDestroy(second), CUDA_SUCCESS);
  expect_alive(0);
  EXPECT_EQ(api().cuGraphDestroy(first), CUDA_SUCCESS);
}

struct CallsTheDriver {
  std::atomic<bool> called = false;
  CUresult result = CUDA_SUCCESS;
};
void CUDA_CB call_the_driver(void* data) {
  auto& calls = *static_cast<CallsTheDriver*>(data);
  CUdevice device = 0;
  calls.result = api().cuDeviceGet(&device, 0);
  calls.called = true;
}

TEST_F(UserObjectTest, ItsFunctionMayNotCallTheDriver) {
  CallsTheDriver calls;
  CUuserObject object = nullptr;
  ASSERT_EQ(api().cuUserObjectCreate(&object, &calls, call_the_driver, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_SUCCESS);
  ASSERT_EQ(api().cuUserObjectRelease(object, 1), CUDA_SUCCESS);
  while (!calls.called) std::this_thread::yield();
  EXPECT_EQ(calls.result, CUDA_ERROR_NOT_PERMITTED);
}

TEST_F(UserObjectTest, WhatCudaRefusesIsRefused) {
  CUuserObject object = nullptr;
  EXPECT_EQ(api().cuUserObjectCreate(&object, nullptr, nullptr, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuUserObjectCreate(&object, nullptr, count_down, 0, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC),
            CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuUserObjectCreate(&object, nullptr, count_down, 1, 0), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(api().cuGraphRetainUserObject(graph_, nullptr, 1, 0), CUDA_ERROR_INVALID_HANDLE);
}

}  // namespace
}  // namespace nodewright
