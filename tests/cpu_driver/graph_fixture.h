// A graph of y = x + 1 kernels over three buffers, and the parameters of nodes of every kind.
#pragma once

#include "tests/cpu_driver/cpu_driver_fixture.h"

namespace nodewright {

struct AddOne {
  In<float> x;
  Out<float> y;
  int64_t n;
};

inline const std::string kArgs = "namespace nodewright { struct AddOne { In<float> x; Out<float> y; int64_t n; }; }\n";
inline const std::string kBody = R"({
  WAIT
  for (int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < args.n; i += gridDim.x * blockDim.x)
    args.y.data[i] = args.x.data[i] + 1.0f;
})";
inline const std::string kAddOne =
    "#define WAIT wait_for_inputs();\n" + kArgs + "NODEWRIGHT_KERNEL(add_one, AddOne, 64)" + kBody;
inline const std::string kNoWait = "#define WAIT\n" + kArgs + "NODEWRIGHT_KERNEL(no_wait, AddOne, 64)" + kBody;

inline constexpr CUgraphEdgeData kProgrammatic{.from_port = CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC,
                                               .to_port = 0,
                                               .type = CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC,
                                               .reserved = {}};

class GraphTest : public CpuDriverTest {
 protected:
  void SetUp() override {
    CpuDriverTest::SetUp();
    begin({});
  }
  void TearDown() override {
    if (graph_ != nullptr) api().cuGraphDestroy(graph_);
    CpuDriverTest::TearDown();
  }

  void begin(CpuDriverOptions options) {
    if (graph_ != nullptr) {
      ASSERT_OK(api().cuGraphDestroy(graph_));
    }
    start(options);
    ASSERT_OK(api().cuGraphCreate(&graph_, 0));
    add_one_ = load("add_one", kAddOne);
    a_ = upload(std::vector<float>(64, 1.0f));
    b_ = allocate<float>(64);
    c_ = allocate<float>(64);
  }

  CUgraphNode add(const float* x, float* y, std::vector<CUgraphNode> after = {},
                  std::vector<CUgraphEdgeData> edges = {}) {
    return add_kernel(graph_, add_one_, 1, 64, AddOne{{x, 64}, {y, 64}, 64}, after, edges);
  }

  // Adds a node of any kind to `graph`.
  CUgraphNode add_node(CUgraph graph, CUgraphNodeParams params, std::vector<CUgraphNode> after = {}) {
    CUgraphNode node = nullptr;
    add_result_ = api().cuGraphAddNode(&node, graph, after.data(), nullptr, after.size(), &params);
    return node;
  }

  static CUgraphNodeParams of_type(CUgraphNodeType type) {
    CUgraphNodeParams params{};
    params.type = type;
    return params;
  }
  static CUgraphNodeParams host_node(CUhostFn function, void* data) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_HOST);
    params.host.fn = function;
    params.host.userData = data;
    return params;
  }
  static CUgraphNodeParams child_node(CUgraph graph,
                                      CUgraphChildGraphNodeOwnership ownership = CU_GRAPH_CHILD_GRAPH_OWNERSHIP_CLONE) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_GRAPH);
    params.graph.graph = graph;
    params.graph.ownership = ownership;
    return params;
  }
  static CUgraphNodeParams event_node(CUgraphNodeType type, CUevent event) {
    CUgraphNodeParams params = of_type(type);
    (type == CU_GRAPH_NODE_TYPE_EVENT_RECORD ? params.eventRecord.event : params.eventWait.event) = event;
    return params;
  }

  // The parameters of a kernel node that adds one.
  struct AddOneParams {
    AddOneParams(CUfunction function, const float* x, float* y) : args{{x, 64}, {y, 64}, 64} {
      params.func = function;
      params.gridDimX = params.gridDimY = params.gridDimZ = params.blockDimY = params.blockDimZ = 1;
      params.blockDimX = 64;
      params.kernelParams = pointers;
    }
    AddOneParams(const AddOneParams&) = delete;
    AddOne args;
    void* pointers[1] = {&args};
    CUDA_KERNEL_NODE_PARAMS params{};
  };

  void expect_reported(const char* part) const {
    EXPECT_NE(std::string::npos, api().report().find(part)) << part << " in: " << api().report();
  }

  float run(CUgraphExec exec, const float* result) {
    EXPECT_OK(api().cuGraphLaunch(exec, stream_));
    EXPECT_OK(synchronize());
    return download(result, 64)[63];
  }

  CUgraph graph_ = nullptr;
  CUfunction add_one_ = nullptr;
  float *a_ = nullptr, *b_ = nullptr, *c_ = nullptr;
};

}  // namespace nodewright
