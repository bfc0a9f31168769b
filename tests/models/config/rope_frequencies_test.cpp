// Rotary frequencies against transformers 5.23 (modeling_rope_utils.py, fp32) and the values of released models.
#include "models/config/rope_frequencies.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>

namespace nodewright {
namespace {

RopeConfig llama_3_2() { return {RopeType::llama3, 5e5, 32, 1, 4, 8192}; }

// Distance in representable floats; both positive.
int64_t ulps(float a, float b) { return std::abs(int64_t{std::bit_cast<int32_t>(a)} - std::bit_cast<int32_t>(b)); }

TEST(RopeFrequencies, OfLlama32MatchTransformers) {
  // python: ROPE_INIT_FUNCTIONS["llama3"](LlamaConfig(head_dim=64, ...), "cpu")[0].view(torch.int32)
  const std::vector<uint32_t> expected = {
      0x3f800000, 0x3f29e1c6, 0x3ee177bc, 0x3e959ee3, 0x3e4693b0, 0x3e03c6a0, 0x3daee4ad, 0x3d681e67,
      0x3d1a08c8, 0x3ccc6f49, 0x3c87a9c3, 0x3c340d6d, 0x3beef74f, 0x3b9e9402, 0x3b527720, 0x3aa9279b,
      0x39e13620, 0x38cb98f7, 0x37a3418d, 0x3758ac81, 0x370fc8f8, 0x36bed4f4, 0x367d45c3, 0x3628126b,
      0x35df10c4, 0x359406cb, 0x35447610, 0x35025f34, 0x34ad07a7, 0x3465a54d, 0x341864a7, 0x33ca41b0};
  const std::vector<float> found = rope_frequencies(llama_3_2(), 64);
  ASSERT_EQ(found.size(), expected.size());
  // torch's power and ours are each within an ulp or two of the true one; blending may double it.
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_LE(ulps(found[i], std::bit_cast<float>(expected[i])), 4) << "dimension " << i << " is " << found[i];
  EXPECT_NEAR(found[15], 1.29054793e-3, 5e-10);
  EXPECT_NEAR(found[31], 9.41830673e-8, 5e-14);
}

// python: ROPE_INIT_FUNCTIONS["dynamic"](config, "cpu", seq_len=n), theta 10000, factor 4, 128 positions, 8 of a head
TEST(RopeFrequencies, OfDynamicGrowTheBaseBeyondTheOriginalContext) {
  const RopeConfig dynamic{.type = RopeType::dynamic, .theta = 1e4, .factor = 4, .original = 128};
  const RopeConfig plain{.theta = 1e4};
  for (const int64_t within : {0, 1, 128}) EXPECT_EQ(rope_frequencies(dynamic, 8, within), rope_frequencies(plain, 8));
  const double base = 1e4 * std::pow(4.0 * 300 / 128 - 3, 8.0 / 6);
  const std::vector<float> found = rope_frequencies(dynamic, 8, 300);
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], 1 / std::pow(base, static_cast<double>(2 * i) / 8), 1e-6 * found[i]) << i;
}

TEST(RopeFrequencies, KeepShortWavesDivideLongOnesAndBlendBetween) {
  RopeConfig plain = llama_3_2();
  plain.type = RopeType::plain;
  const std::vector<float> scaled = rope_frequencies(llama_3_2(), 64), unscaled = rope_frequencies(plain, 64);
  for (size_t i = 0; i < 32; ++i) {
    const bool kept = scaled[i] == unscaled[i], divided = scaled[i] == unscaled[i] / 32;
    EXPECT_EQ(kept, i <= 14) << i;
    EXPECT_EQ(divided, i >= 18) << i;
    EXPECT_TRUE(scaled[i] <= unscaled[i] && scaled[i] >= unscaled[i] / 32) << i;
  }
}

TEST(RopeFrequencies, OfThePlainAndLinearTypesFollowTheFormula) {
  RopeConfig rope;
  const std::vector<float> plain = rope_frequencies(rope, 16);
  const std::vector<uint32_t> expected = {0x3f800000, 0x3ea1e89b, 0x3dcccccd, 0x3d0186e3,
                                          0x3c23d70a, 0x3b4f3e38, 0x3a83126f, 0x39a5cb60};
  ASSERT_EQ(plain.size(), expected.size());
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_LE(ulps(plain[i], std::bit_cast<float>(expected[i])), 2) << i;
  rope.type = RopeType::linear;
  rope.factor = 8;
  const std::vector<float> linear = rope_frequencies(rope, 16);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(linear[i], plain[i] / 8) << i;
}

}  // namespace
}  // namespace nodewright
