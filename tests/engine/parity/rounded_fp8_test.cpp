// Weights rounded to FP8 while they load, against a checkpoint that `nodewright quantize` has rounded.
#include "models/weights/quantize/quantized_checkpoint.h"
#include "tests/engine/adapters/written_adapter.h"
#include "tests/engine/parity/fp8_checkpoint.h"
#include "tests/engine/sleeper.h"

namespace nodewright {
namespace {

using namespace test;

class RoundedFp8 : public testing::Test {
 protected:
  RoundedFp8() { quantize_checkpoint(plain_.in_bf16(), rounded(), QuantizedFormat::fp8_row, 2); }
  std::string rounded() const { return (scratch_.path() / "rounded").string(); }

  std::vector<Logits> logits_of_model(LoadedModel& loaded, int64_t bucket) const {
    DecoderOptions options = decoder_options(bucket);
    options.sequences = bucket;
    Decoder decoder = loaded.decoder(options);
    return forced_logits(decoder, loaded, prompt_, continuation_);
  }
  void load(LoadedModel& loaded, const std::string& folder, const LoadOptions& options) const {
    loaded.model = DecoderModel::load(loaded.device, loaded.stream, folder, {}, options);
  }

  const Fp8Checkpoint plain_{true};  // scales of blocks: rows have other ones
  const ScratchFolder scratch_;
  const Tokens prompt_ = some_tokens(20, static_cast<size_t>(Fp8Checkpoint::kVocab), 3),
               continuation_ = some_tokens(3, static_cast<size_t>(Fp8Checkpoint::kVocab), 4);
};

TEST_F(RoundedFp8, HasTheBitsOfTheCheckpointThatWasQuantized) {
  LoadedModel loaded(rounded());
  const WeightLayouts layouts = loaded.model.config().layouts;
  const uint64_t bytes_per_token = loaded.model.weights().bytes_per_token();
  std::vector<std::vector<Logits>> stored;
  for (const int64_t bucket : {1, 8, 40}) stored.push_back(logits_of_model(loaded, bucket));
  load(loaded, plain_.in_bf16(), {.rounds_to_fp8 = true});
  EXPECT_TRUE(layouts.down.is_fp8() && !layouts.down.in_blocks);
  EXPECT_EQ(loaded.model.config().layouts, layouts);
  EXPECT_EQ(loaded.model.weights().bytes_per_token(), bytes_per_token);
  for (size_t i = 0; const int64_t bucket : {1, 8, 40})
    EXPECT_TRUE(same_bits(logits_of_model(loaded, bucket), stored[i++])) << bucket << " rows";
}

TEST_F(RoundedFp8, IsRoundedOnceWithAMergedAdapter) {
  const ScratchFolder adapter;
  write_adapter(adapter.path(), read_model_config(plain_.in_bf16()), 8, 5, 0.05f);
  LoadedModel loaded(plain_.in_bf16());
  load(loaded, plain_.in_bf16(), {.merged = {adapter.path()}});
  const std::vector<Logits> in_bf16 = logits_of_model(loaded, 1);
  load(loaded, plain_.in_bf16(), {.rounds_to_fp8 = true, .merged = {adapter.path()}});
  EXPECT_TRUE(loaded.model.config().layouts.qkv.is_fp8());
  const std::vector<Logits> merged = logits_of_model(loaded, 1);
  load(loaded, plain_.in_bf16(), {.rounds_to_fp8 = true});
  EXPECT_LT(relative_error(merged, in_bf16), 0.2 * relative_error(logits_of_model(loaded, 1), in_bf16));
}

TEST_F(RoundedFp8, ServesTheSameTokensAfterSleep) {
  const std::map<RequestId, Tokens> in_bf16 = Sleeper(plain_.in_bf16()).served(), stored = Sleeper(rounded()).served();
  Sleeper on(plain_.in_bf16(), sleep_options(), test_device(), {.rounds_to_fp8 = true});
  EXPECT_EQ(on.served(), stored);
  EXPECT_NE(stored, in_bf16);
  expect_served_after_sleep(on, stored);
}

TEST_F(RoundedFp8, HasDrawnWeightsToo) {
  LoadedModel loaded(plain_.in_bf16());
  load(loaded, plain_.in_bf16(), {.draws_weights = true});
  const std::vector<Logits> in_bf16 = logits_of_model(loaded, 1);
  load(loaded, plain_.in_bf16(), {.draws_weights = true, .rounds_to_fp8 = true});
  EXPECT_TRUE(loaded.model.config().layouts.gate_up.is_fp8());
  const double error = relative_error(logits_of_model(loaded, 1), in_bf16);
  EXPECT_GT(error, 0);
  EXPECT_LT(error, 0.15);  // a matrix loses 2.6 %
}

TEST_F(RoundedFp8, IsRefusedWhereItCannotBe) {
  LoadedModel loaded(plain_.in_bf16());
  const auto refused = [&](const std::string& folder, std::initializer_list<std::string_view> words) {
    expect_error([&] { load(loaded, folder, {.rounds_to_fp8 = true}); }, words);
  };
  refused(plain_.in_fp8(), {"stored as fp8, blocks of 128 x 128", "--quantization"});
  refused(golden_folder("gpt2/exacting").string(), {"inputs first"});
}

}  // namespace
}  // namespace nodewright
