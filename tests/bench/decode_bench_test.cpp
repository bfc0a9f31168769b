// The bytes that a decode step is measured by.
#include "bench/steps/decode_bench.h"

#include <gtest/gtest.h>

namespace nodewright {
namespace {

ModelConfig windowed_config() {  // 256 bytes of keys and values a token and layer
  ModelConfig config;
  config.layers = 6, config.kv_heads = 2, config.head_dim = 32;
  config.window = 512;
  config.sliding = {true, true, true, true, true, false};
  return config;
}

TEST(DecodeBench, CountsTheKeysThatAWindowedLayerReads) {
  ModelConfig config = windowed_config();
  EXPECT_EQ(kv_bytes_of_step(config, 8, 1024, 1), 8u * 256 * (5 * 512 + 1024));
  EXPECT_EQ(kv_bytes_of_step(config, 8, 300, 1), 8u * 256 * 6 * 300);
  config.sliding.clear();
  EXPECT_EQ(kv_bytes_of_step(config, 8, 1024, 1), 8u * 256 * 6 * 1024);
}

TEST(DecodeBench, CountsTheMeanOfTheStepsOfALaunch) {
  const ModelConfig config = windowed_config();
  // 511 to 514 keys: windows are full from the second step on.
  EXPECT_EQ(kv_bytes_of_step(config, 1, 511, 4), 256u * (5 * (511 + 3 * 512) + 511 + 512 + 513 + 514) / 4);
}

}  // namespace
}  // namespace nodewright
