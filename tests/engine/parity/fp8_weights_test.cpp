// A checkpoint in FP8 against the same weights in bf16: with scales that are powers of two both hold the same numbers,
// so that logits differ by the order of sums alone.
#include "tests/engine/parity/fp8_checkpoint.h"

namespace nodewright {
namespace {

using namespace test;

// The logits of some tokens after a prompt, in steps of each of these numbers of rows.
struct Steps {
  std::vector<std::vector<Logits>> logits;
  WeightLayouts layouts;
  uint64_t bytes_per_token = 0;
};
Steps steps_of(const std::string& folder, const std::vector<int64_t>& buckets, size_t prompt_tokens) {
  LoadedModel loaded(folder);
  const Tokens prompt = some_tokens(prompt_tokens, loaded.vocab(), 3), continuation = some_tokens(3, loaded.vocab(), 4);
  Steps steps{{}, loaded.model.config().layouts, loaded.model.weights().bytes_per_token()};
  for (const int64_t bucket : buckets) {
    DecoderOptions options = decoder_options(bucket);
    options.sequences = bucket, options.prefill_rows = std::max<int64_t>(bucket, 8);
    Decoder decoder = loaded.decoder(options);
    steps.logits.push_back(forced_logits(decoder, loaded, prompt, continuation));
  }
  return steps;
}

class Fp8Weights : public testing::TestWithParam<bool> {};

// One row, rows in tiles and held, and products of the library; the prompt in all of them.
TEST_P(Fp8Weights, GiveTheLogitsOfTheSameWeightsInBf16) {
  const Fp8Checkpoint checkpoint(GetParam());
  const std::vector<int64_t> buckets = {1, 4, 8, 24, 40};
  const Steps fp8 = steps_of(checkpoint.in_fp8(), buckets, 9), bf16 = steps_of(checkpoint.in_bf16(), buckets, 9);
  for (const WeightLayout& layout : {fp8.layouts.qkv, fp8.layouts.out, fp8.layouts.gate_up, fp8.layouts.down}) {
    EXPECT_TRUE(layout.is_fp8());
    EXPECT_EQ(layout.in_blocks, GetParam());
  }
  EXPECT_LT(fp8.bytes_per_token, bf16.bytes_per_token * 6 / 10);
  for (size_t i = 0; i < buckets.size(); ++i)
    EXPECT_LE(relative_error(fp8.logits[i], bf16.logits[i]), 0.01) << buckets[i] << " rows";
}

TEST_P(Fp8Weights, AreDequantizedWhereSomeLayerHasTheMatrixInBf16) {
  const Fp8Checkpoint checkpoint(GetParam(), "model.layers.1.self_attn.o_proj");
  const Steps fp8 = steps_of(checkpoint.in_fp8(), {1}, 5), bf16 = steps_of(checkpoint.in_bf16(), {1}, 5);
  EXPECT_FALSE(fp8.layouts.out.is_fp8());
  EXPECT_TRUE(fp8.layouts.down.is_fp8());
  EXPECT_LE(relative_error(fp8.logits[0], bf16.logits[0]), 0.01);
}

TEST_P(Fp8Weights, WithANaNAreRefused) {
  const Fp8Checkpoint checkpoint(GetParam(), "", "model.layers.1.mlp.up_proj");
  EXPECT_THROW(LoadedModel(checkpoint.in_fp8()), Error);
}

TEST_P(Fp8Weights, ModesChangeNoBit) {
  const Fp8Checkpoint checkpoint(GetParam());
  LoadedModel loaded(checkpoint.in_fp8());
  const Tokens prompt = some_tokens(20, loaded.vocab(), 3), continuation = some_tokens(3, loaded.vocab(), 4);
  for (const int64_t bucket : {1, 8, 40}) {
    std::vector<Logits> first;
    for (const RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
      DecoderOptions options = decoder_options(bucket, mode);
      options.sequences = bucket;
      Decoder decoder = loaded.decoder(options);
      const std::vector<Logits> rows = forced_logits(decoder, loaded, prompt, continuation);
      if (first.empty()) first = rows;
      EXPECT_TRUE(same_bits(rows, first)) << bucket << " rows, mode " << static_cast<int>(mode);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Scales, Fp8Weights, testing::Bool(),
                         [](const auto& info) { return info.param ? "of_blocks" : "of_rows"; });

}  // namespace
}  // namespace nodewright
