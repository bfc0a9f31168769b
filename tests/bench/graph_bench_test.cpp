#include "bench/graph/graph_bench.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bench/alternation.h"
#include "bench/graph/model_graph_bench.h"
#include "runtime/device_selection.h"
#include "tests/support/test_device.h"

namespace nodewright::test {
namespace {

TEST(Alternation, EveryVariantGoesFirstInTurnAndWarmUpIsNotCounted) {
  std::string turns;
  const auto variant = [&](char upper, char lower) {
    return [&turns, upper, lower](bool counted) { turns += counted ? upper : lower; };
  };
  const std::vector<std::function<void(bool)>> variants = {variant('A', 'a'), variant('B', 'b'), variant('C', 'c')};
  SteadyCore core;
  alternate(variants, 1, 3, core);
  EXPECT_EQ(turns, "abcBCACABABC");
}

TEST(GraphBench, EveryFigureOfACaseIsMeasuredAndPositive) {
  const OpenedDevice opened = open_device(test_device());
  Device& device = *opened.device;
  const Stream stream(device, "test");
  KernelCache kernels(device);
  for (const GraphShape shape : {GraphShape::chain, GraphShape::fork_join}) {
    const GraphBenchLine line =
        bench_graph(device, stream, kernels, {shape, KernelWidth::tiny, 11}, {.repetitions = 2, .nodes_a_sample = 22});
    for (size_t i = 0; i < line.us.size(); ++i) {
      const auto figure = static_cast<GraphFigure>(i);
      const bool is_of_a_chain = figure >= GraphFigure::loop_full;  // loops and foreign kernels
      EXPECT_EQ(line.has(figure), !is_of_a_chain || shape == GraphShape::chain) << to_string(figure);
      if (!line.has(figure)) continue;
      EXPECT_GT(line[figure].median, 0.0) << to_string(figure);
      EXPECT_LE(line[figure].least, line[figure].median) << to_string(figure);
      EXPECT_GE(line[figure].most, line[figure].median) << to_string(figure);
    }
    EXPECT_EQ(line.update_problem, "");
    EXPECT_EQ(line.edges, line.programmatic_edges);  // saxpy waits for its inputs
  }
}

// The CPU driver's free memory does not fall when graphs are made, which must read as "not seen", not as a figure.
TEST(GraphBenchOnCpuDriver, MemoryThatDoesNotFallIsNoFigure) {
  const OpenedDevice opened = open_device("cpu");
  const Stream stream(*opened.device, "test");
  KernelCache kernels(*opened.device);
  KeptGraphs kept;
  EXPECT_EQ(bytes_per_exec(*opened.device, stream, kernels, {GraphShape::chain, KernelWidth::tiny, 3}, 4, kept), 0.0);
  EXPECT_EQ(kept.size(), 4u);
}

}  // namespace
}  // namespace nodewright::test
