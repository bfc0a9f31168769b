// Graphs with conditional nodes, and the kernels that set and count.
#pragma once

#include "tests/cpu_driver/graph_fixture.h"

namespace nodewright {

// Sets its condition to the value it finds.
struct Decide {
  In<uint32_t> value;
  Condition condition;
  int64_t planted;
};
inline const std::string kDecide = R"(
namespace nodewright { struct Decide { In<uint32_t> value; Condition condition; int64_t planted; }; }
NODEWRIGHT_KERNEL(decide, Decide, 32) {
  if (args.planted == 1) set_condition(args.condition, 1);  // too early
  wait_for_inputs();
  if (args.planted == 2) args.condition.slot[1] = 1;  // beyond the slot
  if (args.planted == 3) set_condition({args.condition.handle + 1, nullptr}, 1);
  if (blockIdx.x == 0 && threadIdx.x == 0) set_condition(args.condition, *args.value.data);
})";

// Counts one round up in `rounds` and one down in `left`; the condition is whether any is left.
struct Round {
  InOut<uint32_t> rounds, left;
  Condition condition;
};
inline const std::string kRound = R"(
namespace nodewright { struct Round { InOut<uint32_t> rounds, left; Condition condition; }; }
NODEWRIGHT_KERNEL(round, Round, 32) {
  wait_for_inputs();
  if (threadIdx.x != 0) return;
  *args.rounds.data += 1;
  if (*args.left.data > 0) *args.left.data -= 1;
  set_condition(args.condition, *args.left.data);
})";

class ConditionalTest : public GraphTest {
 protected:
  void SetUp() override {
    GraphTest::SetUp();
    load_kernels();
  }

  // A new graph under other options.
  void begin_with(CpuDriverOptions options, bool checked = false) {
    begin(options);
    load_kernels(checked);
  }

  void load_kernels(bool checked = false) {
    decide_ = load("decide", kDecide, checked);
    round_ = load("round", kRound, checked);
  }

  CUgraphConditionalHandle handle_of(CUgraph graph, unsigned default_value = 0,
                                     unsigned flags = CU_GRAPH_COND_ASSIGN_DEFAULT) {
    CUgraphConditionalHandle handle = 0;
    EXPECT_OK(api().cuGraphConditionalHandleCreate(&handle, graph, context_, default_value, flags));
    return handle;
  }

  CUgraphNodeParams conditional(CUgraphConditionalHandle handle, CUgraphConditionalNodeType type, unsigned size) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_CONDITIONAL);
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context_;
    return params;
  }

  // Adds a conditional node and returns its bodies; none if it was refused (add_result_).
  std::vector<CUgraph> add_conditional(CUgraph graph, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                       unsigned size, std::vector<CUgraphNode> after = {}) {
    CUgraphNodeParams params = conditional(handle, type, size);
    add_result_ = api().cuGraphAddNode(&conditional_, graph, after.data(), nullptr, after.size(), &params);
    const CUgraph* bodies = params.conditional.phGraph_out;
    return add_result_ == CUDA_SUCCESS ? std::vector<CUgraph>(bodies, bodies + size) : std::vector<CUgraph>();
  }

  CUgraphNode add_decide(CUgraph graph, const uint32_t* value, CUgraphConditionalHandle handle,
                         std::vector<CUgraphNode> after = {}, int64_t planted = 0) {
    return add_kernel(graph, decide_, 2, 32, Decide{{value, 1}, {handle, nullptr}, planted}, after);
  }
  CUgraphNode add_round(CUgraph graph, uint32_t* rounds, uint32_t* left, CUgraphConditionalHandle handle,
                        std::vector<CUgraphNode> after = {}) {
    return add_kernel(graph, round_, 1, 32, Round{{rounds, 1}, {left, 1}, {handle, nullptr}}, after);
  }
  // Writes `value` to a word on the device.
  CUgraphNodeParams word_fill(const uint32_t* word, unsigned value) {
    CUgraphNodeParams params = of_type(CU_GRAPH_NODE_TYPE_MEMSET);
    params.memset.dst = reinterpret_cast<CUdeviceptr>(word);
    params.memset.value = value;
    params.memset.elementSize = 4;
    params.memset.width = params.memset.height = 1;
    return params;
  }

  uint32_t word(const uint32_t* device) { return download(device, 1)[0]; }
  void set_word(uint32_t* device, uint32_t value) {
    ASSERT_OK(api().cuMemcpyHtoD(reinterpret_cast<CUdeviceptr>(device), &value, sizeof value));
  }
  void launch_and_wait(CUgraphExec exec) {
    ASSERT_OK(api().cuGraphLaunch(exec, stream_));
    ASSERT_OK(synchronize());
  }

  CUfunction decide_ = nullptr, round_ = nullptr;
  CUgraphNode conditional_ = nullptr;
};

inline const std::vector<CpuDriverOptions>& all_schedules() {
  static const std::vector<CpuDriverOptions> all = {{},
                                                    {.schedule = CpuSchedule::reverse},
                                                    {.schedule = CpuSchedule::seeded, .seed = 1},
                                                    {.schedule = CpuSchedule::seeded, .seed = 2},
                                                    {.schedule = CpuSchedule::seeded, .seed = 3},
                                                    {.compute_capability = 80}};
  return all;
}

}  // namespace nodewright
