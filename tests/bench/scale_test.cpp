// Plans of many nodes cost steps and bytes in proportion to their nodes: counted, so that no machine is too slow.
#include <gtest/gtest.h>
#include <malloc.h>

#include <cmath>
#include <string>
#include <utility>

#include "bench/graph/scaled_plan.h"
#include "graph/edges/graph_work.h"
#include "runtime/device_selection.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

constexpr size_t kFew = 5000, kMany = 20000;
constexpr double kMostExponent = 1.3;
constexpr uint64_t kMostBytesOfNode = 5 << 10;  // with its name and arguments; bodies take the most, 4 KB

struct Cost {
  uint64_t work = 0, bytes = 0;
};

template <class AddNodes>
Cost cost_of(Device& device, const AddNodes& add_nodes) {
  const auto in_use = [] {
    const struct mallinfo2 heap = mallinfo2();
    return heap.uordblks + heap.hblkhd;
  };
  const uint64_t work = graph_work, bytes = in_use();
  GraphBuilder g(device, "scaled");
  add_nodes(g);
  const Plan plan = std::move(g).finish();
  return {graph_work - work, in_use() - bytes};
}

double exponent(uint64_t few, uint64_t many) {
  return std::log(static_cast<double>(many) / static_cast<double>(few)) /
         std::log(static_cast<double>(kMany) / static_cast<double>(kFew));
}

class GraphScale : public testing::Test {
 protected:
  OpenedDevice opened_ = open_device(test::test_device());
  ScaledPlans plans_{*opened_.device};
};

TEST_F(GraphScale, StepsAndBytesGrowLikeTheNodes) {
  for (const ScaledShape shape : kScaledShapes) {
    const auto cost = [&](size_t nodes) {
      return cost_of(*opened_.device, [&](GraphBuilder& g) { plans_.add_to(g, shape, nodes); });
    };
    const Cost few = cost(kFew), many = cost(shape == ScaledShape::conditionals ? kMany / 2 : kMany);
    EXPECT_LT(exponent(few.work, many.work), kMostExponent)
        << to_string(shape) << ": " << few.work << ", " << many.work;
    EXPECT_LT(exponent(few.bytes, many.bytes), kMostExponent) << to_string(shape);
    EXPECT_LT(few.bytes / kFew, kMostBytesOfNode) << to_string(shape);
  }
}

// Each fill of the whole arena follows all writes of its slices, and each write follows all of those: that is
// quadratic.
TEST_F(GraphScale, AQuadraticPlanIsFound) {
  const auto add = [](size_t nodes) {
    return [nodes](GraphBuilder& g) {
      g.declare({"arena", uint64_t{1} << 40, nodes * 4, "activation"}, {.live_in = true});
      g.declare({"sink", uint64_t{1} << 41, nodes * 4, "activation"}, {.live_in = true});
      const auto view = [](uint64_t at, uint64_t count) { return View<float>{reinterpret_cast<float*>(at), count}; };
      for (size_t i = 0; i < nodes / 8; ++i) {
        g.fill("slice" + std::to_string(i), view((uint64_t{1} << 40) + 4 * i, 1), 0.0f);
        g.copy("all" + std::to_string(i), view(uint64_t{1} << 41, nodes), view(uint64_t{1} << 40, nodes), nodes * 4);
      }
    };
  };
  const Cost few = cost_of(*opened_.device, add(kFew)), many = cost_of(*opened_.device, add(kMany));
  EXPECT_GT(exponent(few.work, many.work), kMostExponent);
}

}  // namespace
}  // namespace nodewright
