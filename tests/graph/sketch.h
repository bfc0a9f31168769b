// For tests of plans that never run: buffers at made-up addresses, kernels that exist by name only, random plans.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <random>
#include <string>
#include <vector>

#include "graph/graph_builder.h"
#include "runtime/device_selection.h"
#include "tests/graph/kernels/mix.h"
#include "tests/support/test_device.h"

namespace nodewright {

inline LoadedKernel named_kernel(std::string name, bool waits) {
  LoadedKernel kernel;
  kernel.name = std::move(name);
  kernel.waits_for_inputs = waits;
  kernel.args_bytes = sizeof(Mix);
  kernel.max_threads = kMixThreads;
  return kernel;
}

// 256 floats from `address`.
inline constexpr uint64_t kSketchCount = 256;
inline View<float> sketch_view(uint64_t address, uint64_t count = kSketchCount) {
  return {reinterpret_cast<float*>(address), count};
}

class SketchTest : public ::testing::Test {
 protected:
  static void TearDownTestSuite() { opened_.reset(); }

  // Opened by the first test that asks: a device that does not open fails that test instead of skipping it.
  static Device& device() {
    if (!opened_) opened_.emplace(open_device(test::test_device()));
    return *opened_->device;
  }

  // Declares `name`, of 256 floats at an address of its own.
  View<float> buffer(GraphBuilder& g, const std::string& name, Live live = {}) {
    const View<float> view = sketch_view(next_address_);
    next_address_ += 4096;
    g.declare({name, view.address(), view.bytes(), "activation"}, live);
    return view;
  }

  // before, choose with two layers in one body and a fill in the other, after.
  Plan nested_plan() {
    GraphBuilder g(device(), "nested.b1");
    const auto x = buffer(g, "x", {.live_in = true}), y = buffer(g, "y", {.live_out = true});
    const ConditionHandle condition = g.condition("which", 1);
    g.launch("before", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
    g.if_else(
        "choose", condition,
        [&](GraphBuilder& body) {
          for (const std::string layer : {"l0", "l1"}) {
            const auto scope = body.scope(layer);
            body.launch("there", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
            body.launch("back", waiting, {.left = y, .right = y, .gain = {}, .y = x, .scale = 1});
          }
        },
        [&](GraphBuilder& body) { body.fill("clear", y, 0.0f); });
    g.launch("after", waiting, {.left = x, .right = x, .gain = {}, .y = y, .scale = 1});
    return std::move(g).finish(EdgePolicy::full);
  }

  Kernel<Mix> waiting{&waiting_kernel_, mix_shape(kSketchCount)};
  Kernel<Mix> hasty{&hasty_kernel_, mix_shape(kSketchCount)};

 private:
  static inline std::optional<OpenedDevice> opened_;
  LoadedKernel waiting_kernel_ = named_kernel("mix", true);
  LoadedKernel hasty_kernel_ = named_kernel("hasty_mix", false);
  uint64_t next_address_ = 0x10000;
};

// What a random plan is made of, so that a failure can be made again from its seed.
struct RandomPlan {
  unsigned seed;
  uint32_t nodes;
  EdgePolicy policy;
};

// Nodes that read and write random pieces of two buffers, with kernels that wait and kernels that do not, fills and
// empty nodes. Every buffer is live-in.
inline Plan make_random_plan(Device& device, const Kernel<Mix>& waiting, const Kernel<Mix>& hasty,
                             const RandomPlan& how) {
  std::mt19937 random(how.seed);
  const auto below = [&](uint32_t limit) { return static_cast<uint32_t>(random() % limit); };
  GraphBuilder g(device, "random." + std::to_string(how.seed));
  const View<float> a = sketch_view(0x100000), b = sketch_view(0x200000);
  g.declare({"a", a.address(), a.bytes(), "activation"}, {.live_in = true});
  g.declare({"b", b.address(), b.bytes(), "activation"}, {.live_in = true});
  std::vector<NodeId> ids;
  const auto piece = [&](uint32_t from, uint32_t to) {  // of [from, to) of both buffers' 512 elements, in one buffer
    const View<float>& whole = below(2) == 0 ? a : b;
    const uint32_t begin = from + below(to - from), end = begin + 1 + below(to - begin);
    return whole.subview(begin, std::min(end, to) - begin);
  };
  for (uint32_t n = 0; n < how.nodes; ++n) {
    const std::string name = "n" + std::to_string(n);
    const uint32_t kind = below(10);
    if (kind == 0) {
      const View<float> to = piece(0, 256);
      const FillRows rows{.count = 1, .rows = 1 + below(4), .pitch = 4 * (1 + below(20))};
      const bool fits = (rows.rows - 1) * rows.pitch + 4 <= to.bytes();
      ids.push_back(fits ? g.fill_rows(name, to, rows, 1.0f) : g.fill(name, to, 1.0f));
    } else if (kind == 1 && !ids.empty()) {
      ids.push_back(g.empty(name, {.after = {ids[below(static_cast<uint32_t>(ids.size()))]}}));
    } else {  // reads below `cut` and writes above it, or the other way round: no overlap within the node
      const uint32_t cut = 32 + below(192);
      const bool up = below(2) == 0;
      const auto read = [&] { return up ? piece(0, cut) : piece(cut, 256); };
      const View<float> y = up ? piece(cut, 256) : piece(0, cut);
      const View<float> left = read(), right = read();
      ids.push_back(g.launch(name, below(4) == 0 ? hasty : waiting,
                             {.left = left, .right = right, .gain = {}, .y = y, .scale = 0.5f}));
    }
  }
  return std::move(g).finish(how.policy);
}

// "from>to" for a full edge, "from~>to" for a programmatic one. Before compute capability 9.0 all edges are full.
inline void expect_edges(const Plan& plan, std::vector<std::string> expected, const char* why = "") {
  if (plan.device->properties().cc_major < 9)
    for (std::string& word : expected) std::erase(word, '~');
  std::vector<std::string> words;
  for (const Edge& edge : plan.edges)
    words.push_back(plan.nodes[edge.from].name + (edge.type == EdgeType::full ? ">" : "~>") + plan.nodes[edge.to].name);
  EXPECT_EQ(words, expected) << why;
}

}  // namespace nodewright
