// Argument structs with arrays: shown as lists, patched whole, and the same in the kernel as on the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "graph/dump/graph_dump.h"
#include "graph/dump/plan_diff.h"
#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "runtime/device_selection.h"
#include "runtime/kernels/inline_kernel.h"
#include "runtime/kernels/kernel_cache.h"
#include "runtime/stream.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

NODEWRIGHT_ARGS(Strided, {
  In<uint32_t> x;
  Out<uint32_t> y;
  int64_t strides[2];
  float scales[2][2];
  uint32_t count;
})

// y[i] = x[i * strides[0] % count] + strides[1] + the sum of the scales
const InlineKernel kStrided("strided", kStridedText, R"(
NODEWRIGHT_KERNEL(strided, Strided, 32) {
  wait_for_inputs();
  const uint32_t i = threadIdx.x;
  if (i >= args.count) return;
  float sum = 0;
  for (const auto& row : args.scales) sum += row[0] + row[1];
  args.y.data[i] = args.x.data[i * args.strides[0] % args.count] + static_cast<uint32_t>(args.strides[1]) +
                   static_cast<uint32_t>(sum);
})");

class ArrayFieldsTest : public testing::Test {
 protected:
  OpenedDevice device = open_device(test::test_device_is_cuda() ? test::test_device() : "cpu:checked");
  Stream stream{device, "main"};
  KernelCache kernels{device};
  Kernel<Strided> strided = kernels.kernel<Strided>(kStrided, launch_shape_1d(1, 32));
  DeviceArray<uint32_t> x{device, "x", 8}, y{device, "y", 8};

  Plan plan(int64_t step) {
    GraphBuilder g(device, "arrays");
    g.declare(x, {.live_in = true});
    node_ = g.launch("strided", strided,
                     {.x = x, .y = y, .strides = {step, 100}, .scales = {{1, 2}, {3, 0.5f}}, .count = 8});
    return std::move(g).finish();
  }
  std::vector<uint32_t> expected(uint32_t step, uint32_t more) const {
    std::vector<uint32_t> all(8);
    for (uint32_t i = 0; i < 8; ++i) all[i] = 10 * (i * step % 8) + more;
    return all;
  }

  Node<Strided> node_;
};

// Strided ends in four bytes of padding.
TEST_F(ArrayFieldsTest, WhatTheCallersPaddingHeldIsNotInThePlan) {
  const auto plan_with = [&](int held) {
    alignas(Strided) std::byte bytes[sizeof(Strided)];
    std::memset(bytes, held, sizeof bytes);
    auto* const args = new (bytes) Strided;
    args->x = x, args->y = y;
    args->strides[0] = args->strides[1] = 1, args->count = 8;
    std::fill_n(&args->scales[0][0], 4, 0.0f);
    GraphBuilder g(device, "padding");
    g.declare(x, {.live_in = true});
    g.launch("strided", strided, *args);
    return std::move(g).finish();
  };
  const Plan zeros = plan_with(0), ones = plan_with(0xff);
  EXPECT_TRUE(std::ranges::equal(zeros.nodes[0].arguments, ones.nodes[0].arguments));
}

TEST_F(ArrayFieldsTest, TheKernelSeesThemAndAPatchReplacesThemWhole) {
  x.write(std::vector<uint32_t>{0, 10, 20, 30, 40, 50, 60, 70});
  ExplicitGraph graph(plan(3));
  graph.launch(stream);
  EXPECT_EQ(y.read(stream), expected(3, 106));
  graph.patch(node_, &Strided::strides, {5, 7});
  graph.patch(node_, &Strided::scales, {{0, 0}, {0, 1}});
  graph.launch(stream);
  EXPECT_EQ(y.read(stream), expected(5, 8));
  EXPECT_EQ(read_back(graph), std::vector<std::string>{});
}

TEST_F(ArrayFieldsTest, DumpsListThem) {
  const auto dump = nlohmann::json::parse(to_json(plan(3)));
  const auto& arguments = dump["nodes"][0]["arguments"];
  EXPECT_EQ(arguments[2]["value"].dump(), "[3,100]");
  EXPECT_EQ(arguments[2]["type"], "int64");
  EXPECT_EQ(arguments[3]["value"].dump(), "[1.0,2.0,3.0,0.5]");
  const PlanDiff diff = diff_plans(plan(3), plan(4));
  const std::string text = to_text(diff);
  EXPECT_NE(text.find("[3,100]"), std::string::npos) << text;
  EXPECT_NE(text.find("[4,100]"), std::string::npos) << text;
}

}  // namespace
}  // namespace nodewright
