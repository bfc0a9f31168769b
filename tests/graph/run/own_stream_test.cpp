// A graph that runs on its own stream: builder, graph and results without a stream of the caller.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "graph/graph_builder.h"
#include "graph/graph_exec.h"
#include "runtime/device_selection.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

TEST(OwnStreamTest, ReturnsWhenTheRunHasEnded) {
  const OpenedDevice device = open_device(test::test_device());
  const DeviceArray<uint32_t> x(device, "x", 1000), y(device, "y", 1000);
  GraphBuilder g(device, "run");
  g.fill("sevens", x, 7u);
  g.copy("copy", y, x, x.bytes());
  ExplicitGraph graph = std::move(g).instantiate();
  graph.run();
  EXPECT_EQ(y.read(), std::vector<uint32_t>(1000, 7));
  y.write(std::vector<uint32_t>(1000, 1));
  graph.run();
  EXPECT_EQ(y.read(), std::vector<uint32_t>(1000, 7));
}

TEST(OwnStreamTest, KeepsTheEdgePolicy) {
  const OpenedDevice device = open_device(test::test_device());
  const DeviceArray<uint32_t> x(device, "x", 8), y(device, "y", 8);
  GraphBuilder g(device, "serial");
  g.fill("x", x, 1u);
  g.fill("y", y, 2u);
  EXPECT_EQ(std::move(g).instantiate(EdgePolicy::serial).plan().edges.size(), 1u);
}

TEST(OwnStreamTest, NamesABufferThatWasFreed) {
  const OpenedDevice device = open_device(test::test_device());
  std::optional<DeviceArray<uint32_t>> x;
  x.emplace(device, "short_lived", 8);
  GraphBuilder g(device, "run");
  g.fill("fill", *x, 1u);
  ExplicitGraph graph = std::move(g).instantiate();
  x.reset();
  expect_error([&] { graph.run(); }, {"short_lived"});
}

}  // namespace
}  // namespace nodewright
