// FP8 weights beside what else an engine does: adapters, invariant numerics, stages of a pipeline, ranks of a team,
// sleep.
#include <map>

#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/adapters/written_adapter.h"
#include "tests/engine/parity/fp8_checkpoint.h"
#include "tests/engine/sleeper.h"
#include "tests/engine/stages/stages_decoder.h"

namespace nodewright {
namespace {

using namespace test;

class Fp8Options : public testing::TestWithParam<bool> {
 protected:
  Fp8Options() : checkpoint_(GetParam()) {}
  Fp8Checkpoint checkpoint_;
  const Tokens prompt_ = some_tokens(20, static_cast<size_t>(Fp8Checkpoint::kVocab), 3),
               continuation_ = some_tokens(3, static_cast<size_t>(Fp8Checkpoint::kVocab), 4);
};

// Rows one by one, in tiles, in held tiles of one group and of two, and products of the library.
TEST_P(Fp8Options, GiveTheLogitsOfBf16WithAnAdapter) {
  const ScratchFolder adapter;
  write_adapter(adapter.path(), read_model_config(checkpoint_.in_bf16()), 8, 5, 0.05f);
  const auto logits = [&](const std::string& folder, int64_t bucket, bool adapted) {
    LoadedModel loaded(folder);
    DecoderOptions options = decoder_options(bucket);
    options.sequences = bucket, options.adapters = adapter_limits(1, 8);
    Decoder decoder = loaded.decoder(options);
    load_adapter(decoder, loaded, 0, adapter.path());
    return adapted_logits(decoder, loaded, adapted ? 0 : -1, prompt_, continuation_);
  };
  for (const int64_t bucket : GetParam() ? std::vector<int64_t>{1, 8, 40} : std::vector<int64_t>{1, 4, 24, 72}) {
    const std::vector<Logits> fp8 = logits(checkpoint_.in_fp8(), bucket, true);
    EXPECT_LE(relative_error(fp8, logits(checkpoint_.in_bf16(), bucket, true)), 0.01) << bucket << " rows";
    EXPECT_GT(relative_error(fp8, logits(checkpoint_.in_fp8(), bucket, false)), 0.03) << bucket << " rows";
  }
}

TEST_P(Fp8Options, HaveTheSameBitsInEveryStepWithInvariantNumerics) {
  LoadedModel loaded(checkpoint_.in_fp8());
  std::vector<Logits> first;
  for (const auto& [bucket, chunk] : {std::pair{1, 8}, {2, 1}, {8, 3}, {40, 40}, {72, 16}}) {
    DecoderOptions options = decoder_options(bucket);
    options.sequences = bucket, options.prefill_rows = chunk, options.numerics = Numerics::invariant;
    Decoder decoder = loaded.decoder(options);
    const std::vector<Logits> rows = forced_logits(decoder, loaded, prompt_, continuation_);
    if (first.empty()) first = rows;
    EXPECT_TRUE(same_bits(rows, first)) << bucket << " rows, chunks of " << chunk;
  }
}

TEST_P(Fp8Options, ServeTheSameTokensAfterSleep) {
  Sleeper on(checkpoint_.in_fp8());
  expect_served_after_sleep(on, on.served());
}

// Tokens do not depend on how many guesses a step checks.
TEST_P(Fp8Options, ServeTheSameTokensWithGuesses) {
  const auto served = [&](int guesses) {
    EngineOptions options = sleep_options();
    options.numerics = Numerics::invariant, options.speculate = guesses;
    return Sleeper(checkpoint_.in_fp8(), options).served();
  };
  EXPECT_EQ(served(4), served(0));
}

class Fp8Parts : public Fp8Options {};

TEST_P(Fp8Parts, HaveTheBitsOfOneDeviceInStages) {
  // The last layer has a matrix in bf16, so that the first one's is dequantized.
  const Fp8Checkpoint mixed(GetParam(), "model.layers.1.mlp.down_proj");
  for (const bool is_mixed : {false, true})
    for (const int64_t rows : {1, 8, 40}) {
      std::vector<Logits> first;
      for (const int count : {1, 2}) {
        LoadedStages loaded((is_mixed ? mixed : checkpoint_).in_fp8(), count, test_device());
        for (const DecoderModel& model : loaded.models) {
          EXPECT_TRUE(model.config().layouts.out.is_fp8());
          EXPECT_NE(model.config().layouts.down.is_fp8(), is_mixed);
        }
        const std::vector<Logits> all = StagesDecoder(loaded, rows).forced(prompt_, continuation_, true);
        if (count == 1) first = all;
        EXPECT_TRUE(same_bits(all, first)) << rows << " rows";
      }
    }
}

// Matrices whose ranks would have a part of a block, or columns that are no whole words, are bf16 on all ranks.
TEST_P(Fp8Parts, GiveTheLogitsOfBf16InATeam) {
  for (const int64_t rows : {1, 8}) {
    std::vector<std::vector<Logits>> all;
    for (const std::string& folder : {checkpoint_.in_fp8(), checkpoint_.in_bf16()}) {
      LoadedTeam team(folder, 2, test_device());
      for (const DecoderModel& model : team.models) {
        const WeightLayouts& layouts = model.config().layouts;
        EXPECT_EQ(layouts.out.is_fp8(), folder == checkpoint_.in_fp8());
        EXPECT_EQ(layouts.qkv.is_fp8(), folder == checkpoint_.in_fp8() && !GetParam());
        EXPECT_FALSE(layouts.down.is_fp8());
      }
      all.push_back(agreed(TeamDecoder(team, rows).forced(prompt_, continuation_)));
    }
    EXPECT_LE(relative_error(all[0], all[1]), 0.01) << rows << " rows";
  }
}

std::string name_of_scales(const testing::TestParamInfo<bool>& info) { return info.param ? "of_blocks" : "of_rows"; }
INSTANTIATE_TEST_SUITE_P(Scales, Fp8Options, testing::Bool(), name_of_scales);
INSTANTIATE_TEST_SUITE_P(TwoDevices, Fp8Parts, testing::Bool(), name_of_scales);

}  // namespace
}  // namespace nodewright
