// Graphs: rules for nodes and edges, snapshots, patches, schedules that show a missing edge, launch limits.
#include <cmath>

#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {
namespace {

TEST_F(GraphTest, AGraphRunsInTheOrderOfItsEdges) {
  const CUgraphNode first = add(a_, b_);
  ASSERT_OK(add_result_);
  add(b_, c_, {first}, {kProgrammatic});
  ASSERT_OK(add_result_);
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphUpload(exec, stream_));
  EXPECT_EQ(3.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, AMissingEdgeShowsInTheReverseOrASeededSchedule) {
  int wrong = 0;
  for (const CpuDriverOptions& options : {CpuDriverOptions{}, CpuDriverOptions{.schedule = CpuSchedule::reverse},
                                          CpuDriverOptions{.schedule = CpuSchedule::seeded, .seed = 1},
                                          CpuDriverOptions{.schedule = CpuSchedule::seeded, .seed = 2},
                                          CpuDriverOptions{.schedule = CpuSchedule::seeded, .seed = 3},
                                          CpuDriverOptions{.schedule = CpuSchedule::seeded, .seed = 4}}) {
    begin(options);
    add(a_, b_);
    add(b_, c_);  // the edge is missing
    const CUgraphExec exec = instantiate(graph_);
    const bool right = run(exec, c_) == 3.0f;
    if (options.schedule == CpuSchedule::forward) {
      EXPECT_TRUE(right) << "hidden in the order of addition";
    }
    if (options.schedule == CpuSchedule::reverse) {
      EXPECT_FALSE(right);
    }
    if (options.schedule == CpuSchedule::seeded) wrong += right ? 0 : 1;
    ASSERT_OK(api().cuGraphExecDestroy(exec));
  }
  EXPECT_GT(wrong, 0) << "of four seeds";
}

TEST_F(GraphTest, ArgumentsAreCopiedWhenTheNodeIsAddedAndWhenItIsPatched) {
  const CUgraphNode node = add(a_, b_);  // add()'s struct is gone by now
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(2.0f, run(exec, b_));
  CUDA_KERNEL_NODE_PARAMS params{};
  ASSERT_OK(api().cuGraphKernelNodeGetParams(node, &params));
  EXPECT_EQ(add_one_, params.func);
  EXPECT_EQ(64u, params.blockDimX);
  const auto read_back = *static_cast<AddOne*>(params.kernelParams[0]);
  EXPECT_EQ(a_, read_back.x.data);
  {
    AddOne changed{{a_, 64}, {c_, 64}, 64};
    void* pointers[] = {&changed};
    params.kernelParams = pointers;
    params.gridDimX = 3;
    ASSERT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &params));
    changed.n = -1;
  }
  EXPECT_EQ(2.0f, run(exec, c_));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, ALaunchKeepsTheParametersItWasMadeWith) {
  const CUgraphNode node = add(a_, b_);
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  CUDA_KERNEL_NODE_PARAMS params{};
  ASSERT_OK(api().cuGraphKernelNodeGetParams(node, &params));
  AddOne changed{{a_, 64}, {c_, 64}, 64};
  void* pointers[] = {&changed};
  params.kernelParams = pointers;
  ASSERT_OK(api().cuGraphExecKernelNodeSetParams(exec, node, &params));
  ASSERT_OK(api().cuGraphExecDestroy(exec)) << "destroyed in flight";
  ASSERT_OK(synchronize());
  EXPECT_EQ(2.0f, download(b_, 1)[0]);
  EXPECT_TRUE(std::isnan(download(c_, 1)[0]));
}

TEST_F(GraphTest, ProgrammaticEdgesJoinKernelsThatWaitAndNothingElse) {
  const CUfunction no_wait = load("no_wait", kNoWait);
  const CUgraphNode first = add(a_, b_);
  const AddOne args{{b_, 64}, {c_, 64}, 64};
  add_kernel(graph_, no_wait, 1, 64, args, {first}, {kProgrammatic});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  EXPECT_NE(std::string::npos, api().report().find("never waits")) << api().report();
  CUgraphNodeParams fill{};
  fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
  fill.memset.dst = reinterpret_cast<CUdeviceptr>(b_);
  fill.memset.elementSize = 4;
  fill.memset.width = 64;
  fill.memset.height = 1;
  CUgraphNode filled = nullptr;
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphAddNode(&filled, graph_, &first, &kProgrammatic, 1, &fill));
  ASSERT_OK(api().cuGraphAddNode(&filled, graph_, &first, nullptr, 1, &fill));
  add(b_, c_, {filled}, {kProgrammatic});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  for (int broken = 0; broken < 4; ++broken) {
    CUgraphEdgeData edge = kProgrammatic;
    if (broken == 0) edge.from_port = 0;
    if (broken == 1) edge.to_port = 1;
    if (broken == 2) edge.reserved[4] = 1;
    if (broken == 3) edge.type = CU_GRAPH_DEPENDENCY_TYPE_DEFAULT;
    add(b_, c_, {first}, {edge});
    EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << broken;
  }
  CUgraphEdgeData begun = kProgrammatic;
  begun.from_port = CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER;
  add(b_, c_, {first}, {begun});
  EXPECT_OK(add_result_);
}

TEST_F(GraphTest, DuplicateForeignAndCircularDependenciesAreRefused) {
  const CUgraphNode first = add(a_, b_);
  add(b_, c_, {first, first});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_);
  const CUgraphNode second = add(b_, c_, {first});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphAddDependencies(graph_, &first, &second, nullptr, 1)) << "exists";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphAddDependencies(graph_, &first, &first, nullptr, 1));
  CUgraph other = nullptr;
  ASSERT_OK(api().cuGraphClone(&other, graph_));
  size_t count = 0;
  ASSERT_OK(api().cuGraphGetEdges(other, nullptr, nullptr, nullptr, &count));
  EXPECT_EQ(1u, count);
  CUgraphNode clones[2] = {};
  count = 2;
  ASSERT_OK(api().cuGraphGetNodes(other, clones, &count));
  add(b_, c_, {clones[0]});
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, add_result_) << "a node of another graph";
  ASSERT_OK(api().cuGraphDestroy(other));
  add(b_, c_, {clones[0]});
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, add_result_) << "a node of a destroyed graph";
  ASSERT_OK(api().cuGraphAddDependencies(graph_, &second, &first, nullptr, 1));
  CUgraphExec exec = nullptr;
  CUDA_GRAPH_INSTANTIATE_PARAMS params{};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphInstantiateWithParams(&exec, graph_, &params));
  EXPECT_EQ(CUDA_GRAPH_INSTANTIATE_INVALID_STRUCTURE, params.result_out);
  EXPECT_EQ(first, params.hErrNode_out);
}

TEST_F(GraphTest, EveryKindOfNodeRunsAndCanBePatched) {
  void* pinned = nullptr;
  ASSERT_OK(api().cuMemHostAlloc(&pinned, 512, 0));
  auto* host = static_cast<float*>(pinned);
  std::fill_n(host, 128, 8.0f);
  CUgraphNodeParams copy{};
  copy.type = CU_GRAPH_NODE_TYPE_MEMCPY;
  auto& c = copy.memcpy.copyParams;
  c.srcMemoryType = CU_MEMORYTYPE_HOST;
  c.srcHost = host;
  c.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  c.dstDevice = reinterpret_cast<CUdeviceptr>(a_);
  c.WidthInBytes = 256;
  c.Height = c.Depth = 1;
  CUgraphNode copied = nullptr, filled = nullptr, called = nullptr, childed = nullptr, recorded = nullptr;
  ASSERT_OK(api().cuGraphAddNode(&copied, graph_, nullptr, nullptr, 0, &copy));
  const CUgraphNode kernel = add(a_, b_, {copied});
  CUgraphNodeParams fill{};
  fill.type = CU_GRAPH_NODE_TYPE_MEMSET;
  fill.memset.dst = reinterpret_cast<CUdeviceptr>(b_);
  fill.memset.value = 0x40000000;  // 2.0f
  fill.memset.elementSize = 4;
  fill.memset.width = 1;
  fill.memset.height = 1;
  ASSERT_OK(api().cuGraphAddNode(&filled, graph_, &kernel, nullptr, 1, &fill));
  int calls = 0;
  CUgraphNodeParams call{};
  call.type = CU_GRAPH_NODE_TYPE_HOST;
  call.host.fn = [](void* data) { ++*static_cast<int*>(data); };
  call.host.userData = &calls;
  ASSERT_OK(api().cuGraphAddNode(&called, graph_, &filled, nullptr, 1, &call));
  CUgraph inner = nullptr;
  ASSERT_OK(api().cuGraphCreate(&inner, 0));
  add_kernel(inner, add_one_, 1, 64, AddOne{{b_, 64}, {c_, 64}, 64});
  CUgraphNodeParams child{};
  child.type = CU_GRAPH_NODE_TYPE_GRAPH;
  child.graph.graph = inner;
  ASSERT_OK(api().cuGraphAddNode(&childed, graph_, &called, nullptr, 1, &child));
  ASSERT_OK(api().cuGraphDestroy(inner));
  CUevent event = nullptr;
  ASSERT_OK(api().cuEventCreate(&event, 0));
  CUgraphNodeParams record{};
  record.type = CU_GRAPH_NODE_TYPE_EVENT_RECORD;
  record.eventRecord.event = event;
  ASSERT_OK(api().cuGraphAddNode(&recorded, graph_, &childed, nullptr, 1, &record));
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(10.0f, run(exec, c_));
  EXPECT_EQ(3.0f, download(c_, 1)[0]);
  EXPECT_EQ(1, calls);
  // Patches of each kind.
  c.srcHost = host + 64;
  host[64 + 63] = 20.0f;
  ASSERT_OK(api().cuGraphExecMemcpyNodeSetParams(exec, copied, &c, context_));
  CUDA_MEMSET_NODE_PARAMS other_fill{};
  ASSERT_OK(api().cuGraphMemsetNodeGetParams(filled, &other_fill));
  other_fill.value = 0;
  ASSERT_OK(api().cuGraphExecMemsetNodeSetParams(exec, filled, &other_fill, context_));
  EXPECT_EQ(22.0f, run(exec, c_));
  EXPECT_EQ(1.0f, download(c_, 1)[0]);
  ASSERT_OK(api().cuGraphNodeSetEnabled(exec, filled, 0));
  unsigned enabled = 1;
  ASSERT_OK(api().cuGraphNodeGetEnabled(exec, filled, &enabled));
  EXPECT_EQ(0u, enabled);
  EXPECT_EQ(22.0f, run(exec, c_));
  EXPECT_EQ(10.0f, download(c_, 1)[0]) << "the fill is disabled";
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphNodeSetEnabled(exec, called, 0)) << "host nodes cannot be disabled";
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuEventDestroy(event));
  ASSERT_OK(api().cuMemFreeHost(pinned));
}

TEST_F(GraphTest, AnExecTakesAnotherKernelUnlessAProgrammaticEdgeNeedsOneThatWaits) {
  const CUfunction no_wait = load("no_wait", kNoWait);
  const std::string twice = "#define WAIT wait_for_inputs();\n" + kArgs +
                            "NODEWRIGHT_KERNEL(twice, AddOne, 64) { WAIT " +
                            "args.y.data[threadIdx.x] = 2.0f * args.x.data[threadIdx.x]; }";
  const CUfunction other = load("twice", twice);
  const CUgraphNode first = add(a_, b_), second = add(b_, c_, {first}, {kProgrammatic});
  const CUgraphExec exec = instantiate(graph_);
  EXPECT_EQ(3.0f, run(exec, c_));
  AddOneParams params(other, b_, c_), hasty(no_wait, b_, c_);
  ASSERT_OK(api().cuGraphExecKernelNodeSetParams(exec, second, &params.params));
  EXPECT_EQ(4.0f, run(exec, c_));
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuGraphExecKernelNodeSetParams(exec, second, &hasty.params));
  expect_reported("a programmatic edge into kernel no_wait");
  EXPECT_EQ(4.0f, run(exec, c_)) << "refused, and as before";
  AddOneParams hasty_first(no_wait, a_, b_);
  EXPECT_OK(api().cuGraphExecKernelNodeSetParams(exec, first, &hasty_first.params)) << "no edge leads there";
  EXPECT_EQ(4.0f, run(exec, c_));

  CUgraph next = nullptr;
  ASSERT_OK(api().cuGraphCreate(&next, 0));
  const CUgraphNode again = add_kernel(next, other, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  add_kernel(next, other, 1, 64, AddOne{{b_, 64}, {c_, 64}, 64}, {again}, {kProgrammatic});
  CUgraphExecUpdateResultInfo info{};
  ASSERT_OK(api().cuGraphExecUpdate(exec, next, &info)) << "other kernels in an update";
  EXPECT_EQ(4.0f, run(exec, c_));
  EXPECT_EQ(2.0f, download(b_, 1)[0]);
  ASSERT_OK(api().cuGraphDestroy(next));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, AnUpdateTakesNewParametersButNoNewShape) {
  const CUgraphNode first = add(a_, b_);
  const CUgraphExec exec = instantiate(graph_);
  CUgraph next = nullptr;
  ASSERT_OK(api().cuGraphCreate(&next, 0));
  add_kernel(next, add_one_, 1, 64, AddOne{{a_, 64}, {c_, 64}, 64});
  CUgraphExecUpdateResultInfo info{};
  ASSERT_OK(api().cuGraphExecUpdate(exec, next, &info));
  EXPECT_EQ(2.0f, run(exec, c_));
  unsigned enabled = 0;
  EXPECT_OK(api().cuGraphNodeGetEnabled(exec, first, &enabled)) << "nodes keep answering to the first graph";
  add_kernel(next, add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64});
  EXPECT_EQ(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, api().cuGraphExecUpdate(exec, next, &info));
  EXPECT_EQ(CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED, info.result);
  ASSERT_OK(api().cuGraphDestroy(next));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
}

TEST_F(GraphTest, TwoLaunchesOfOneExecAreOneAfterTheOther) {
  begin({.schedule = CpuSchedule::seeded, .seed = 7});
  CUstream other = nullptr;
  ASSERT_OK(api().cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
  const CUgraphNode first = add(a_, b_);
  add(b_, a_, {first});  // every run adds 2
  const CUgraphExec exec = instantiate(graph_);
  for (int i = 0; i < 10; ++i) {
    ASSERT_OK(api().cuGraphLaunch(exec, stream_));
    ASSERT_OK(api().cuGraphLaunch(exec, other));
  }
  ASSERT_OK(api().cuCtxSynchronize());
  EXPECT_EQ(41.0f, download(a_, 1)[0]);
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  ASSERT_OK(api().cuStreamDestroy(other));
}

TEST_F(GraphTest, LaunchesOutsideTheLimitsAreRefused) {
  struct Case {
    unsigned grid_x, grid_y, grid_z, block_x, shared;
    CUresult expected;
  };
  const AddOne args{{a_, 64}, {b_, 64}, 64};
  for (const Case& c :
       {Case{1, 65535, 1, 1, 0, CUDA_SUCCESS}, Case{1, 65536, 1, 1, 0, CUDA_ERROR_INVALID_VALUE},
        Case{1, 1, 65536, 1, 0, CUDA_ERROR_INVALID_VALUE}, Case{0, 1, 1, 1, 0, CUDA_ERROR_INVALID_VALUE},
        Case{1, 1, 1, 64, 0, CUDA_SUCCESS}, Case{1, 1, 1, 65, 0, CUDA_ERROR_INVALID_VALUE},
        Case{1, 1, 1, 64, 48 << 10, CUDA_SUCCESS}, Case{1, 1, 1, 64, (48 << 10) + 1, CUDA_ERROR_INVALID_VALUE}}) {
    AddOne copy = args;
    void* params[] = {&copy};
    const CUlaunchConfig config{c.grid_x, c.grid_y, c.grid_z, c.block_x, 1, 1, c.shared, stream_, nullptr, 0};
    EXPECT_EQ(c.expected, api().cuLaunchKernelEx(&config, add_one_, params, nullptr)) << api().report();
  }
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE,
            api().cuFuncSetAttribute(add_one_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, (227 << 10) + 1));
  ASSERT_OK(api().cuFuncSetAttribute(add_one_, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 227 << 10));
  EXPECT_OK(launch(add_one_, 1, 64, args, 227 << 10));
  EXPECT_OK(synchronize());
  CUlaunchConfig config{1, 1, 1, 64, 1, 1, 0, stream_, nullptr, 0};
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuLaunchKernelEx(&config, add_one_, nullptr, nullptr)) << "no arguments";
}

TEST_F(GraphTest, UnloadedKernelsAndDestroyedGraphsAreCaught) {
  add(a_, b_);
  const CUgraphExec exec = instantiate(graph_);
  ASSERT_OK(api().cuGraphLaunch(exec, stream_));
  ASSERT_OK(api().cuLibraryUnload(libraries_.back()));
  libraries_.pop_back();
  EXPECT_OK(synchronize()) << "what was launched before still has its code";
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphLaunch(exec, stream_));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, launch(add_one_, 1, 64, AddOne{{a_, 64}, {b_, 64}, 64}));
  ASSERT_OK(api().cuGraphExecDestroy(exec));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphExecDestroy(exec));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphLaunch(exec, stream_));
  const CUgraph gone = graph_;
  graph_ = nullptr;
  ASSERT_OK(api().cuGraphDestroy(gone));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuGraphDestroy(gone));
}

TEST_F(GraphTest, KernelsTellTheirParametersAndOtherBytesAreNoImage) {
  CUlibrary library = nullptr;
  CUkernel kernel = nullptr;
  ASSERT_OK(
      api().cuLibraryLoadData(&library, image_of("add_one", kAddOne).data(), nullptr, nullptr, 0, nullptr, nullptr, 0));
  EXPECT_EQ(CUDA_ERROR_NOT_FOUND, api().cuLibraryGetKernel(&kernel, library, "add_two"));
  ASSERT_OK(api().cuLibraryGetKernel(&kernel, library, "add_one"));
  size_t offset = 1, bytes = 0;
  ASSERT_OK(api().cuKernelGetParamInfo(kernel, 0, &offset, &bytes));
  EXPECT_EQ(0u, offset);
  EXPECT_EQ(sizeof(AddOne), bytes);
  EXPECT_EQ(CUDA_ERROR_INVALID_VALUE, api().cuKernelGetParamInfo(kernel, 1, &offset, &bytes));
  int threads = 0;
  ASSERT_OK(api().cuKernelGetAttribute(&threads, CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel, 0));
  EXPECT_EQ(64, threads);
  ASSERT_OK(api().cuLibraryUnload(library));
  EXPECT_EQ(CUDA_ERROR_INVALID_HANDLE, api().cuLibraryUnload(library));
  const char text[256] = "not an image";
  EXPECT_EQ(CUDA_ERROR_INVALID_IMAGE,
            api().cuLibraryLoadData(&library, text, nullptr, nullptr, 0, nullptr, nullptr, 0));
}

}  // namespace
}  // namespace nodewright
