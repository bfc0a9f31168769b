#include "bench/graph/saxpy_graph.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <utility>

#include "graph/graph_exec.h"
#include "graph/hazard_check.h"
#include "graph/run/eager_run.h"
#include "runtime/device_selection.h"
#include "runtime/stream.h"
#include "tests/support/test_device.h"

namespace nodewright::test {
namespace {

using Pairs = std::set<std::pair<uint32_t, uint32_t>>;

class SaxpyGraphs : public ::testing::Test {
 protected:
  SaxpyGraph graph(GraphShape shape, int nodes, KernelWidth width = KernelWidth::tiny) {
    return {device_, kernels_, shape, width, nodes};
  }
  static Pairs edges_of(const Plan& plan) {
    Pairs pairs;
    for (const Edge& edge : plan.edges) pairs.emplace(edge.from, edge.to);
    return pairs;
  }

  OpenedDevice opened_ = open_device(test_device());
  Device& device_ = *opened_.device;
  KernelCache kernels_{device_};
  Stream stream_{device_, "test"};
};

TEST_F(SaxpyGraphs, AChainHasOneEdgeFromEachNodeToTheNext) {
  for (const int nodes : {1, 2, 25}) {
    const Plan plan = graph(GraphShape::chain, nodes).plan(EdgePolicy::programmatic, 1.0f);
    Pairs expected;
    for (uint32_t i = 1; i < static_cast<uint32_t>(nodes); ++i) expected.emplace(i - 1, i);
    EXPECT_EQ(plan.nodes.size(), static_cast<size_t>(nodes));
    EXPECT_EQ(edges_of(plan), expected);
    EXPECT_TRUE(std::all_of(plan.edges.begin(), plan.edges.end(),
                            [](const Edge& edge) { return edge.type == EdgeType::programmatic; }));
  }
}

TEST_F(SaxpyGraphs, AForkGoesToEightBranchesAndAJoinComesFromAllOfThem) {
  const Plan plan = graph(GraphShape::fork_join, 21).plan(EdgePolicy::full, 1.0f);  // the last fork has two branches
  Pairs expected;
  for (const uint32_t fork : {0u, 9u})
    for (uint32_t branch = 1; branch <= kBranches; ++branch) {
      expected.emplace(fork, fork + branch);
      expected.emplace(fork + branch, fork + 9);
    }
  expected.emplace(18, 19);
  expected.emplace(18, 20);
  EXPECT_EQ(edges_of(plan), expected);
  EXPECT_TRUE(missing_orders(plan).empty());
  for (const Edge& edge :
       plan.edges)  // data goes along every edge; that the join overwrites what branches read is more
    EXPECT_TRUE(std::any_of(edge.reasons.begin(), edge.reasons.end(),
                            [](const Reason& reason) { return reason.hazard == Hazard::raw; }))
        << edge.from << " -> " << edge.to;
}

TEST_F(SaxpyGraphs, AFullKernelHasABlockForEverySmAndATinyOneThirtyTwoThreads) {
  const LaunchShape full = graph(GraphShape::chain, 1, KernelWidth::full).plan(EdgePolicy::full, 1.0f).nodes[0].shape;
  EXPECT_EQ(full, launch_shape_1d(static_cast<unsigned>(device_.properties().sm_count), 256));
  EXPECT_EQ(graph(GraphShape::chain, 1).plan(EdgePolicy::full, 1.0f).nodes[0].shape, launch_shape_1d(1, 32));
}

TEST_F(SaxpyGraphs, AChainAddsItsStepOncePerNode) {
  SaxpyGraph chain = graph(GraphShape::chain, 12, KernelWidth::full);
  run_eager(chain.plan(EdgePolicy::full, 2.0f), stream_);
  stream_.synchronize();
  const std::vector<float> values = chain.values();
  const size_t trunk = values.size() / (1 + kBranches);
  EXPECT_EQ(std::vector<float>(values.begin(), values.begin() + static_cast<ptrdiff_t>(trunk)),
            std::vector<float>(trunk, 1.0f + 12 * 2.0f));
  EXPECT_EQ(std::count(values.begin(), values.end(), 1.0f), static_cast<ptrdiff_t>(kBranches * trunk));
}

TEST_F(SaxpyGraphs, AForkAddsTheTrunkToItsBranchesAndAJoinTheFirstBranchToTheTrunk) {
  SaxpyGraph fork = graph(GraphShape::fork_join, 10);
  run_eager(fork.plan(EdgePolicy::full, 2.0f), stream_);
  stream_.synchronize();
  const std::vector<float> values = fork.values();
  // The trunk 1 + 2 * 1 = 3, every branch 1 + 2 * 3 = 7, the trunk again 3 + 2 * 7.
  EXPECT_EQ(values.front(), 17.0f);
  for (size_t i = values.size() / (1 + kBranches); i < values.size(); ++i) ASSERT_EQ(values[i], 7.0f) << i;
}

TEST_F(SaxpyGraphs, ALoopDoesItsRoundsAndNoMore) {
  SaxpyGraph chain = graph(GraphShape::chain, 3);
  for (const EdgePolicy policy : {EdgePolicy::full, EdgePolicy::programmatic}) {
    chain.reset();
    ExplicitGraph loop(chain.loop(policy, 1.0f, 5));
    loop.upload(stream_);
    loop.launch(stream_);
    stream_.synchronize();
    EXPECT_EQ(chain.rounds_done(), 5);
    EXPECT_EQ(chain.values().front(), 1.0f + 5 * 3);
  }
}

TEST_F(SaxpyGraphs, NoNodesAreRefused) { EXPECT_THROW(graph(GraphShape::chain, 0), Error); }

}  // namespace
}  // namespace nodewright::test
