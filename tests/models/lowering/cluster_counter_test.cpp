// Clusters that run at once, and kernels whose blocks come in as many.
#include "models/lowering/cluster_counter.h"

#include <gtest/gtest.h>

#include "models/lowering/decoder_kernels.h"
#include "runtime/device_selection.h"

namespace nodewright {
namespace {

class ClusterCounterOnCpuDriver : public testing::Test {
 protected:
  OpenedDevice opened_ = open_device("cpu:sms=20");
  KernelCache kernels_{*opened_.device};
};

TEST_F(ClusterCounterOnCpuDriver, AsksForClustersWhoseBlocksHaveAnSmEach) {
  ClusterCounter counter(kernels_);
  EXPECT_EQ(counter.count(2), 10);
  EXPECT_EQ(counter.count(4), 5);
  EXPECT_EQ(counter.count(8), 2);
  EXPECT_EQ(counter.count(4), 5);
}

TEST_F(ClusterCounterOnCpuDriver, AStepHasAsManyAsTheDriverCounts) {
  ModelConfig config;
  config.hidden = 256, config.layers = 1, config.heads = 8, config.kv_heads = 2, config.head_dim = 32;
  config.intermediate = 512, config.vocab = 1000;
  StepTuning tuning;
  tuning.down.tile.splits = 4;
  const StepShape shape =
      step_shape(network_form(network_of(config)), 32, 32, kProductsFromRows, Numerics::fast, tuning);
  const DecoderKernels chosen = decoder_kernels(kernels_, config, shape);
  const LaunchShape& down = chosen.of_layer(0).back().loaded.kernels.back().second;
  EXPECT_EQ(down.cluster_blocks(), 4u);
  EXPECT_EQ(down.blocks(), 5u * 4);
}

// As on a card with fewer SMs in some of its groups.
TEST(Clusters, ALoweringHasNoMoreOfThemThanRunAtOnce) {
  ModelConfig config;
  config.hidden = 4096, config.layers = 1, config.heads = 32, config.kv_heads = 8, config.head_dim = 128;
  config.intermediate = 8192, config.vocab = 1000;
  const StepShape shape = step_shape(network_form(network_of(config)), 32, 32, kProductsFromRows, Numerics::fast);
  DeviceProperties device;
  device.cc_major = 9, device.sm_count = 114, device.shared_optin_bytes = 227 << 10;
  const auto down = [&](int64_t of_four) {
    const auto clusters = [&](int64_t blocks) { return blocks == 4 ? of_four : 114 / blocks; };
    return lower(network_of(config), {config, shape, device, clusters}).kinds[0].back().kernels.back().shape;
  };
  EXPECT_EQ(down(25).cluster_blocks(), 4u);
  EXPECT_EQ(down(25).blocks(), 25u * 4);
  EXPECT_EQ(down(27).blocks(), 27u * 4);
}

}  // namespace
}  // namespace nodewright
