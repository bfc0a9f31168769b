// Attributes of kernel nodes and launches: read back as set, and refused where the grid, the function or the device
// does not allow them.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class KernelAttributesTest : public GraphTest {
 protected:
  CUgraphNode add_blocks(unsigned blocks) {
    return add_kernel(graph_, add_one_, blocks, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  }
  static CUkernelNodeAttrValue cluster(unsigned x, unsigned y = 1, unsigned z = 1) {
    CUkernelNodeAttrValue value{};
    value.clusterDim = {x, y, z};
    return value;
  }
  CUresult set(CUgraphNode node, CUkernelNodeAttrID id, const CUkernelNodeAttrValue& value) {
    return api().cuGraphKernelNodeSetAttribute(node, id, &value);
  }
  CUkernelNodeAttrValue get(CUgraphNode node, CUkernelNodeAttrID id) {
    CUkernelNodeAttrValue value{};
    EXPECT_OK(api().cuGraphKernelNodeGetAttribute(node, id, &value));
    return value;
  }
  static CUkernelNodeAttrValue yes() {
    CUkernelNodeAttrValue value{};
    value.cooperative = 1;
    return value;
  }

  // A launch of `blocks` blocks with one attribute.
  CUresult launch_with(unsigned blocks, CUlaunchAttributeID id, const CUlaunchAttributeValue& value) {
    CUlaunchAttribute attribute{};
    attribute.id = id;
    attribute.value = value;
    const CUlaunchConfig config{blocks, 1, 1, 64, 1, 1, 0, stream_, &attribute, 1};
    AddOne args{{a_, 64}, {b_, 64}, 64};
    void* params[] = {&args};
    return api().cuLaunchKernelEx(&config, add_one_, params, nullptr);
  }
};

constexpr auto kCluster = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
constexpr auto kCooperative = CU_LAUNCH_ATTRIBUTE_COOPERATIVE;

TEST_F(KernelAttributesTest, WhatIsSetIsReadBackAndCopied) {
  const CUgraphNode node = add_blocks(4), other = add_blocks(4);
  CUkernelNodeAttrValue value = cluster(2);
  ASSERT_OK(set(node, kCluster, value));
  value = {};
  value.priority = -3;
  ASSERT_OK(set(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, value));
  value = {};
  value.sharedMemCarveout = 50;
  ASSERT_OK(set(node, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, value));
  value = {};
  value.memSyncDomain = CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE;
  ASSERT_OK(set(node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN, value));
  value = {};
  value.memSyncDomainMap = {.default_ = 2, .remote = 3};
  ASSERT_OK(set(node, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, value));
  ASSERT_OK(set(node, kCooperative, yes()));
  EXPECT_EQ(1u, get(other, kCluster).clusterDim.x) << "not copied yet";
  EXPECT_EQ(0, get(other, kCooperative).cooperative);
  ASSERT_OK(api().cuGraphKernelNodeCopyAttributes(other, node));
  for (const CUgraphNode holder : {node, other}) {
    EXPECT_EQ(2u, get(holder, kCluster).clusterDim.x);
    EXPECT_EQ(1u, get(holder, kCluster).clusterDim.z);
    EXPECT_EQ(1, get(holder, kCooperative).cooperative);
    EXPECT_EQ(-3, get(holder, CU_LAUNCH_ATTRIBUTE_PRIORITY).priority);
    EXPECT_EQ(50u, get(holder, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT).sharedMemCarveout);
    EXPECT_EQ(CU_LAUNCH_MEM_SYNC_DOMAIN_REMOTE, get(holder, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN).memSyncDomain);
    EXPECT_EQ(3, get(holder, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP).memSyncDomainMap.remote);
  }
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(2.0f, run(exec, b_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  CUgraph clone = nullptr;
  ASSERT_OK(api().cuGraphClone(&clone, graph_));
  CUgraphNode nodes[2] = {};
  size_t count = 2;
  ASSERT_OK(api().cuGraphGetNodes(clone, nodes, &count));
  EXPECT_EQ(2u, get(nodes[0], kCluster).clusterDim.x) << "a clone keeps them";
  ASSERT_OK(api().cuGraphDestroy(clone));
}

TEST_F(KernelAttributesTest, AClusterDividesTheGridAndHasAtMostEightBlocks) {
  const CUgraphNode node = add_blocks(48);
  EXPECT_OK(set(node, kCluster, cluster(8)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set(node, kCluster, cluster(5)));
  expect_reported("a cluster of 5x1x1 blocks does not divide the grid of 48x1x1");
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set(node, kCluster, cluster(4, 2))) << "one row of blocks";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set(node, kCluster, cluster(0)));
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE, set(node, kCluster, cluster(16)));
  expect_reported("at most 8 without CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED");
  EXPECT_EQ(8u, get(node, kCluster).clusterDim.x) << "a refused one leaves the old one";
  ASSERT_OK(api().cuFuncSetAttribute(add_one_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 1));
  EXPECT_OK(set(node, kCluster, cluster(16)));
  EXPECT_EQ(CUDA_ERROR_INVALID_CLUSTER_SIZE, set(node, kCluster, cluster(24)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            api().cuFuncSetAttribute(add_one_, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED, 2));
  const CUgraphNode odd = add_blocks(6);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphKernelNodeCopyAttributes(odd, node)) << "16 does not divide 6";
}

TEST_F(KernelAttributesTest, APatchedGridIsHeldAgainstTheClusterOfItsNode) {
  const CUgraphNode node = add_blocks(8);
  ASSERT_OK(set(node, kCluster, cluster(4)));
  const CUgraphExec exec = instantiate(graph_);
  AddOneParams other(add_one_, a_, c_);
  other.params.gridDimX = 12;
  EXPECT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &other.params));
  EXPECT_OK(api().cuGraphKernelNodeSetParams(node, &other.params));
  EXPECT_EQ(4u, get(node, kCluster).clusterDim.x) << "new parameters leave the attributes";
  other.params.gridDimX = 10;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecKernelNodeSetParams(exec, node, &other.params));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphKernelNodeSetParams(node, &other.params));
  EXPECT_EQ(2.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(KernelAttributesTest, ADeviceOfCapabilityEightHasNoClusters) {
  begin({.compute_capability = 80});
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, set(add_blocks(4), kCluster, cluster(2)));
  EXPECT_OK(set(add_blocks(4), kCluster, cluster(1)));
  int value = 9;
  ASSERT_OK(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_CLUSTER_LAUNCH, 0));
  EXPECT_EQ(0, value);
  ASSERT_OK(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_MEM_SYNC_DOMAIN_COUNT, 0));
  EXPECT_EQ(1, value);
  ASSERT_OK(api().cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 0));
  EXPECT_EQ(1, value);
}

TEST_F(KernelAttributesTest, TheBlocksOfACooperativeLaunchFitAtOnce) {
  begin({.sm_count = 3});  // of 16 blocks of 64 threads
  EXPECT_OK(set(add_blocks(48), kCooperative, yes()));
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, set(add_blocks(49), kCooperative, yes()));
  expect_reported("a cooperative launch of 49 blocks, 48 can be resident at once");
  EXPECT_OK(launch_with(48, kCooperative, yes()));
  EXPECT_EQ(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, launch_with(49, kCooperative, yes()));
  EXPECT_OK(synchronize()) << "refused before it is queued: nothing sticks";
  const char* name = nullptr;
  ASSERT_OK(api().cuGetErrorName(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, &name));
  EXPECT_STREQ("CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", name);
}

TEST_F(KernelAttributesTest, TheContextTellsTheRangeOfPriorities) {
  int least = 1, greatest = 1;
  ASSERT_OK(api().cuCtxGetStreamPriorityRange(&least, &greatest));
  EXPECT_EQ(0, least);
  EXPECT_EQ(-5, greatest);
  EXPECT_OK(api().cuCtxGetStreamPriorityRange(nullptr, nullptr));
  ASSERT_OK(api().cuCtxSetCurrent(nullptr));
  EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, api().cuCtxGetStreamPriorityRange(&least, &greatest));
  ASSERT_OK(api().cuCtxSetCurrent(context_));
}

TEST_F(KernelAttributesTest, APriorityThatCountsStaysInAnUpdate) {
  const CUgraphNode node = add_blocks(2);
  for (const cuuint64_t flag : {cuuint64_t{0}, cuuint64_t{CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY}}) {
    CUkernelNodeAttrValue value{};
    ASSERT_OK(set(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, value));
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    params.flags = flag | CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD | CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
    CUgraphExec exec = nullptr;
    ASSERT_OK(api().cuGraphInstantiateWithParams(&exec, graph_, &params));
    cuuint64_t held = 99;
    ASSERT_OK(api().cuGraphExecGetFlags(exec, &held));
    EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH, held) << "the others are not told";
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecGetFlags(exec, nullptr));
    value.priority = -1;
    ASSERT_OK(set(node, CU_LAUNCH_ATTRIBUTE_PRIORITY, value));
    CUgraphExecUpdateResultInfo info{};
    EXPECT_EQ(flag == 0 ? CUDA_SUCCESS : CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE,
              api().cuGraphExecUpdate(exec, graph_, &info));
    EXPECT_EQ(flag == 0 ? CU_GRAPH_EXEC_UPDATE_SUCCESS : CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, info.result);
    ASSERT_OK(api().cuGraphExecDestroy(exec));
    EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphExecGetFlags(exec, &held));
  }
}

TEST_F(KernelAttributesTest, ACooperativeNodeStaysOneInAnUpdate) {
  const CUgraphNode node = add_blocks(2);
  const CUgraphExec exec = instantiate(graph_);
  CUgraphExecUpdateResultInfo info{};
  ASSERT_OK(api().cuGraphExecUpdate(exec, graph_, &info));
  ASSERT_OK(set(node, kCooperative, yes()));
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api().cuGraphExecUpdate(exec, graph_, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_ATTRIBUTES_CHANGED, info.result);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(KernelAttributesTest, LaunchesTakeTheSameAttributesAndCapturesKeepThem) {
  EXPECT_OK(launch_with(8, kCluster, cluster(4)));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(8, kCluster, cluster(3)));
  CUlaunchAttributeValue value{};
  value.sharedMemCarveout = 101;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(1, CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT, value));
  value = {};
  value.memSyncDomainMap = {.default_ = 0, .remote = 4};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, launch_with(1, CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP, value));
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, launch_with(1, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, {}));
  ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  ASSERT_OK(launch_with(8, kCluster, cluster(4)));
  CUgraph captured = nullptr;
  ASSERT_OK(api().cuStreamEndCapture(stream_, &captured));
  CUgraphNode node = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetNodes(captured, &node, &count));
  EXPECT_EQ(4u, get(node, kCluster).clusterDim.x);
  ASSERT_OK(api().cuGraphDestroy(captured));
}

TEST_F(KernelAttributesTest, OnlyKernelNodesHaveThem) {
  const CUgraphNode empty = add_node(graph_, of_type(CU_GRAPH_NODE_TYPE_EMPTY)), node = add_blocks(1);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, set(empty, kCooperative, yes()));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphKernelNodeCopyAttributes(node, empty));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphKernelNodeCopyAttributes(empty, node));
  CUkernelNodeAttrValue value{};
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED,
            api().cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW, &value));
}

}  // namespace
}  // namespace nodewright
