// What --numerics promises: invariant, a row has the same bits in every bucket and however its prompt is cut.
#include <gtest/gtest.h>

#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

using test::Decoder;

class NumericsOf : public testing::TestWithParam<const char*> {
 protected:
  std::vector<test::Logits> logits(int64_t bucket, int64_t prefill_rows, Numerics numerics) {
    Decoder decoder = loaded_.decoder({.bucket = bucket,
                                       .prefill_rows = prefill_rows,
                                       .max_context = 256,
                                       .sequences = 1,
                                       .numerics = numerics,
                                       .keep_logits = true});
    return test::forced_logits(decoder, loaded_, test::some_tokens(220, loaded_.vocab(), 5),
                               test::some_tokens(4, loaded_.vocab(), 6));
  }
  test::LoadedModel loaded_{GetParam()};
};

TEST_P(NumericsOf, InvariantGiveTheSameBitsInEveryBucketAndChunk) {
  const std::vector<test::Logits> one = logits(1, 8, Numerics::invariant);
  EXPECT_TRUE(test::same_bits(logits(8, 1, Numerics::invariant), one));
  EXPECT_TRUE(test::same_bits(logits(3, 3, Numerics::invariant), one));
}

// What would else make the difference: over how many blocks a row's keys are split.
TEST_P(NumericsOf, InvariantSplitARowsKeysAlike) {
  const ModelConfig& config = loaded_.model.config();
  DeviceProperties device = loaded_.device.properties();
  device.sm_count = 132;  // room for several blocks a row, whatever the heads
  const auto splits = [&](int64_t rows, Numerics numerics) {
    return attention_splits(config, {rows, numerics}, device);
  };
  EXPECT_GT(splits(1, Numerics::fast), splits(64, Numerics::fast));
  EXPECT_GT(splits(1, Numerics::invariant), 1);
  for (const int64_t rows : {1, 2, 8, 64, 512})
    EXPECT_EQ(splits(rows, Numerics::invariant), splits(1, Numerics::invariant)) << rows << " rows";
}

INSTANTIATE_TEST_SUITE_P(Golden, NumericsOf,
                         testing::Values("llama/one_kv_head", "qwen3/normed_heads", "gemma3/window_16",
                                         "gpt2/learned_positions"),
                         [](const auto& info) {
                           return std::string(info.param).substr(0, std::string(info.param).find('/'));
                         });

}  // namespace
}  // namespace nodewright
