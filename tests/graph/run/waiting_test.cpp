// A -> B -> C, where C reads what A writes and the edge A -> C is left out, since B waits for A: kernels B that have a
// wait and do not come by it on every path. On a GPU C reads too early if B ends before A.
#include <gtest/gtest.h>

#include <list>

#include "graph/graph_exec.h"
#include "runtime/kernels/inline_kernel.h"
#include "tests/graph/kernel_text.h"
#include "tests/graph/sketch.h"

namespace nodewright {
namespace {

constexpr uint64_t kWaitingCount = 4096;  // floats: A fills a part of the GPU, so that B finds room beside it

class WaitingTest : public ::testing::Test {
 protected:
  // a = -1; A: a = 3 x, slowly; B: reads a; C: c = a + b.
  void expect_right_results(const std::string& body, std::vector<std::string> edges) {
    const std::string mix_h = kernel_text("mix.h"), mix = kernel_text("mix.cu"), slow_mix = kernel_text("slow_mix.cu");
    const InlineKernel between("between", "",
                               "#include \"tests/graph/kernels/mix.h\"\nNODEWRIGHT_KERNEL(between, Mix, 64) {\n"
                               "  const uint64_t i = blockIdx.x * 64ull + threadIdx.x;\n" +
                                   body + "}");
    KernelCacheOptions options;
    options.extra_sources = {{"tests/graph/kernels/mix.h", mix_h},
                             {"kernels_src/mix.cu", mix},
                             {"kernels_src/slow_mix.cu", slow_mix},
                             between};
    KernelCache kernels(device_, options);
    const LaunchShape shape = mix_shape(kWaitingCount);
    const auto slow =
        kernels.kernel<Mix>({"slow_mix", {{"kMixAgain", test::test_device_is_cuda() ? 20000 : 2}}}, shape);
    const auto b_kernel = kernels.kernel<Mix>("between", shape);
    const auto last = kernels.kernel<Mix>("mix", shape);

    const auto x = floats("x", 1.0f), a = floats("a", 0.0f), b = floats("b", 0.0f), c = floats("c", 0.0f);
    GraphBuilder g(device_, "waiting");
    for (const DeviceBuffer& buffer : buffers_) g.declare(buffer, {.live_in = true, .live_out = true});
    g.fill("clear", a, -1.0f);
    g.launch("A", slow, {.left = x, .right = x, .gain = {}, .y = a, .scale = 2.0f});
    g.launch("B", b_kernel, {.left = a, .right = a, .gain = {}, .y = b, .scale = 0.0f});
    g.launch("C", last, {.left = a, .right = b, .gain = {}, .y = c, .scale = 1.0f});
    ExplicitGraph graph(std::move(g).finish(EdgePolicy::programmatic));
    expect_edges(graph.plan(), std::move(edges));
    for (int launch = 0; launch < 20; ++launch) {
      graph.launch(stream_);
      stream_.synchronize();
      std::vector<float> result(kWaitingCount);
      read_view<float>(device_, result, c, "c");
      ASSERT_EQ(result, std::vector<float>(kWaitingCount, 3.0f)) << "launch " << launch;
    }
  }

  View<float> floats(const std::string& name, float value) {
    const DeviceBuffer& buffer = buffers_.emplace_back(device_, name, kWaitingCount * sizeof(float));
    const auto view = view_of<float>(buffer);
    write_view<float>(device_, view, std::vector<float>(kWaitingCount, value), name);
    return view;
  }

  OpenedDevice opened_ = open_device(test::test_device());
  Device& device_ = *opened_.device;
  Stream stream_{device_, "test"};
  std::list<DeviceBuffer> buffers_;
};

const std::string kWork = "args.y.data[i] = args.left.data[i] * args.scale;";
const std::vector<std::string> kProgrammaticEdges = {"clear>A", "A~>B", "B~>C"};

TEST_F(WaitingTest, AnEarlyReturnBeforeTheWaitLosesNoOrder) {
  expect_right_results("release_dependents(); if (i >= args.gain.count) return; wait_for_inputs(); " + kWork,
                       kProgrammaticEdges);
}

TEST_F(WaitingTest, AWaitInOneArmOfAnIfLosesNoOrder) {
  expect_right_results("release_dependents(); if (args.scale != 0.0f) { wait_for_inputs(); " + kWork + " }",
                       kProgrammaticEdges);
}

TEST_F(WaitingTest, AWaitInALoopOfNoTurnsLosesNoOrder) {
  expect_right_results(
      "release_dependents(); for (uint64_t k = 0; k < args.gain.count; ++k) { wait_for_inputs(); " + kWork + " }",
      kProgrammaticEdges);
}

TEST_F(WaitingTest, AKernelThatNeverWaitsHasFullInEdges) {
  expect_right_results("release_dependents(); " + kWork, {"clear>A", "A>B", "B~>C"});
}

}  // namespace
}  // namespace nodewright
