// Mixtures of experts whose matrices are FP8 or int4, against the same numbers in bf16: logits differ by the order of
// sums alone, and by what few rows of x lose in fp16.
#include "models/weights/quantize/quantized_checkpoint.h"
#include "tests/engine/parity/coded_checkpoint.h"

namespace nodewright {
namespace {

using namespace test;

class CodedExperts : public testing::TestWithParam<CodedCase> {
 protected:
  static DecoderOptions options_of(int64_t rows, RunMode mode = RunMode::explicit_) {
    DecoderOptions options = decoder_options(rows, mode);
    options.sequences = rows, options.prefill_rows = std::max<int64_t>(rows, 8);
    return options;
  }
  std::vector<Logits> logits_of(LoadedModel& loaded, const DecoderOptions& options) const {
    Decoder decoder = loaded.decoder(options);
    return forced_logits(decoder, loaded, prompt_, continuation_);
  }
  const CodedCheckpoint checkpoint_{GetParam()};
  const Tokens prompt_ = some_tokens(20, SmallNetwork::kVocab, 3),
               continuation_ = some_tokens(3, SmallNetwork::kVocab, 4);
};

TEST_P(CodedExperts, GiveTheLogitsOfTheSameWeightsInBf16) {
  const std::vector<int64_t> rows = {1, 4, 40};
  std::vector<std::vector<Logits>> coded;
  uint64_t of_a_token = 0, of_a_step = 0;
  {
    LoadedModel loaded(checkpoint_.coded());
    const WeightLayouts& layouts = loaded.model.config().layouts;
    for (const WeightLayout& layout : {layouts.qkv, layouts.out, layouts.gate_up, layouts.down})
      EXPECT_TRUE(layout.is_quantized());
    of_a_token = loaded.model.weights().bytes_per_token(), of_a_step = loaded.model.weights().bytes_of_step(8);
    for (const int64_t n : rows) coded.push_back(logits_of(loaded, options_of(n)));
  }
  LoadedModel loaded(checkpoint_.in_bf16());
  EXPECT_LT(of_a_token, loaded.model.weights().bytes_per_token() * 6 / 10);
  EXPECT_LT(of_a_step, loaded.model.weights().bytes_of_step(8) * 6 / 10);
  for (size_t i = 0; i < rows.size(); ++i) {
    EXPECT_LE(relative_error(coded[i], logits_of(loaded, options_of(rows[i]))), 0.01) << rows[i] << " rows";
  }
}

TEST_P(CodedExperts, ModesChangeNoBit) {
  LoadedModel loaded(checkpoint_.coded());
  for (const int64_t rows : {1, 8}) {
    const std::vector<Logits> first = logits_of(loaded, options_of(rows));
    for (const RunMode mode : {RunMode::captured, RunMode::eager})
      EXPECT_TRUE(same_bits(logits_of(loaded, options_of(rows, mode)), first)) << rows << " rows, " << to_string(mode);
  }
}

TEST_P(CodedExperts, HaveTheSameBitsInEveryStepWithInvariantNumerics) {
  LoadedModel loaded(checkpoint_.coded());
  std::vector<Logits> first;
  for (const auto& [rows, chunk] : {std::pair{1, 8}, {2, 1}, {8, 3}}) {
    DecoderOptions options = options_of(rows);
    options.prefill_rows = chunk, options.numerics = Numerics::invariant;
    const std::vector<Logits> all = logits_of(loaded, options);
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first)) << rows << " rows, chunks of " << chunk;
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, CodedExperts,
                         testing::Values(CodedCase{Coding::fp8_rows, true}, CodedCase{Coding::fp8_blocks, true},
                                         CodedCase{Coding::int4, true}, CodedCase{Coding::int4_of_32, true}),
                         name_of_coded);

// Router, embedding and head stay as they are.
TEST(RoundedExperts, HaveTheBitsOfTheCheckpointThatWasQuantized) {
  const CodedCheckpoint checkpoint({Coding::fp8_blocks, true});  // rows have other scales
  const ScratchFolder scratch;
  const std::string quantized = (scratch.path() / "quantized").string();
  quantize_checkpoint(checkpoint.in_bf16(), quantized, QuantizedFormat::fp8_row, 2);
  const Tokens prompt = some_tokens(9, SmallNetwork::kVocab, 3), continuation = some_tokens(3, SmallNetwork::kVocab, 4);
  LoadedModel loaded(quantized);
  const auto logits = [&] {
    Decoder decoder = loaded.decoder(decoder_options(1));
    return forced_logits(decoder, loaded, prompt, continuation);
  };
  const ModelLayouts layouts = loaded.model.config().layouts;
  const std::vector<Logits> stored = logits();
  loaded.model = DecoderModel::load(loaded.device, loaded.stream, checkpoint.in_bf16(), {}, {.rounds_to_fp8 = true});
  EXPECT_TRUE(layouts.down.is_fp8());
  EXPECT_EQ(loaded.model.config().layouts, layouts);
  EXPECT_TRUE(same_bits(logits(), stored));
}

}  // namespace
}  // namespace nodewright
