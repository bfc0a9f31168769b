// Batched memory operations and external semaphores: what they wait for, and what runs meanwhile; kernels that the
// device may update.
#include <thread>

#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

CUstreamBatchMemOpParams wait_for(const uint32_t* at, uint32_t value, unsigned flags) {
  CUstreamBatchMemOpParams operation{};
  operation.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
  operation.waitValue.address = reinterpret_cast<CUdeviceptr>(at);
  operation.waitValue.value = value;
  operation.waitValue.flags = flags;
  return operation;
}
CUstreamBatchMemOpParams write_to(const uint32_t* at, uint32_t value) {
  CUstreamBatchMemOpParams operation{};
  operation.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = reinterpret_cast<CUdeviceptr>(at);
  operation.writeValue.value = value;
  return operation;
}

class WaitingTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    flags_ = upload(std::vector<uint32_t>(4, 0));
  }
  CUresult submit(CUstream stream, std::vector<CUstreamBatchMemOpParams> operations) {
    return api().cuStreamBatchMemOp(stream, static_cast<unsigned>(operations.size()), operations.data(), 0);
  }
  CUgraphNode add_values(std::vector<CUstreamBatchMemOpParams> operations, std::vector<CUgraphNode> after = {}) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
    params.memOp.ctx = context_;
    params.memOp.count = static_cast<unsigned>(operations.size());
    params.memOp.paramArray = operations.data();
    return add_node(graph_, params, after);
  }

  uint32_t* flags_ = nullptr;
};

TEST_F(WaitingTest, AWaitLetsAnotherStreamRunThatWritesTheValue) {
  CUstream other = nullptr;
  ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  EXPECT_OK(submit(stream_, {wait_for(flags_, 5, CU_STREAM_WAIT_VALUE_GEQ), write_to(flags_ + 1, 7)}));
  EXPECT_OK(submit(other, {write_to(flags_, 6)}));
  EXPECT_OK(synchronize());
  EXPECT_EQ(download(flags_, 2), (std::vector<uint32_t>{6, 7}));
  EXPECT_OK(api().cuStreamDestroy(other));
}

TEST_F(WaitingTest, ANodeThatWaitsLetsTheNodesBesideItRun) {
  const CUgraphNode wait = add_values({wait_for(flags_, 0x10, CU_STREAM_WAIT_VALUE_AND)});
  ASSERT_OK(add_result_);
  add(a_, b_, {wait});
  add_values({write_to(flags_, 0x30)});
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(run(exec, b_), 2.0f);
  EXPECT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(WaitingTest, EveryComparisonIsTheDrivers) {
  const auto passes = [&](uint32_t held, uint32_t value, unsigned flags) {
    EXPECT_OK(submit(stream_, {write_to(flags_, held)}));
    EXPECT_OK(synchronize());
    EXPECT_OK(submit(stream_, {wait_for(flags_, value, flags)}));
    const bool passed = api().cuStreamQuery(stream_) == CUDA_SUCCESS;
    if (!passed) api().clear_error();
    return passed;
  };
  begin({.launch_timeout_ms = 20});
  flags_ = upload(std::vector<uint32_t>(4, 0));
  EXPECT_TRUE(passes(3, 3, CU_STREAM_WAIT_VALUE_GEQ));
  EXPECT_TRUE(passes(1, 0xfffffff0, CU_STREAM_WAIT_VALUE_GEQ));  // cyclic
  EXPECT_TRUE(passes(3, 3, CU_STREAM_WAIT_VALUE_EQ));
  EXPECT_TRUE(passes(6, 2, CU_STREAM_WAIT_VALUE_AND));
  EXPECT_TRUE(passes(6, 2, CU_STREAM_WAIT_VALUE_NOR));
  begin({.launch_timeout_ms = 20});
  flags_ = upload(std::vector<uint32_t>(4, 2));
  EXPECT_OK(submit(stream_, {wait_for(flags_, 3, CU_STREAM_WAIT_VALUE_EQ)}));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, synchronize());
  expect_reported("waits for a value equal to 0x3, and 0x2 is at byte 0");
  api().clear_error();
}

TEST_F(WaitingTest, TheHostMayWriteTheValue) {
  void* pinned = nullptr;
  ASSERT_OK(api().cuMemHostAlloc(&pinned, 64, 0));
  auto* value = static_cast<uint32_t*>(pinned);
  *value = 0;
  EXPECT_OK(submit(stream_, {wait_for(value, 1, CU_STREAM_WAIT_VALUE_EQ)}));
  std::thread writer([&] { __atomic_store_n(value, 1, __ATOMIC_RELEASE); });
  EXPECT_OK(synchronize());
  writer.join();
  EXPECT_OK(api().cuMemFreeHost(pinned));
}

TEST_F(WaitingTest, OperationsAreCheckedAndAnExecutableGraphTakesOtherValues) {
  EXPECT_NE(CUDA_SUCCESS, submit(stream_, {}));
  EXPECT_NE(CUDA_SUCCESS, submit(stream_, {wait_for(flags_, 1, 4)}));
  EXPECT_NE(CUDA_SUCCESS, submit(stream_, {write_to(reinterpret_cast<uint32_t*>(8), 1)}));
  EXPECT_NE(CUDA_SUCCESS,
            submit(stream_, {write_to(reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(flags_) + 2), 1)}));
  const CUgraphNode node = add_values({write_to(flags_, 1), write_to(flags_ + 1, 2)});
  CUDA_BATCH_MEM_OP_NODE_PARAMS held{};
  EXPECT_OK(api().cuGraphBatchMemOpNodeGetParams(node, &held));
  ASSERT_EQ(held.count, 2u);
  EXPECT_EQ(held.paramArray[1].writeValue.value, 2u);
  const CUgraphExec exec = instantiate(graph_);
  CUstreamBatchMemOpParams operations[] = {write_to(flags_, 8), write_to(flags_ + 1, 9)};
  CUDA_BATCH_MEM_OP_NODE_PARAMS changed{.ctx = context_, .count = 2, .paramArray = operations, .flags = 0};
  EXPECT_OK(api().cuGraphExecBatchMemOpNodeSetParams(exec, node, &changed));
  changed.count = 1;
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphExecBatchMemOpNodeSetParams(exec, node, &changed));
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_OK(synchronize());
  EXPECT_EQ(download(flags_, 2), (std::vector<uint32_t>{8, 9}));
  EXPECT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(WaitingTest, SemaphoresOrderAGraphAndAStream) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC from{};
  from.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD;
  CUexternalSemaphore semaphore = nullptr;
  ASSERT_OK(api().cuImportExternalSemaphore(&semaphore, &from));
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  wait.params.fence.value = 3;
  CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_EXT_SEMAS_WAIT);
  params.extSemWait = {&semaphore, &wait, 1};
  const CUgraphNode node = add_node(graph_, params);
  ASSERT_OK(add_result_);
  add(a_, b_, {node});
  CUDA_EXT_SEM_WAIT_NODE_PARAMS held{};
  EXPECT_OK(api().cuGraphExternalSemaphoresWaitNodeGetParams(node, &held));
  EXPECT_EQ(held.extSemArray[0], semaphore);
  EXPECT_EQ(held.paramsArray[0].params.fence.value, 3u);
  CUDA_EXT_SEM_SIGNAL_NODE_PARAMS wrong{};
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphExternalSemaphoresSignalNodeGetParams(node, &wrong));
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  CUstream other = nullptr;
  ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  signal.params.fence.value = 3;
  EXPECT_OK(api().cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, other));
  EXPECT_OK(synchronize());
  EXPECT_EQ(download(b_, 64)[0], 2.0f);
  EXPECT_OK(api().cuGraphExecDestroy(exec));
  EXPECT_OK(api().cuStreamDestroy(other));
  EXPECT_OK(api().cuDestroyExternalSemaphore(semaphore));
  EXPECT_NE(CUDA_SUCCESS, api().cuDestroyExternalSemaphore(semaphore));
}

TEST_F(WaitingTest, SemaphoresAreChecked) {
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC from{};
  from.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_D3D12_FENCE;
  CUexternalSemaphore semaphore = nullptr;
  EXPECT_EQ(CUDA_ERROR_NOT_SUPPORTED, api().cuImportExternalSemaphore(&semaphore, &from));
  from.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;  // signalled or not, and not again after a wait
  ASSERT_OK(api().cuImportExternalSemaphore(&semaphore, &from));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  EXPECT_NE(CUDA_SUCCESS, api().cuSignalExternalSemaphoresAsync(&semaphore, &signal, 0, stream_));
  signal.flags = 1;
  EXPECT_NE(CUDA_SUCCESS, api().cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream_));
  signal.flags = 0;
  EXPECT_OK(api().cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream_));
  EXPECT_OK(api().cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream_));
  EXPECT_OK(synchronize());
  EXPECT_OK(api().cuDestroyExternalSemaphore(semaphore));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream_));
}

TEST_F(WaitingTest, ABinarySemaphoreIsSpentByAWait) {
  begin({.launch_timeout_ms = 20});
  CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC from{};
  from.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD;
  CUexternalSemaphore semaphore = nullptr;
  ASSERT_OK(api().cuImportExternalSemaphore(&semaphore, &from));
  CUDA_EXTERNAL_SEMAPHORE_SIGNAL_PARAMS signal{};
  CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS wait{};
  EXPECT_OK(api().cuSignalExternalSemaphoresAsync(&semaphore, &signal, 1, stream_));
  EXPECT_OK(api().cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream_));
  EXPECT_OK(synchronize());
  EXPECT_OK(api().cuWaitExternalSemaphoresAsync(&semaphore, &wait, 1, stream_));
  EXPECT_EQ(CUDA_ERROR_LAUNCH_TIMEOUT, synchronize());
  expect_reported("waits for an external semaphore to reach 1, and it is 0");
  api().clear_error();
  EXPECT_OK(api().cuDestroyExternalSemaphore(semaphore));
}

TEST_F(WaitingTest, AKernelThatTheDeviceMayUpdateKeepsTheDriversRules) {
  const CUgraphNode node = add(a_, b_), plain = add(b_, c_, {node});
  CUkernelNodeAttrValue value{};
  value.deviceUpdatableKernelNode.deviceUpdatable = 1;
  ASSERT_OK(api().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
  ASSERT_OK(api().cuGraphKernelNodeGetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
  EXPECT_NE(value.deviceUpdatableKernelNode.devNode, nullptr);
  value.deviceUpdatableKernelNode.deviceUpdatable = 0;
  EXPECT_NE(CUDA_SUCCESS,
            api().cuGraphKernelNodeSetAttribute(node, CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE, &value));
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphKernelNodeCopyAttributes(plain, node));
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphDestroyNode(node));
  const CUgraphExec exec = instantiate(graph_);
  CUgraphExec second = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphInstantiateWithParams(&second, graph_, &params));
  CUgraphExecUpdateResultInfo info{};
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphExecUpdate(exec, graph_, &info));
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphLaunch(exec, stream_));
  expect_reported("no cuGraphUpload");
  EXPECT_OK(api().cuGraphUpload(exec, stream_));
  EXPECT_EQ(run(exec, c_), 3.0f);
  const AddOneParams other(add_one_, b_, a_);
  EXPECT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &other.params));
  EXPECT_NE(CUDA_SUCCESS, api().cuGraphLaunch(exec, stream_));
  EXPECT_OK(api().cuGraphUpload(exec, stream_));
  EXPECT_OK(api().cuGraphLaunch(exec, stream_));
  EXPECT_OK(synchronize());
  EXPECT_OK(api().cuGraphExecDestroy(exec));
}

}  // namespace
}  // namespace nodewright
