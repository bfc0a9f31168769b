// For tests that run a plan's timed twin: on the CPU driver, plain and checked, or on the device that
// $NODEWRIGHT_TEST_DEVICE names. The CPU driver runs one node after the other, so its times say which node is slow and
// nothing about overlap.
#pragma once

#include <algorithm>
#include <cctype>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/timing/node_timer.h"
#include "kernels_src/saxpy.h"
#include "runtime/calls/cpu_driver_api.h"
#include "tests/graph/kernel_text.h"
#include "tests/graph/sketch.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"

namespace nodewright {

inline constexpr uint64_t kCount = 500;  // floats in a buffer: not a multiple of any block

// A device with its kernels: compiling them takes seconds, loading them again does not.
struct Machine {
  std::string name;
  OpenedDevice opened;
  std::string mix_h = kernel_text("mix.h"), mix = kernel_text("mix.cu"), hasty_mix = kernel_text("hasty_mix.cu"),
              slow_mix = kernel_text("slow_mix.cu");
  std::unique_ptr<KernelCache> kernels;
  Kernel<Mix> waiting, hasty, slow;
  Kernel<Saxpy> saxpy;

  explicit Machine(const std::string& device) : name(device), opened(open_device(device)) {
    KernelCacheOptions options;
    options.extra_sources = {{"tests/graph/kernels/mix.h", mix_h},
                             {"kernels_src/mix.cu", mix},
                             {"kernels_src/hasty_mix.cu", hasty_mix},
                             {"kernels_src/slow_mix.cu", slow_mix}};
    kernels = std::make_unique<KernelCache>(*opened.device, options);
    waiting = kernels->kernel<Mix>("mix", mix_shape(kCount));
    // A checked run reports any access of a kernel that has not waited.
    hasty = kernels->kernel<Mix>({checked() ? "mix" : "hasty_mix", {}}, mix_shape(kCount));
    slow = kernels->kernel<Mix>({"slow_mix", {{"kMixAgain", 20000}}}, mix_shape(kCount));
    saxpy = kernels->kernel<Saxpy>("saxpy", saxpy_shape(kCount));
  }
  bool checked() const { return opened.driver->is_cpu() && opened.driver->cpu_options().check_accesses; }
};

class NodeTimerTest : public ::testing::TestWithParam<std::string> {
 protected:
  static void TearDownTestSuite() { machine_.reset(); }

  NodeTimerTest() {
    for (const char* name : {"x", "a", "b", "c", "y"}) buffers_.emplace_back(device(), name, kCount * sizeof(float));
    stage();
  }

  static Machine& machine() {
    if (!machine_ || machine_->name != GetParam()) {
      machine_.reset();  // one CPU driver at a time
      machine_ = std::make_unique<Machine>(GetParam());
    }
    return *machine_;
  }
  static Device& device() { return *machine().opened.device; }
  static KernelCache& kernels() { return *machine().kernels; }
  View<float> view(size_t i) const { return view_of<float>(buffers_[i]); }

  // staging -> x; a = f(x), b = g(x) (no wait), c = 0 and c += 3 a; y = 2 b + c; y -> result.
  Plan fork_join(EdgePolicy policy, const Kernel<Mix>& right, float scale = 2, Node<Mix>* join = nullptr) {
    GraphBuilder g(device(), "fork_join", {{"bucket", "4"}});
    declare_all(g);
    const auto x = view(0), a = view(1), b = view(2), c = view(3), y = view(4);
    g.copy("load", x, staging_, x.bytes());
    g.fill("clear", c, 0.0f);
    {
      const auto layer = g.scope("l0");
      g.launch("left", machine().waiting, {.left = x, .right = x, .gain = {}, .y = a, .scale = 0.5f});
      g.launch("right", right, {.left = x, .right = x.subview(0, 3), .gain = {}, .y = b, .scale = -2});
    }
    const auto layer = g.scope("l1");
    g.launch("saxpy", machine().saxpy, {.x = a, .y = c, .a = 3});
    const auto joined =
        g.launch("join", machine().waiting, {.left = b, .right = c, .gain = {}, .y = y, .scale = scale});
    if (join != nullptr) *join = joined;
    g.empty("joined", {.after = {joined}});
    g.copy("store", result_, y, y.bytes());
    return std::move(g).finish(policy);
  }
  Plan fork_join(EdgePolicy policy) { return fork_join(policy, machine().hasty); }

  void declare_all(GraphBuilder& g) {
    g.declare(range_of(staging_, "input"), {.live_in = true});
    for (const DeviceBuffer& buffer : buffers_) g.declare(range_of(buffer, "activation"));
    g.declare(range_of(result_, "output"), {.live_out = true});
  }

  // What the next launch copies in. The CPU driver may overwrite it once the copy has run.
  void stage() {
    const auto x = staging_.as<float>();
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) * 0.25f - 1.0f;
  }

  std::vector<float> result_of(ExplicitGraph& graph) {
    const auto result = result_.as<float>();
    std::fill(result.begin(), result.end(), -99.0f);
    stage();
    graph.launch(stream_);
    stream_.synchronize();
    return {result.begin(), result.end()};
  }

  NodeTimerOptions few() {
    return {.samples = 5, .launches_per_sample = 2, .before_launch = [this] { stage(); }, .read_peak = {}};
  }
  std::vector<NodeSpan> spans_of_one_launch(NodeTimer& timer) {
    stage();
    return node_spans(timer.twin(), timer.stamps_of_one_launch());
  }

  static const NodeTiming& timing_of(const Plan& plan, const PlanTimings& timings, std::string_view name) {
    for (const NodeTiming& timing : timings.nodes)
      if (plan.nodes[timing.node].name == name) return timing;
    ADD_FAILURE() << "no timing of " << name;
    return timings.nodes.front();
  }

  static inline std::unique_ptr<Machine> machine_;  // made by the first test that asks
  std::vector<DeviceBuffer> buffers_;
  PinnedBuffer staging_{device(), "staging", kCount * sizeof(float)};
  PinnedBuffer result_{device(), "result", kCount * sizeof(float)};
  Stream stream_{device(), "test"};
};

inline std::vector<std::string> timed_devices() {
  if (test::test_device() != "cpu") return {test::test_device()};
  return {"cpu", "cpu:checked"};
}
inline std::string suite_of_device(const ::testing::TestParamInfo<std::string>& device) {
  std::string name = device.param;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
}

}  // namespace nodewright
