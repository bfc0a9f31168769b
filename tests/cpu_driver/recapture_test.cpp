// cuStreamBeginRecaptureToGraph: what may be other, what the callback gets, and how it fails.
#include "runtime/calls/driver_entries.h"
#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

class RecaptureEntryTest : public GraphTest {
 protected:
  struct Told {
    std::vector<CUgraphNode> nodes;
    std::vector<std::pair<float*, float*>> outputs;  // before, after
    std::vector<RecaptureStatus> status;
    CUresult answer = CUDA_SUCCESS;
  };

  void SetUp() override {
    GraphTest::SetUp();
    ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    submit(b_, 0);
    ASSERT_OK(api().cuStreamEndCapture(stream_, &captured_));
    size_t count = 2;
    ASSERT_OK(api().cuGraphGetNodes(captured_, nodes_, &count));
    ASSERT_EQ(2u, count);
  }
  void TearDown() override {
    api().cuGraphDestroy(captured_);
    GraphTest::TearDown();
  }

  CUresult submit(float* y, unsigned value) {
    AddOneParams kernel(add_one_, a_, y);
    const CUlaunchConfig config{1, 1, 1, 64, 1, 1, 0, stream_, nullptr, 0};
    const CUresult result = api().cuLaunchKernelEx(&config, add_one_, kernel.pointers, nullptr);
    return result != CUDA_SUCCESS ? result
                                  : api().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(c_), value, 64, stream_);
  }
  CUresult begin_again(RecaptureCallback callback, Told& told) {
    return api().cuStreamBeginRecaptureToGraph(stream_, CU_STREAM_CAPTURE_MODE_RELAXED, captured_, callback, &told);
  }
  CUresult end() {
    CUgraph graph = nullptr;
    const CUresult result = api().cuStreamEndCapture(stream_, &graph);
    EXPECT_EQ(result == CUDA_SUCCESS ? captured_ : nullptr, graph);
    return result;
  }
  // It may call the driver.
  static CUresult CUDA_CB note(void* data, CUgraphNode node, const CUgraphNodeParams* before,
                               const CUgraphNodeParams* after, RecaptureStatus status) {
    Told& told = *static_cast<Told*>(data);
    CUgraphNodeType type{};
    EXPECT_OK(api().cuGraphNodeGetType(node, &type));
    EXPECT_EQ(type, before->type);
    EXPECT_EQ(type, after->type);
    told.nodes.push_back(node);
    told.status.push_back(status);
    if (type == CU_GRAPH_NODE_TYPE_KERNEL)
      told.outputs.emplace_back(static_cast<AddOne*>(before->kernel.kernelParams[0])->y.data,
                                static_cast<AddOne*>(after->kernel.kernelParams[0])->y.data);
    return told.answer;
  }

  CUgraph captured_ = nullptr;
  CUgraphNode nodes_[2] = {};
};

TEST_F(RecaptureEntryTest, TheSameWorkChangesNothingAndOtherParametersAreTold) {
  Told told;
  ASSERT_OK(begin_again(note, told));
  ASSERT_OK(submit(b_, 0));
  ASSERT_OK(end());
  EXPECT_TRUE(told.nodes.empty());

  ASSERT_OK(begin_again(note, told));
  ASSERT_OK(submit(c_, 5));
  ASSERT_OK(end());
  EXPECT_EQ((std::vector<CUgraphNode>{nodes_[0], nodes_[1]}), told.nodes);
  ASSERT_EQ(1u, told.outputs.size());
  EXPECT_EQ(b_, told.outputs[0].first);
  EXPECT_EQ(c_, told.outputs[0].second);
  EXPECT_EQ((std::vector<RecaptureStatus>{kRecaptureEligible, kRecaptureEligible}), told.status);
  CUDA_MEMSET_NODE_PARAMS fill{};
  ASSERT_OK(api().cuGraphMemsetNodeGetParams(nodes_[1], &fill));
  EXPECT_EQ(5u, fill.value);

  ASSERT_OK(begin_again(nullptr, told));  // no callback: every change is taken
  ASSERT_OK(submit(b_, 6));
  ASSERT_OK(end());
  ASSERT_OK(api().cuGraphMemsetNodeGetParams(nodes_[1], &fill));
  EXPECT_EQ(6u, fill.value);
}

TEST_F(RecaptureEntryTest, ACallbackThatRefusesAndOtherNodesEndIt) {
  Told told;
  told.answer = CUDA_ERROR_UNKNOWN;
  ASSERT_OK(begin_again(note, told));
  EXPECT_EQ(kRecaptureFailure, submit(c_, 0));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end());

  ASSERT_OK(begin_again(nullptr, told));
  EXPECT_EQ(kRecaptureFailure, end());
  expect_reported("fewer nodes than before");

  ASSERT_OK(begin_again(nullptr, told));
  ASSERT_OK(submit(b_, 0));
  EXPECT_EQ(kRecaptureFailure, submit(b_, 0));
  expect_reported("more nodes than before");
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end());

  ASSERT_OK(begin_again(nullptr, told));
  EXPECT_EQ(kRecaptureFailure, api().cuMemsetD32Async(reinterpret_cast<CUdeviceptr>(c_), 0, 64, stream_));
  expect_reported("node 0 is of another type");
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, end());
  EXPECT_OK(synchronize());
}

}  // namespace
}  // namespace nodewright
