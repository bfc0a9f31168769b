// Allocation and free nodes, and memory in the order of a stream: the rules that cuda.h states for them.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class GraphMemoryTest : public GraphTest {
 protected:
  // Adds an allocation of 64 floats; its address is in `memory_`.
  CUgraphNode add_allocation(CUgraph graph, std::vector<CUgraphNode> after = {}, size_t bytes = 256) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
    params.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    params.alloc.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    params.alloc.bytesize = bytes;
    CUgraphNode node = nullptr;
    add_result_ = api().cuGraphAddNode(&node, graph, after.data(), nullptr, after.size(), &params);
    scratch_ = reinterpret_cast<float*>(params.alloc.dptr);
    return node;
  }
  CUgraphNode add_free(CUgraph graph, const float* memory, std::vector<CUgraphNode> after) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
    params.free.dptr = reinterpret_cast<CUdeviceptr>(memory);
    return add_node(graph, params, after);
  }
  CUresult instantiate_again(CUgraph graph) {
    CUgraphExec exec = nullptr;
    CUDA_GRAPH_INSTANTIATE_PARAMS params{};
    return api().cuGraphInstantiateWithParams(&exec, graph, &params);
  }
  size_t free_bytes() {
    size_t free = 0, total = 0;
    EXPECT_OK(api().cuMemGetInfo(&free, &total));
    return free;
  }

  float* scratch_ = nullptr;
};

TEST_F(GraphMemoryTest, MemoryIsThereFromItsNodeToItsFreeInEveryLaunch) {
  const CUgraphNode memory = add_allocation(graph_);
  float* const scratch = scratch_;
  const CUgraphNode first = add(a_, scratch, {memory}), second = add(scratch, b_, {first});
  add_free(graph_, scratch, {second});
  ASSERT_OK(add_result_);
  const size_t before = free_bytes();
  const CUgraphExec exec = instantiate(graph_);
  for (int launch = 0; launch < 3; ++launch) EXPECT_EQ(run(exec, b_), 3.0f);
  EXPECT_EQ(free_bytes(), before);
  CUdeviceptr freed = 0;
  EXPECT_OK(api().cuMemAlloc(&freed, 256));
  EXPECT_NE(reinterpret_cast<float*>(freed), scratch);  // the graph keeps the addresses
  EXPECT_OK(api().cuMemFree(freed));
  EXPECT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GraphMemoryTest, UseAfterTheFreeIsAFault) {
  const CUgraphNode memory = add_allocation(graph_);
  const CUgraphNode gone = add_free(graph_, scratch_, {memory});
  add(a_, scratch_, {gone});
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_ILLEGAL_ADDRESS, synchronize());
  expect_reported("no memory at this time");
  api().clear_error();
  EXPECT_OK(api().cuGraphExecDestroy(exec));
}

// As NVIDIA's driver does, without a rule in cuda.h.
TEST_F(GraphMemoryTest, TakesNoValuesAndItsCopiesNoOtherParameters) {
  const CUgraphNode memory = add_allocation(graph_);
  CUstreamBatchMemOpParams write{};
  write.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  write.writeValue.address = reinterpret_cast<CUdeviceptr>(scratch_);
  CUgraphNodeParams values = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  values.memOp.ctx = context_;
  values.memOp.count = 1;
  values.memOp.paramArray = &write;
  CUgraphNode node = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphAddNode(&node, graph_, &memory, nullptr, 1, &values));

  CUDA_MEMCPY3D into{};
  into.srcMemoryType = into.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  into.srcDevice = reinterpret_cast<CUdeviceptr>(a_);
  into.dstDevice = reinterpret_cast<CUdeviceptr>(scratch_);
  into.WidthInBytes = 256;
  into.Height = into.Depth = 1;
  CUgraphNodeParams copy = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  copy.memcpy.copyCtx = context_;
  copy.memcpy.copyParams = into;
  const CUgraphNode copied = add_node(graph_, copy, {memory});
  add_free(graph_, scratch_, {copied});
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, copied, &into, context_));
  into.dstDevice = reinterpret_cast<CUdeviceptr>(b_);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecMemcpyNodeSetParams(exec, copied, &into, context_));
  EXPECT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GraphMemoryTest, AFreeComesBehindItsAllocationAndOnce) {
  const CUgraphNode memory = add_allocation(graph_);
  add_free(graph_, scratch_, {});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("does not come after the node that allocates");
  add_free(graph_, a_, {memory});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("no node of the graph allocates");
  const CUgraphNode gone = add_free(graph_, scratch_, {memory});
  EXPECT_OK(add_result_);
  add_free(graph_, scratch_, {gone});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("frees the memory already");
}

TEST_F(GraphMemoryTest, AGraphWithMemoryIsNotClonedAndHasOneExecutableGraph) {
  const CUgraphNode memory = add_allocation(graph_), gone = add_free(graph_, scratch_, {memory});
  CUgraph other = nullptr;
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphClone(&other, graph_));
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphDestroyNode(gone));
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphRemoveDependencies(graph_, &memory, &gone, nullptr, 1));
  ASSERT_OK(api().cuGraphCreate(&other, 0));
  add_node(other, child_node(graph_));
  EXPECT_NE(CUDA_SUCCESS, add_result_);
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_NE(CUDA_SUCCESS, instantiate_again(graph_));
  expect_reported("allocations or frees has one executable graph");
  EXPECT_OK(api().cuGraphExecDestroy(exec));
  EXPECT_OK(api().cuGraphExecDestroy(instantiate(graph_)));
  EXPECT_OK(api().cuGraphDestroy(other));
}

TEST_F(GraphMemoryTest, WhatALaunchLeavesAllocatedIsFreedBeforeTheNext) {
  add_allocation(graph_);
  const auto scratch = reinterpret_cast<CUdeviceptr>(scratch_);
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_NE(CUDA_SUCCESS, api().cuMemFree(scratch));  // no launch has allocated it
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphLaunch(exec, stream_));
  expect_reported("has not been freed");
  EXPECT_OK(api().cuMemFreeAsync(scratch, stream_));
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_OK(synchronize());
  EXPECT_OK(api().cuMemFree(scratch));
  EXPECT_OK(api().cuGraphExecDestroy(exec));

  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  params.flags = CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
  CUgraphExec freeing = nullptr;
  ASSERT_OK(api().cuGraphInstantiateWithParams(&freeing, graph_, &params));
  for (int launch = 0; launch < 3; ++launch) EXPECT_OK(api().cuGraphLaunch(freeing, stream_));
  EXPECT_OK(synchronize());
  EXPECT_OK(api().cuMemFree(scratch));
  EXPECT_OK(api().cuGraphExecDestroy(freeing));
}

TEST_F(GraphMemoryTest, ACapturedAllocationBecomesANode) {
  CUdeviceptr memory = 0, held = 0;
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EXPECT_OK(api().cuMemAllocAsync(&memory, 256, stream_));
  auto* scratch = reinterpret_cast<float*>(memory);
  EXPECT_OK(launch(add_one_, 1, 64, AddOne{{a_, 64}, {scratch, 64}, 64}));
  EXPECT_OK(launch(add_one_, 1, 64, AddOne{{scratch, 64}, {b_, 64}, 64}));
  EXPECT_OK(api().cuMemFreeAsync(memory, stream_));
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  CUgraphNode nodes[4];
  size_t count = 4;
  EXPECT_OK(api().cuGraphGetNodes(graph, nodes, &count));
  EXPECT_EQ(count, 4u);
  CUDA_MEM_ALLOC_NODE_PARAMS params{};
  EXPECT_OK(api().cuGraphMemAllocNodeGetParams(nodes[0], &params));
  EXPECT_EQ(params.dptr, memory);
  EXPECT_EQ(params.bytesize, 256u);
  EXPECT_OK(api().cuGraphMemFreeNodeGetParams(nodes[3], &held));
  EXPECT_EQ(held, memory);
  const CUgraphExec exec = instantiate(graph);
  EXPECT_EQ(run(exec, b_), 3.0f);
  EXPECT_OK(api().cuGraphExecDestroy(exec));
  EXPECT_OK(api().cuGraphDestroy(graph));
}

TEST_F(GraphMemoryTest, MemoryInTheOrderOfAStreamIsGoneBehindItsFree) {
  CUdeviceptr memory = 0;
  const size_t before = free_bytes();
  EXPECT_OK(api().cuMemAllocAsync(&memory, 256, stream_));
  auto* scratch = reinterpret_cast<float*>(memory);
  EXPECT_OK(launch(add_one_, 1, 64, AddOne{{a_, 64}, {scratch, 64}, 64}));
  EXPECT_OK(launch(add_one_, 1, 64, AddOne{{scratch, 64}, {b_, 64}, 64}));
  EXPECT_OK(api().cuMemFreeAsync(memory, stream_));
  EXPECT_OK(synchronize());
  EXPECT_EQ(download(b_, 64)[63], 3.0f);
  EXPECT_EQ(free_bytes(), before);
  EXPECT_NE(CUDA_SUCCESS, api().cuMemFreeAsync(memory, stream_));
}

TEST_F(GraphMemoryTest, MoreThanTheDeviceHasIsRefused) {
  begin({.memory_bytes = 1 << 20});
  add_allocation(graph_, {}, 2 << 20);
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, add_result_);
  const CUgraphNode first = add_allocation(graph_, {}, 900 << 10);
  add_allocation(graph_, {first}, 900 << 10);
  EXPECT_OK(add_result_);
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_OUT_OF_MEMORY, synchronize());
  expect_reported("921600 bytes");
  api().clear_error();
  CUDA_MEM_ALLOC_NODE_PARAMS allocated{};
  EXPECT_OK(api().cuGraphMemAllocNodeGetParams(first, &allocated));
  EXPECT_OK(api().cuGraphExecDestroy(exec));
  EXPECT_OK(api().cuMemFree(allocated.dptr));  // the failed launch left the first one allocated
}

}  // namespace
}  // namespace nodewright
