// cuGraphNodeGetParams: what it tells of a node is what the node was added with, and adds the same node again.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class AnyNodeTest : public GraphTest {
 protected:
  CUgraphNodeParams read(CUgraphNode node) {
    CUgraphNodeParams params{};
    EXPECT_OK(api().cuGraphNodeGetParams(node, &params));
    return params;
  }
  // Adds what was read of `node` to another graph, and reads that.
  CUgraphNodeParams read_again(CUgraphNode node) {
    CUgraphNodeParams params = read(node);
    CUgraphNode again = nullptr;
    EXPECT_OK(api().cuGraphAddNode(&again, other_, nullptr, nullptr, 0, &params));
    return read(again);
  }

  void SetUp() override {
    GraphTest::SetUp();
    ASSERT_OK(api().cuGraphCreate(&other_, 0));
  }
  void TearDown() override {
    api().cuGraphDestroy(other_);
    GraphTest::TearDown();
  }

  CUgraph other_ = nullptr;
};

void nothing(void*) {}

TEST_F(AnyNodeTest, AKernelsParametersMakeTheSameKernel) {
  const CUgraphNodeParams params = read_again(add(a_, b_));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_KERNEL, params.type);
  EXPECT_EQ(add_one_, params.kernel.func);
  EXPECT_EQ(64u, params.kernel.blockDimX);
  ASSERT_NE(nullptr, params.kernel.kernelParams);
  AddOne args{};
  memcpy(&args, params.kernel.kernelParams[0], sizeof args);
  EXPECT_EQ(a_, args.x.data);
  EXPECT_EQ(b_, args.y.data);
}

TEST_F(AnyNodeTest, CopiesAndFillsTellTheirEnds) {
  CUgraphNodeParams copy = of_type(CU_GRAPH_NODE_TYPE_MEMCPY);
  copy.memcpy.copyParams.srcMemoryType = copy.memcpy.copyParams.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  copy.memcpy.copyParams.srcDevice = reinterpret_cast<CUdeviceptr>(a_);
  copy.memcpy.copyParams.dstDevice = reinterpret_cast<CUdeviceptr>(b_);
  copy.memcpy.copyParams.WidthInBytes = 48;
  copy.memcpy.copyParams.Height = copy.memcpy.copyParams.Depth = 1;
  const CUgraphNodeParams copied = read_again(add_node(graph_, copy));
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_MEMCPY, copied.type);
  EXPECT_EQ(copy.memcpy.copyParams.dstDevice, copied.memcpy.copyParams.dstDevice);
  EXPECT_EQ(48u, copied.memcpy.copyParams.WidthInBytes);

  CUgraphNodeParams fill = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
  fill.memset.dst = reinterpret_cast<CUdeviceptr>(c_);
  fill.memset.value = 7;
  fill.memset.elementSize = 4;
  fill.memset.width = 9;
  fill.memset.height = 1;
  const CUgraphNodeParams filled = read_again(add_node(graph_, fill));
  EXPECT_EQ(fill.memset.dst, filled.memset.dst);
  EXPECT_EQ(7u, filled.memset.value);
  EXPECT_EQ(4u, filled.memset.elementSize);
  EXPECT_EQ(9u, filled.memset.width);
}

TEST_F(AnyNodeTest, HostEventChildAndEmptyNodesTellWhatTheyHold) {
  int data = 0;
  const CUgraphNodeParams host = read_again(add_node(graph_, host_node(nothing, &data)));
  EXPECT_EQ(&nothing, host.host.fn);
  EXPECT_EQ(&data, host.host.userData);
  CUevent event = nullptr;
  ASSERT_OK(api().cuEventCreate(&event, 0));
  EXPECT_EQ(event, read_again(add_node(graph_, event_node(CU_GRAPH_NODE_TYPE_EVENT_RECORD, event))).eventRecord.event);
  EXPECT_EQ(event, read_again(add_node(graph_, event_node(CU_GRAPH_NODE_TYPE_WAIT_EVENT, event))).eventWait.event);
  CUgraph inner = nullptr;
  ASSERT_OK(api().cuGraphCreate(&inner, 0));
  add_node(inner, of_type(CU_GRAPH_NODE_TYPE_EMPTY));
  const CUgraphNodeParams child = read(add_node(graph_, child_node(inner)));
  size_t nodes = 0;
  ASSERT_OK(api().cuGraphGetNodes(child.graph.graph, nullptr, &nodes));
  EXPECT_EQ(1u, nodes);
  EXPECT_NE(inner, child.graph.graph) << "a clone";
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_EMPTY, read(add_node(graph_, of_type(CU_GRAPH_NODE_TYPE_EMPTY))).type);
  ASSERT_OK(api().cuGraphDestroy(inner));
  ASSERT_OK(api().cuEventDestroy(event));
}

TEST_F(AnyNodeTest, MemoryAndValuesTellTheirAddresses) {
  CUgraphNodeParams allocate = of_type(CU_GRAPH_NODE_TYPE_MEM_ALLOC);
  allocate.alloc.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  allocate.alloc.poolProps.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
  allocate.alloc.bytesize = 512;
  CUgraphNode allocation = nullptr;
  ASSERT_OK(api().cuGraphAddNode(&allocation, graph_, nullptr, nullptr, 0, &allocate));
  EXPECT_EQ(allocate.alloc.dptr, read(allocation).alloc.dptr);
  EXPECT_EQ(512u, read(allocation).alloc.bytesize);
  CUgraphNodeParams free = of_type(CU_GRAPH_NODE_TYPE_MEM_FREE);
  free.free.dptr = allocate.alloc.dptr;
  EXPECT_EQ(allocate.alloc.dptr, read(add_node(graph_, free, {allocation})).free.dptr);

  CUstreamBatchMemOpParams operation{};
  operation.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
  operation.writeValue.address = reinterpret_cast<CUdeviceptr>(a_);
  operation.writeValue.value = 5;
  CUgraphNodeParams values = of_type(CU_GRAPH_NODE_TYPE_BATCH_MEM_OP);
  values.memOp.ctx = context_;
  values.memOp.count = 1;
  values.memOp.paramArray = &operation;
  const CUgraphNodeParams told = read_again(add_node(graph_, values));
  ASSERT_EQ(1u, told.memOp.count);
  EXPECT_EQ(operation.writeValue.address, told.memOp.paramArray[0].writeValue.address);
  EXPECT_EQ(5u, told.memOp.paramArray[0].writeValue.value);
}

TEST_F(AnyNodeTest, AConditionalNodeTellsItsHandleItsTypeAndItsBodies) {
  CUgraphNodeParams added = of_type(CU_GRAPH_NODE_TYPE_CONDITIONAL);
  ASSERT_OK(api().cuGraphConditionalHandleCreate(&added.conditional.handle, graph_, context_, 1,
                                                 CU_GRAPH_COND_ASSIGN_DEFAULT));
  added.conditional.type = CU_GRAPH_COND_TYPE_SWITCH;
  added.conditional.size = 3;
  added.conditional.ctx = context_;
  CUgraphNode node = nullptr;
  ASSERT_OK(api().cuGraphAddNode(&node, graph_, nullptr, nullptr, 0, &added));
  const CUgraphNodeParams params = read(node);
  EXPECT_EQ(CU_GRAPH_NODE_TYPE_CONDITIONAL, params.type);
  EXPECT_EQ(added.conditional.handle, params.conditional.handle);
  EXPECT_EQ(CU_GRAPH_COND_TYPE_SWITCH, params.conditional.type);
  ASSERT_EQ(3u, params.conditional.size);
  for (unsigned i = 0; i < 3; ++i) EXPECT_EQ(added.conditional.phGraph_out[i], params.conditional.phGraph_out[i]);
}

TEST_F(AnyNodeTest, NoNodeAndNoPlaceForTheAnswerAreRefused) {
  CUgraphNodeParams params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphNodeGetParams(nullptr, &params));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphNodeGetParams(add(a_, b_), nullptr));
}

TEST_F(AnyNodeTest, KernelsAndFunctionsTellTheNumberOfTheirParameters) {
  size_t count = 0;
  ASSERT_OK(api().cuFuncGetParamCount(add_one_, &count));
  EXPECT_EQ(1u, count);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_OK(
      api().cuLibraryLoadData(&library, image_of("no_wait", kNoWait).data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_OK(api().cuLibraryGetKernel(&kernel, library, "no_wait"));
  count = 0;
  ASSERT_OK(api().cuKernelGetParamCount(kernel, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuKernelGetParamCount(kernel, nullptr));
  ASSERT_OK(api().cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuKernelGetParamCount(kernel, &count));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuFuncGetParamCount(nullptr, &count));
}

TEST_F(AnyNodeTest, KernelsAndFunctionsTellTheirNames) {
  const char* name = nullptr;
  ASSERT_OK(api().cuFuncGetName(&name, add_one_));
  EXPECT_STREQ("add_one", name);
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_OK(
      api().cuLibraryLoadData(&library, image_of("no_wait", kNoWait).data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  ASSERT_OK(api().cuLibraryGetKernel(&kernel, library, "no_wait"));
  ASSERT_OK(api().cuKernelGetName(&name, kernel));
  EXPECT_STREQ("no_wait", name);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuKernelGetName(nullptr, kernel));
  ASSERT_OK(api().cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuKernelGetName(&name, kernel));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuFuncGetName(&name, nullptr));
}

}  // namespace
}  // namespace nodewright
