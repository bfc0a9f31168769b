#include "bench/graph/scaled_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace nodewright {
namespace {

constexpr uint64_t kBase = uint64_t{1} << 40;  // of the arena, on no device
constexpr uint64_t kSlice = 1024;              // bytes
constexpr size_t kBodies = 64, kNodesOfBody = 3, kNodesPerLoop = 20;
constexpr size_t kRecent = 64;
constexpr size_t kMostConditions = 8000;  // a plan has up to 8191

View<float> at(uint64_t offset, uint64_t bytes = kSlice) {
  return {reinterpret_cast<float*>(kBase + offset), bytes / sizeof(float)};
}
View<float> slice(size_t index) { return at(index * kSlice); }

std::string numbered(std::string_view name, size_t index) { return fmt::format("{}{}", name, index); }

void declare_slices(GraphBuilder& g, size_t count) {
  for (size_t i = 0; i < count; ++i)
    g.declare({numbered("b", i), slice(i).address(), kSlice, "activation"}, {.live_in = true});
}
void declare_arena(GraphBuilder& g, size_t slices) {
  g.declare({"arena", kBase, slices * kSlice, "activation"}, {.live_in = true});
}

}  // namespace

std::string_view to_string(ScaledShape shape) {
  switch (shape) {
    case ScaledShape::chain:
      return "chain";
    case ScaledShape::fan_out:
      return "fan_out";
    case ScaledShape::random:
      return "random";
    case ScaledShape::cleared_arena:
      return "cleared_arena";
    case ScaledShape::halo:
      return "halo";
    case ScaledShape::frozen_arena:
      return "frozen_arena";
    case ScaledShape::random_arena:
      return "random_arena";
    case ScaledShape::bodies:
      return "bodies";
    case ScaledShape::conditionals:
      return "conditionals";
    case ScaledShape::loops:
      return "loops";
  }
  return "?";
}

ScaledPlans::ScaledPlans(Device& device)
    : source_("scaled", kScaledArgsText, R"(NODEWRIGHT_KERNEL(scaled, ScaledArgs, 32) {
        wait_for_inputs();
        args.y.data[0] = args.a.data[0];
      })"),
      loop_source_("scaled_loop", kScaledLoopArgsText, R"(NODEWRIGHT_KERNEL(scaled_loop, ScaledLoopArgs, 32) {
        wait_for_inputs();
        args.y.data[0] = args.a.data[0];
        set_condition(args.again, 0);
      })"),
      kernels_(device),
      kernel_(kernels_.kernel<ScaledArgs>(source_, launch_shape_1d(1, 32))),
      loop_kernel_(kernels_.kernel<ScaledLoopArgs>(loop_source_, launch_shape_1d(1, 32))) {}

void ScaledPlans::add_to(GraphBuilder& g, ScaledShape shape, size_t nodes) const {
  std::mt19937 random(1);
  const auto launch = [&](GraphBuilder& into, const std::string& name, const ScaledArgs& args) {
    into.launch(name, kernel_, args);
  };
  const auto each_node = [&](const auto& args_of) {
    for (size_t i = 0; i < nodes; ++i) launch(g, numbered("n", i), args_of(i));
  };
  switch (shape) {
    case ScaledShape::chain:
      declare_slices(g, 2);
      return each_node([](size_t i) { return ScaledArgs{.a = slice(i % 2), .y = slice(1 - i % 2)}; });
    case ScaledShape::fan_out:
      declare_slices(g, nodes + 1);
      return each_node([](size_t i) { return ScaledArgs{.a = slice(i == 0 ? 1 : 0), .y = slice(i == 0 ? 0 : i + 1)}; });
    case ScaledShape::random:
      declare_slices(g, nodes + kRecent);
      return each_node([&](size_t i) {
        return ScaledArgs{
            .a = slice(i + random() % kRecent), .b = slice(i + random() % kRecent), .y = slice(i + kRecent)};
      });
    case ScaledShape::cleared_arena:
      declare_arena(g, 2 * nodes);
      g.fill("clear", at(0, 2 * nodes * kSlice), 0.0f);
      return each_node([](size_t i) { return ScaledArgs{.a = slice(2 * i), .y = slice(2 * i + 1)}; });
    case ScaledShape::halo:
      declare_arena(g, nodes + 2);
      return each_node([](size_t i) { return ScaledArgs{.a = at(i * kSlice, 2 * kSlice), .y = slice(i + 2)}; });
    case ScaledShape::frozen_arena:
      declare_arena(g, 2 * nodes + 1);
      return each_node([&](size_t i) {
        return ScaledArgs{
            .w = Weight<float>{slice(nodes + 1 + i).data, kSlice / sizeof(float)}, .a = slice(i), .y = slice(i + 1)};
      });
    case ScaledShape::random_arena: {
      const uint64_t lane = std::max<uint64_t>(nodes, 4) * kSlice;  // so that the five do not overlap
      declare_arena(g, 5 * std::max<uint64_t>(nodes, 4));
      return each_node([&](size_t) {
        const auto anywhere = [&](uint64_t of) { return at(of * lane + random() % (lane / 256 - 4) * 256); };
        return ScaledArgs{.a = anywhere(0), .b = anywhere(1), .c = anywhere(2), .d = anywhere(3), .y = anywhere(4)};
      });
    }
    case ScaledShape::bodies: {
      const size_t switches = std::max<size_t>(nodes / (kBodies * kNodesOfBody), 1), weights = switches * kBodies * 3;
      declare_slices(g, weights + 2);
      const View<float> x = slice(weights), y = slice(weights + 1);
      for (size_t s = 0; s < switches; ++s) {
        std::vector<GraphBuilder::Body> bodies;
        for (size_t b = 0; b < kBodies; ++b)
          bodies.push_back([&, first = (s * kBodies + b) * kNodesOfBody](GraphBuilder& body) {
            for (size_t i = 0; i < kNodesOfBody; ++i)
              launch(body, numbered("w", i),
                     {.w = Weight<float>{slice(first + i).data, kSlice / sizeof(float)},
                      .a = i == 2 ? y : x,
                      .y = i == 2 ? x : y});
          });
        g.switch_case(numbered("s", s), g.condition(numbered("route", s), 0), bodies);
      }
      return;
    }
    case ScaledShape::conditionals:
      declare_slices(g, 2);
      for (size_t i = 0; i < std::min(nodes, kMostConditions * 2); i += 2)
        g.if_else(numbered("if", i), g.condition(numbered("which", i), 1),
                  [&](GraphBuilder& body) { launch(body, "pass", {.a = slice(0), .y = slice(1)}); });
      return;
    case ScaledShape::loops:
      declare_slices(g, 2);
      for (size_t i = 0; i < nodes; ++i) {
        launch(g, numbered("n", i), {.a = slice(i % 2), .y = slice(1 - i % 2)});
        if (i % kNodesPerLoop != kNodesPerLoop - 1) continue;
        const ConditionHandle again = g.condition(numbered("again", i), 1);
        g.while_loop(numbered("loop", i), again, [&](GraphBuilder& body) {
          body.launch("pass", loop_kernel_, {.a = slice(0), .y = slice(1), .again = again});
        });
      }
      return;
  }
}

}  // namespace nodewright
