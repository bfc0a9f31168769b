// Green contexts: how multiprocessors are split, and the kernel nodes that run there.
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class GreenEntryTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    CUdevResource share{};
    unsigned groups = 1;
    ASSERT_OK(api().cuDeviceGetDevResource(0, &all_, CU_DEV_RESOURCE_TYPE_SM));
    ASSERT_OK(api().cuDevSmResourceSplitByCount(&share, &groups, &all_, nullptr, 0, 1));
    CUdevResourceDesc descriptor = nullptr;
    ASSERT_OK(api().cuDevResourceGenerateDesc(&descriptor, &share, 1));
    ASSERT_OK(api().cuGreenCtxCreate(&green_, descriptor, 0, CU_GREEN_CTX_DEFAULT_STREAM));
    ASSERT_OK(api().cuCtxFromGreenCtx(&context_, green_));
    ASSERT_OK(api().cuLibraryLoadData(&library_, image_of("add_one", kAddOne).data(), nullptr, nullptr, 0, nullptr,
                                      nullptr, 0));
    ASSERT_OK(api().cuLibraryGetKernel(&kernel_, library_, "add_one"));
  }
  void TearDown() override {
    api().cuLibraryUnload(library_);
    api().cuGreenCtxDestroy(green_);
    GraphTest::TearDown();
  }
  CUgraphNode add_green(CUfunction function, CUkernel kernel, CUcontext context) {
    AddOneParams held(function, a_, b_);
    held.params.kern = kernel;
    held.params.ctx = context;
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_KERNEL);
    memcpy(&params.kernel, &held.params, sizeof params.kernel);
    return add_node(graph_, params);
  }

  CUdevResource all_{};
  CUgreenCtx green_ = nullptr;
  CUcontext context_ = nullptr;
  CUlibrary library_ = nullptr;
  CUkernel kernel_ = nullptr;
};

TEST_F(GreenEntryTest, MultiprocessorsAreSplitInPairs) {
  CUdevResource shares[3], rest{};
  unsigned groups = 3;
  EXPECT_EQ(4u, all_.sm.smCount);
  ASSERT_OK(api().cuDevSmResourceSplitByCount(shares, &groups, &all_, &rest, 0, 1));
  EXPECT_EQ(2u, groups);
  EXPECT_EQ(2u, shares[1].sm.smCount);
  EXPECT_EQ(CU_DEV_RESOURCE_TYPE_INVALID, rest.type);
  groups = 1;
  EXPECT_EQ(CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION,
            api().cuDevSmResourceSplitByCount(shares, &groups, &all_, &rest, 0, 5));
  expect_reported("6 multiprocessors of 4");
  CUdevResource held{};
  ASSERT_OK(api().cuCtxGetDevResource(context_, &held, CU_DEV_RESOURCE_TYPE_SM));
  EXPECT_EQ(2u, held.sm.smCount);
}

TEST_F(GreenEntryTest, AKernelNodeRunsInItAndStaysThere) {
  const CUgraphNode node = add_green(nullptr, kernel_, context_);
  ASSERT_OK(add_result_);
  CUDA_KERNEL_NODE_PARAMS held{};
  ASSERT_OK(api().cuGraphKernelNodeGetParams(node, &held));
  EXPECT_EQ(context_, held.ctx);
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(2.0f, run(exec, b_));
  AddOneParams outside(add_one_, a_, c_);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecKernelNodeSetParams(exec, node, &outside.params));
  expect_reported("context of a kernel node's function may not change");
  AddOneParams inside(nullptr, a_, c_);
  inside.params.kern = kernel_;
  inside.params.ctx = context_;
  EXPECT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &inside.params));
  EXPECT_EQ(2.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GreenEntryTest, AFunctionBesideItAndAContextThatIsGoneAreRefused) {
  add_green(add_one_, nullptr, context_);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("a green context beside a function");
  ASSERT_OK(api().cuGreenCtxDestroy(green_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGreenCtxDestroy(green_));
  add_green(nullptr, kernel_, context_);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  expect_reported("neither primary nor green");
}

}  // namespace
}  // namespace nodewright
