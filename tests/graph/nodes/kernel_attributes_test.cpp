// What a kernel node may ask for beside its shape, and the limits of both.
#include <limits>

#include "graph/dump/graph_dump.h"
#include "graph/patch.h"
#include "tests/graph/blend_fixture.h"

namespace nodewright {
namespace {

class KernelAttributesTest : public BlendTest {
 protected:
  static constexpr uint64_t n = 1024;  // sixteen blocks

  Plan with(const KernelAttributes& attributes, const LaunchShape& shape = blend_shape(n)) {
    GraphBuilder g(device(), "attributes");
    declare_all(g);
    g.launch("first", machine().blend_of(n), {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
    g.launch("node", Kernel<Blend>{machine().blend.loaded, shape}, {.a = y_, .b = x_, .key = {}, .y = z_, .salt = 2},
             {.attributes = attributes});
    return std::move(g).finish(EdgePolicy::programmatic);
  }
  std::string refusal(const KernelAttributes& attributes, const LaunchShape& shape = blend_shape(n)) {
    return error_of([&] { with(attributes, shape); });
  }

  Words x_ = words("x", n), y_ = words("y", n), z_ = words("z", n);
};

TEST_F(KernelAttributesTest, EachAttributeReachesTheDriverInEveryRunAndChangesNoBit) {
  for (const KernelAttributes& attributes :
       {KernelAttributes{}, KernelAttributes{.cluster = {2, 1, 1}}, KernelAttributes{.cluster = {16, 1, 1}},
        KernelAttributes{.cooperative = true}, KernelAttributes{.priority = -1},
        KernelAttributes{.shared_carveout_percent = 0}, KernelAttributes{.shared_carveout_percent = 50},
        KernelAttributes{.cluster = {4, 1, 1}, .priority = -2, .shared_carveout_percent = 100}}) {
    if (attributes.cluster[0] != 1 && !has_clusters()) {
      expect_words(refusal(attributes), {"'node'", "clusters need compute capability 9.0"});
      continue;
    }
    // The CPU driver holds one block of a cooperative launch on each of its four SMs.
    expect_runs(with(attributes, blend_shape(attributes.cooperative ? n / 4 : n)), kAllRuns);
  }
}

TEST_F(KernelAttributesTest, AttributesPastALimitAreRefusedByNodeWithTheLimit) {
  if (has_clusters()) {
    expect_words(refusal({.cluster = {3, 1, 1}}), {"'node'", "cluster 3x1x1", "grid x is not a multiple"});
    expect_words(refusal({.cluster = {32, 1, 1}}), {"'node'", "1 to 16 blocks"});
    expect_words(refusal({.cluster = {0, 1, 1}}), {"'node'", "cluster 0x1x1"});
    expect_words(refusal({.cluster = {1, 2, 1}}), {"'node'", "grid y is not a multiple"});
  }
  expect_words(refusal({.shared_carveout_percent = 101}), {"'node'", "101 percent"});
  const DeviceProperties& properties = device().properties();
  const int first = properties.greatest_priority, last = properties.least_priority;
  const std::string range = std::to_string(first) + " (first) to " + std::to_string(last) + " (last)";
  for (const int priority : {first - 1, last + 1, std::numeric_limits<int>::min(), std::numeric_limits<int>::max()})
    expect_words(refusal({.priority = priority}),
                 {"'node'", "priority " + std::to_string(priority) + ":", properties.name, range});
  for (const int priority : {first, last}) EXPECT_EQ(refusal({.priority = priority}), "");
  const unsigned too_many = 33 * static_cast<unsigned>(device().properties().sm_count);
  expect_words(refusal({.cooperative = true}, launch_shape_1d(too_many, 64)), {"'node'", "cooperative", "at most"});
}

TEST_F(KernelAttributesTest, ShapesPastALimitAreRefusedByNodeWithTheLimit) {
  const auto shape = [](std::array<unsigned, 3> grid, std::array<unsigned, 3> block, unsigned shared = 0) {
    return LaunchShape{{grid[0], grid[1], grid[2]}, {block[0], block[1], block[2]}, shared};
  };
  expect_words(refusal({}, shape({0, 1, 1}, {64, 1, 1})), {"'node'", "grid x must be 1 to 2147483647"});
  expect_words(refusal({}, shape({1, 65536, 1}, {64, 1, 1})), {"'node'", "grid y must be 1 to 65535"});
  expect_words(refusal({}, shape({1, 1, 65536}, {64, 1, 1})), {"'node'", "grid z must be 1 to 65535"});
  expect_words(refusal({}, shape({1, 1, 1}, {1, 1, 65})), {"'node'", "block z must be 1 to 64"});
  expect_words(refusal({}, shape({1, 1, 1}, {128, 1, 1})), {"'node'", "kernel 'blend' takes at most 64 threads"});
  expect_words(refusal({}, shape({1, 1, 1}, {64, 1, 1}, 1u << 20)), {"'node'", "1048576 shared bytes", "static bytes"});
}

TEST_F(KernelAttributesTest, SharedBytesAndGridSurviveIntoTheGraph) {
  for (const unsigned shared_bytes : {1024u, 49152u, 100u * 1024}) {
    const LaunchShape shape = launch_shape_1d(7, kBlendThreads, shared_bytes);
    const auto probe = machine().kernels->kernel<SharedProbe>("shared_probe", shape);
    GraphBuilder g(device(), "shared");
    declare_all(g);
    g.launch("probe", probe, {.y = y_.subview(0, 7), .shared_bytes = shared_bytes});
    expect_runs(std::move(g).finish(EdgePolicy::full), kAllRuns);
    EXPECT_EQ(values(y_)[6], 7006u);
  }
}

TEST_F(KernelAttributesTest, APatchGrowsSharedMemoryAsFarAsTheKernelIsAllowed) {
  constexpr unsigned kSmall = 1024, kLarge = 100 * 1024;
  KernelCache kernels(device(), machine().options);
  const auto small = kernels.kernel<SharedProbe>("shared_probe", launch_shape_1d(7, kBlendThreads, kSmall));
  GraphBuilder g(device(), "grows");
  declare_all(g);
  const auto node = g.launch("probe", small, {.y = y_.subview(0, 7), .shared_bytes = kSmall});
  ExplicitGraph exec(std::move(g).finish(EdgePolicy::full));
  const LaunchShape large = launch_shape_1d(7, kBlendThreads, kLarge);
  const auto grow = [&] {
    PatchSet patches(exec);
    patches.shape(node, large);
    patches.set(node, &SharedProbe::shared_bytes, kLarge);
    patches.apply();
  };
  const std::initializer_list<std::string_view> words{"node 'probe'", "102400 bytes of dynamic shared memory",
                                                      "kernel 'shared_probe' is allowed 49152",
                                                      "KernelRequest::allow_shared"};
  expect_error(grow, words);
  expect_error([&] { exec.patch(node, Kernel<SharedProbe>{small.loaded, large}); }, words);
  kernels.get({.name = "shared_probe", .allow_shared = kLarge});
  grow();
  exec.launch(stream_);
  stream_.synchronize();
  EXPECT_EQ(values(y_)[6], 7006u);
  EXPECT_EQ(read_back(exec), std::vector<std::string>{});
}

TEST_F(KernelAttributesTest, AClusterInTheShapeOfAKernelIsThereInEveryRun) {
  for (const unsigned blocks : {1u, 2u, 8u}) {
    LaunchShape shape = launch_shape_1d(16, kBlendThreads, 64);
    shape.cluster[0] = blocks;
    const auto probe = machine().kernels->kernel<ClusterProbe>("cluster_probe", shape);
    GraphBuilder g(device(), "cluster");
    declare_all(g);
    const auto launch = [&](const KernelAttributes& attributes) {
      return g.launch("probe", probe, {.y = y_.subview(0, 16), .cluster_blocks = blocks}, {.attributes = attributes});
    };
    if (!has_clusters()) {
      if (blocks > 1) expect_words(error_of([&] { launch({}); }), {"'probe'", "clusters need compute capability 9.0"});
      continue;
    }
    if (blocks > 1)
      expect_words(error_of([&] { launch({.cluster = {4, 1, 1}}); }), {"'probe'", "and the attributes say 4x1x1"});
    const auto node = launch({});
    const Plan plan = std::move(g).finish(EdgePolicy::full);
    EXPECT_EQ(plan.nodes[node.index].attributes.cluster, (std::array{blocks, 1u, 1u}));
    EXPECT_EQ(to_text(plan).find(" cluster ") != std::string::npos, blocks > 1) << to_text(plan);
    expect_runs(plan, kAllRuns);
    ExplicitGraph exec(plan);
    PatchSet patches(exec);
    patches.shape(node, launch_shape_1d(8, kBlendThreads, 64));
    if (blocks == 1) continue;
    shape.cluster[0] = 4;
    expect_words(error_of([&] { patches.shape(node, shape); }), {"'probe'", "4x1x1"});
    expect_words(error_of([&] { patches.shape(node, launch_shape_1d(9, kBlendThreads, 64)); }),
                 {"'probe'", "grid x is not a multiple"});
  }
}

TEST_F(KernelAttributesTest, SharedMemoryThatTheKernelWasNotAllowedIsRefusedByTheDriverWithTheNodesName) {
  GraphBuilder g(device(), "refused");
  declare_all(g);
  const LaunchShape shape = launch_shape_1d(1, kBlendThreads, 60 * 1024);
  g.launch("probe", Kernel<Blend>{machine().hasty.loaded, shape}, {.a = x_, .b = x_, .key = {}, .y = y_, .salt = 1});
  const Plan plan = std::move(g).finish(EdgePolicy::full);
  expect_words(error_of([&] { ExplicitGraph exec(plan); }), {"'probe'", "add node"});
}

}  // namespace
}  // namespace nodewright
