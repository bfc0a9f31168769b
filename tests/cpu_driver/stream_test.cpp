// Streams, events, deferred execution and capture.
#include <cmath>
#include <thread>

#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {
namespace {

struct StreamAddOne {
  In<float> x;
  Out<float> y;
  int64_t n;
};

const std::string kStreamAddOne = R"(
namespace nodewright { struct StreamAddOne { In<float> x; Out<float> y; int64_t n; }; }
NODEWRIGHT_KERNEL(add_one, StreamAddOne, 64) {
  wait_for_inputs();
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += gridDim.x * blockDim.x)
    args.y.data[i] = args.x.data[i] + 1.0f;
})";

class StreamTest : public CpuDriverTest {
 protected:
  StreamAddOne args(const float* x, float* y) { return {{x, 64}, {y, 64}, 64}; }

  float* pinned(float value) {
    void* memory = nullptr;
    EXPECT_OK(api().cuMemHostAlloc(&memory, 256, 0));
    pinned_.push_back(memory);
    std::fill_n(static_cast<float*>(memory), 64, value);
    return static_cast<float*>(memory);
  }

  void TearDown() override {
    for (void* memory : pinned_) api().cuMemFreeHost(memory);
    CpuDriverTest::TearDown();
  }

  static CUdeviceptr at(const float* p) { return reinterpret_cast<CUdeviceptr>(p); }

  std::vector<void*> pinned_;
};

TEST_F(StreamTest, NothingRunsBeforeASynchronisingCallAndPinnedSourcesAreReadThen) {
  float* host = pinned(1.0f);
  float* x = allocate<float>(64);
  float* y = allocate<float>(64);
  ASSERT_OK(api().cuMemcpyHtoDAsync(at(x), host, 256, stream_));
  ASSERT_OK(launch(load("add_one", kStreamAddOne), 1, 64, args(x, y)));
  host[0] = 5.0f;  // too early: the copy has not run
  EXPECT_TRUE(std::isnan(download(y, 1)[0])) << "a synchronous copy does not wait for a non-blocking stream";
  EXPECT_EQ(CUDA_ERROR_NOT_READY, api().cuStreamQuery(stream_)) << "a query runs one operation: the copy";
  EXPECT_EQ(CUDA_SUCCESS, api().cuStreamQuery(stream_)) << "the next runs the kernel";
  EXPECT_EQ(6.0f, download(y, 1)[0]);
}

TEST_F(StreamTest, PageableSourcesAreReadByTheCallAndPageableTargetsAreFilledByIt) {
  float host[64];
  std::fill_n(host, 64, 1.0f);
  float* x = allocate<float>(64);
  ASSERT_OK(api().cuMemcpyHtoDAsync(at(x), host, 256, stream_));
  std::fill_n(host, 64, 2.0f);
  ASSERT_OK(api().cuMemcpyDtoHAsync(host, at(x), 256, stream_));
  EXPECT_EQ(1.0f, host[63]);
}

TEST_F(StreamTest, RegisteredMemoryIsPinnedUntilItIsUnregistered) {
  start({.poison = true});
  std::vector<float> host(128, 1.0f);
  float* x = allocate<float>(64);
  ASSERT_OK(api().cuMemHostRegister(host.data() + 32, 256, 0));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, api().cuMemHostRegister(host.data(), 132, 0));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, api().cuMemHostRegister(host.data() + 95, 8, 0));
  ASSERT_OK(api().cuMemHostRegister(host.data(), 128, 0));
  ASSERT_OK(api().cuMemHostUnregister(host.data()));
  EXPECT_EQ(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, api().cuMemHostUnregister(host.data()));
  ASSERT_OK(api().cuMemcpyHtoDAsync(at(x), host.data() + 32, 256, stream_));
  host[32] = 5.0f;  // too early: the copy has not run
  ASSERT_OK(api().cuMemHostUnregister(host.data() + 32));
  EXPECT_EQ(5.0f, download(x, 1)[0]) << "unregistering waits for the copies";
  EXPECT_EQ(0xa5, reinterpret_cast<unsigned char*>(&host[95])[3]);
  EXPECT_EQ(1.0f, host[96]);
  host[32] = 2.0f;
  ASSERT_OK(api().cuMemcpyHtoDAsync(at(x), host.data() + 32, 256, stream_));
  host[32] = 3.0f;
  ASSERT_OK(synchronize());
  EXPECT_EQ(2.0f, download(x, 1)[0]) << "pageable memory is read by the call";
}

TEST_F(StreamTest, PinnedSourcesArePoisonedAfterTheirCopyWhenAsked) {
  start({.poison = true});
  float* host = pinned(1.0f);
  float* x = allocate<float>(64);
  ASSERT_OK(api().cuMemcpyHtoDAsync(at(x), host, 256, stream_));
  EXPECT_EQ(1.0f, host[0]);
  ASSERT_OK(synchronize());
  EXPECT_EQ(0xa5, reinterpret_cast<unsigned char*>(host)[255]);
  EXPECT_EQ(1.0f, download(x, 64)[63]);
}

TEST_F(StreamTest, ImmediateExecutionRunsEveryOperationAtOnce) {
  start({.deferred = false});
  float* x = allocate<float>(64);
  ASSERT_OK(api().cuMemsetD32Async(at(x), 0x3f800000, 64, stream_));
  EXPECT_EQ(1.0f, download(x, 64)[63]);
}

TEST_F(StreamTest, AMissingEventBetweenStreamsShowsInTheReverseSchedule) {
  for (const bool with_event : {true, false}) {
    start({.schedule = CpuSchedule::reverse});
    CUstream other = nullptr;
    CUevent event = nullptr;
    ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    ASSERT_OK(api().cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    float* x = allocate<float>(64);
    float* y = allocate<float>(64);
    ASSERT_OK(api().cuMemsetD32Async(at(x), 0x3f800000, 64, other));
    ASSERT_OK(api().cuEventRecord(event, other));
    if (with_event) {
      ASSERT_OK(api().cuStreamWaitEvent(stream_, event, 0));
    }
    ASSERT_OK(launch(load("add_one", kStreamAddOne), 1, 64, args(x, y)));
    ASSERT_OK(synchronize());
    EXPECT_EQ(with_event, download(y, 1)[0] == 2.0f);
    ASSERT_OK(api().cuStreamSynchronize(other));
    ASSERT_OK(api().cuEventDestroy(event));
    ASSERT_OK(api().cuStreamDestroy(other));
  }
}

TEST_F(StreamTest, EventsKeepTimeAndSayWhetherTheyHappened) {
  CUevent start_event = nullptr, end_event = nullptr;
  ASSERT_OK(api().cuEventCreate(&start_event, 0));
  ASSERT_OK(api().cuEventCreate(&end_event, 0));
  float ms = -1;
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuEventElapsedTime(&ms, start_event, end_event)) << "never recorded";
  EXPECT_OK(api().cuEventQuery(start_event)) << "an event never recorded counts as done";
  ASSERT_OK(api().cuEventRecord(start_event, stream_));
  ASSERT_OK(api().cuLaunchHostFunc(
      stream_, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }, nullptr));
  ASSERT_OK(api().cuEventRecord(end_event, stream_));
  EXPECT_EQ(CUDA_ERROR_NOT_READY, api().cuEventElapsedTime(&ms, start_event, end_event));
  ASSERT_OK(api().cuEventSynchronize(end_event));
  ASSERT_OK(api().cuEventElapsedTime(&ms, start_event, end_event));
  EXPECT_GE(ms, 5.0f);
  ASSERT_OK(api().cuEventDestroy(start_event));
  ASSERT_OK(api().cuEventDestroy(end_event));
}

TEST_F(StreamTest, DestroyedHandlesAreToldFromLiveOnes) {
  CUevent event = nullptr;
  ASSERT_OK(api().cuEventCreate(&event, 0));
  ASSERT_OK(api().cuEventDestroy(event));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuEventDestroy(event));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuEventRecord(event, stream_));
  CUevent next = nullptr;
  ASSERT_OK(api().cuEventCreate(&next, 0));
  EXPECT_NE(event, next) << "the slot is used again, the handle is not";
  ASSERT_OK(api().cuEventDestroy(next));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuStreamSynchronize(reinterpret_cast<CUstream>(next)));
}

TEST_F(StreamTest, WorkOfADestroyedStreamStillRuns) {
  CUstream other = nullptr;
  ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  float* x = allocate<float>(64);
  ASSERT_OK(api().cuMemsetD32Async(at(x), 0x3f800000, 64, other));
  ASSERT_OK(api().cuStreamDestroy(other));
  ASSERT_OK(api().cuCtxSynchronize());
  EXPECT_EQ(1.0f, download(x, 1)[0]);
}

TEST_F(StreamTest, CopiesBeyondAnAllocationAreRefused) {
  float* x = allocate<float>(64);
  float host[65] = {};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyHtoD(at(x), host, 257));
  EXPECT_NE(std::string::npos, api().report().find("not within one allocation")) << api().report();
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemcpyHtoDAsync(at(x) + 4, host, 256, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuMemsetD8Async(at(x) + 200, 0, 57, stream_));
  EXPECT_OK(api().cuMemcpyHtoD(at(x) + 4, host, 252));
}

TEST_F(StreamTest, CallsWithoutACurrentContextAreRefused) {
  std::thread([] {
    CUdeviceptr address = 0;
    EXPECT_EQ(CUDA_ERROR_INVALID_CONTEXT, api().cuMemAlloc(&address, 4));
  }).join();
}

TEST_F(StreamTest, SeveralThreadsMayCallAtOnce) {
  const CUfunction add_one = load("add_one", kStreamAddOne);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      ASSERT_OK(api().cuCtxSetCurrent(context_));
      CUstream own = nullptr;
      ASSERT_OK(api().cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
      for (int round = 0; round < 50; ++round) {
        CUdeviceptr x = 0, y = 0;
        ASSERT_OK(api().cuMemAlloc(&x, 256));
        ASSERT_OK(api().cuMemAlloc(&y, 256));
        const auto value = static_cast<float>(t * 100 + round);
        ASSERT_OK(api().cuMemsetD32Async(x, __builtin_bit_cast(unsigned, value), 64, own));
        ASSERT_OK(launch(add_one, 2, 32, args(reinterpret_cast<float*>(x), reinterpret_cast<float*>(y)), 0, own));
        float back[64] = {};
        ASSERT_OK(api().cuMemcpyDtoHAsync(back, y, 256, own));
        ASSERT_EQ(value + 1.0f, back[63]);
        ASSERT_OK(api().cuMemFree(x));
        ASSERT_OK(api().cuMemFree(y));
      }
      ASSERT_OK(api().cuStreamDestroy(own));
    });
  for (std::thread& thread : threads) thread.join();
}

TEST_F(StreamTest, ACaptureTurnsLaunchesCopiesAndFillsIntoNodes) {
  const CUfunction add_one = load("add_one", kStreamAddOne);
  float* host = pinned(3.0f);
  float* x = allocate<float>(64);
  float* y = allocate<float>(64);
  ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
  CUstreamCaptureStatus status;
  ASSERT_OK(api().cuStreamIsCapturing(stream_, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_ACTIVE, status);
  ASSERT_OK(api().cuMemcpyHtoDAsync(at(x), host, 256, stream_));
  ASSERT_OK(launch(add_one, 1, 64, args(x, y)));
  CUlaunchAttribute programmatic{};
  programmatic.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION;
  programmatic.value.programmaticStreamSerializationAllowed = 1;
  StreamAddOne second = args(y, x);
  void* params[] = {&second};
  const CUlaunchConfig config{1, 1, 1, 64, 1, 1, 0, stream_, &programmatic, 1};
  ASSERT_OK(api().cuLaunchKernelEx(&config, add_one, params, nullptr));
  ASSERT_OK(api().cuMemsetD32Async(at(y), 0, 64, stream_));
  CUgraph graph = nullptr;
  ASSERT_OK(api().cuStreamEndCapture(stream_, &graph));
  CUgraphNode nodes[8] = {}, from[8] = {}, to[8] = {};
  CUgraphEdgeData edges[8] = {};
  size_t count = 8;
  ASSERT_OK(api().cuGraphGetNodes(graph, nodes, &count));
  ASSERT_EQ(4u, count);
  const CUgraphNodeType expected[] = {CU_GRAPH_NODE_TYPE_MEMCPY, CU_GRAPH_NODE_TYPE_KERNEL, CU_GRAPH_NODE_TYPE_KERNEL,
                                      CU_GRAPH_NODE_TYPE_MEMSET};
  for (size_t i = 0; i < 4; ++i) {
    CUgraphNodeType type;
    ASSERT_OK(api().cuGraphNodeGetType(nodes[i], &type));
    EXPECT_EQ(expected[i], type);
  }
  count = 8;
  EXPECT_EQ(CUDA_ERROR_LOSSY_QUERY, api().cuGraphGetEdges(graph, from, to, nullptr, &count));
  ASSERT_OK(api().cuGraphGetEdges(graph, from, to, edges, &count));
  ASSERT_EQ(3u, count);
  EXPECT_EQ(CU_GRAPH_DEPENDENCY_TYPE_DEFAULT, edges[0].type);
  EXPECT_EQ(CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC, edges[1].type);
  EXPECT_EQ(CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC, edges[1].from_port);
  EXPECT_EQ(CU_GRAPH_DEPENDENCY_TYPE_DEFAULT, edges[2].type);
  const CUgraphExec exec = instantiate(graph);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  ASSERT_OK(synchronize());
  EXPECT_EQ(5.0f, download(x, 1)[0]);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuGraphDestroy(graph));
}

TEST_F(StreamTest, ACaptureForksAndJoinsThroughEventsAndMustJoin) {
  const CUfunction add_one = load("add_one", kStreamAddOne);
  CUstream other = nullptr;
  CUevent forked = nullptr, joined = nullptr;
  ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  ASSERT_OK(api().cuEventCreate(&forked, CU_EVENT_DISABLE_TIMING));
  ASSERT_OK(api().cuEventCreate(&joined, CU_EVENT_DISABLE_TIMING));
  float* x = allocate<float>(64);
  float* y = allocate<float>(64);
  for (const bool join : {true, false}) {
    ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_RELAXED));
    ASSERT_OK(api().cuMemsetD32Async(at(x), 0, 64, stream_));
    ASSERT_OK(api().cuEventRecord(forked, stream_));
    ASSERT_OK(api().cuStreamWaitEvent(other, forked, 0));
    ASSERT_OK(launch(add_one, 1, 64, args(x, y), 0, other));
    ASSERT_OK(api().cuEventRecord(joined, other));
    if (join) {
      ASSERT_OK(api().cuStreamWaitEvent(stream_, joined, 0));
    }
    ASSERT_OK(api().cuMemsetD32Async(at(x), 1, 64, stream_));
    CUgraph graph = nullptr;
    EXPECT_EQ(join ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED, api().cuStreamEndCapture(stream_, &graph));
    if (!join) continue;
    size_t edges = 0;
    ASSERT_OK(api().cuGraphGetEdges(graph, nullptr, nullptr, nullptr, &edges));
    EXPECT_EQ(3u, edges) << "fill -> kernel, and both -> the last fill";
    ASSERT_OK(api().cuGraphDestroy(graph));
  }
  ASSERT_OK(api().cuEventDestroy(forked));
  ASSERT_OK(api().cuEventDestroy(joined));
  ASSERT_OK(api().cuStreamDestroy(other));
}

TEST_F(StreamTest, ASynchronisingCallSpoilsACapture) {
  ASSERT_OK(api().cuStreamBeginCapture(stream_, CU_STREAM_CAPTURE_MODE_GLOBAL));
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, api().cuStreamSynchronize(stream_));
  CUstreamCaptureStatus status;
  ASSERT_OK(api().cuStreamIsCapturing(stream_, &status));
  EXPECT_EQ(CU_STREAM_CAPTURE_STATUS_INVALIDATED, status);
  CUgraph graph = nullptr;
  EXPECT_EQ(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, api().cuStreamEndCapture(stream_, &graph));
  EXPECT_EQ(nullptr, graph);
  EXPECT_OK(synchronize()) << "the stream is free again";
}

TEST_F(StreamTest, ACaptureIntoAGraphContinuesAfterTheNodesGiven) {
  CUgraph graph = nullptr;
  CUgraphNode first = nullptr;
  ASSERT_OK(api().cuGraphCreate(&graph, 0));
  CUgraphNodeParams empty{};
  empty.type = CU_GRAPH_NODE_TYPE_EMPTY;
  ASSERT_OK(api().cuGraphAddNode(&first, graph, nullptr, nullptr, 0, &empty));
  ASSERT_OK(api().cuStreamBeginCaptureToGraph(stream_, graph, &first, nullptr, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
  float* x = allocate<float>(64);  // allowed: relaxed
  ASSERT_OK(api().cuMemsetD32Async(at(x), 0, 64, stream_));
  CUgraph same = nullptr;
  ASSERT_OK(api().cuStreamEndCapture(stream_, &same));
  EXPECT_EQ(graph, same);
  CUgraphNode from = nullptr, to = nullptr;
  size_t count = 1;
  ASSERT_OK(api().cuGraphGetEdges(graph, &from, &to, nullptr, &count));
  EXPECT_EQ(1u, count);
  EXPECT_EQ(first, from);
  ASSERT_OK(api().cuGraphDestroy(graph));
}

}  // namespace
}  // namespace nodewright
