// A GGUF file whose matrices stay in integers on the device against the same numbers in bf16.
#include <map>

#include "tests/engine/sleeper.h"
#include "tests/engine/stages/stages_decoder.h"
#include "tests/models/gguf_checkpoint.h"

namespace nodewright::gguf_weights_test {
namespace {

using namespace test;

struct Stored {
  const char* type;  // of all matrices; "Q4_K_M": as llama.cpp mixes them
  WeightCode code;
  int64_t group;
};

class GgufWeights : public testing::TestWithParam<Stored> {
 protected:
  static std::string type_of(int64_t layer, const std::string& name) {
    const std::string type = GetParam().type;
    if (type != "Q4_K_M") return type;
    return layer % 2 == 0 && (name == "attn_v" || name == "ffn_down") ? "Q6_K" : "Q4_K";
  }

  static DecoderOptions options_of(int64_t rows, RunMode mode = RunMode::explicit_) {
    DecoderOptions options = decoder_options(rows, mode);
    options.sequences = rows, options.prefill_rows = std::max<int64_t>(rows, 8);
    return options;
  }
  std::vector<Logits> logits_of(LoadedModel& loaded, const DecoderOptions& options) {
    Decoder decoder = loaded.decoder(options);
    return forced_logits(decoder, loaded, prompt_, continuation_);
  }

  const GgufCheckpoint checkpoint_{type_of};
  const Tokens prompt_ = some_tokens(20, static_cast<size_t>(GgufCheckpoint::kVocab), 3),
               continuation_ = some_tokens(3, static_cast<size_t>(GgufCheckpoint::kVocab), 4);
};

// The weights in bf16 are rounded, each by up to 2^-9 of it, which four layers make 0.4 to 2 % of the logits.
TEST_P(GgufWeights, GiveTheLogitsOfTheSameWeightsInBf16) {
  const std::vector<int64_t> rows = {1, 4, 40, 72};
  std::vector<std::vector<Logits>> quantized;
  uint64_t bytes_per_token = 0;
  {
    LoadedModel loaded(checkpoint_.quantized());
    const ModelLayouts& layouts = loaded.model.config().layouts;
    EXPECT_EQ(layouts.of_layers.empty(), GetParam().type != std::string("Q4_K_M"));
    for (const WeightLayout& layout :
         {layouts.of_layer(1).qkv, layouts.out, layouts.gate_up, layouts.of_layer(1).down}) {
      EXPECT_EQ(layout.code, GetParam().code);
      EXPECT_EQ(layout.group, GetParam().group);
    }
    bytes_per_token = loaded.model.weights().bytes_per_token();
    for (const int64_t n : rows) quantized.push_back(logits_of(loaded, options_of(n)));
  }
  LoadedModel loaded(checkpoint_.in_bf16());
  EXPECT_LT(bytes_per_token, loaded.model.weights().bytes_per_token() * 2 / 3);
  for (size_t i = 0; i < rows.size(); ++i)
    EXPECT_LE(relative_error(quantized[i], logits_of(loaded, options_of(rows[i]))), 0.03) << rows[i] << " rows";
}

TEST_P(GgufWeights, ModesChangeNoBit) {
  LoadedModel loaded(checkpoint_.quantized());
  for (const int64_t rows : {1, 8, 40}) {
    const std::vector<Logits> first = logits_of(loaded, options_of(rows));
    for (const RunMode mode : {RunMode::captured, RunMode::eager})
      EXPECT_TRUE(same_bits(logits_of(loaded, options_of(rows, mode)), first)) << rows << " rows, " << to_string(mode);
  }
}

TEST_P(GgufWeights, HaveTheSameBitsInEveryStepWithInvariantNumerics) {
  LoadedModel loaded(checkpoint_.quantized());
  std::vector<Logits> first;
  for (const auto& [rows, chunk] : {std::pair{1, 8}, {8, 3}, {40, 40}}) {
    DecoderOptions options = options_of(rows);
    options.prefill_rows = chunk, options.numerics = Numerics::invariant;
    const std::vector<Logits> all = logits_of(loaded, options);
    if (first.empty()) first = all;
    EXPECT_TRUE(same_bits(all, first)) << rows << " rows, chunks of " << chunk;
  }
}

class GgufMixture : public GgufWeights {};
class TwoDevicesGgufMixture : public GgufMixture {};

// Values of layers 0 and 2 are in another form than queries and keys, and all are brought to one.
TEST_P(GgufMixture, HasLayersInSeveralForms) {
  LoadedModel loaded(checkpoint_.quantized());
  const ModelLayouts& layouts = loaded.model.config().layouts;
  ASSERT_EQ(layouts.of_layers.size(), size_t{GgufCheckpoint::kLayers});
  for (const size_t layer : {size_t{0}, size_t{2}}) {
    EXPECT_EQ(layouts.of_layers[layer].qkv, (WeightLayout{WeightCode::q8_offset, false, 1, 16}));
    EXPECT_EQ(layouts.of_layers[layer].down.code, WeightCode::q8);
    EXPECT_EQ(layouts.of_layers[layer + 1].qkv.code, WeightCode::q4_offset);
    EXPECT_EQ(layouts.of_layers[layer + 1].down.code, WeightCode::q4_offset);
  }
  EXPECT_FALSE(layouts.down.is_quantized());
}

TEST_P(GgufMixture, ServesTheSameTokensAfterSleep) {
  Sleeper on(checkpoint_.quantized());
  expect_served_after_sleep(on, on.served());
}

TEST_P(TwoDevicesGgufMixture, HasTheBitsOfOneDeviceInStages) {
  for (const int64_t rows : {1, 8}) {
    std::vector<Logits> first;
    for (const int count : {1, 2}) {
      LoadedStages loaded(checkpoint_.quantized(), count, test_device());
      for (const DecoderModel& model : loaded.models)
        EXPECT_EQ(model.config().layouts.of_layers.size(), size_t{GgufCheckpoint::kLayers});
      const std::vector<Logits> all = StagesDecoder(loaded, rows).forced(prompt_, continuation_, true);
      if (count == 1) first = all;
      EXPECT_TRUE(same_bits(all, first)) << rows << " rows";
    }
  }
}

constexpr Stored kMixed{"Q4_K_M", WeightCode::q4_offset, 32};
std::string name_of(const testing::TestParamInfo<Stored>& info) { return info.param.type; }
INSTANTIATE_TEST_SUITE_P(Types, GgufWeights,
                         testing::Values(Stored{"Q8_0", WeightCode::q8, 32}, Stored{"Q4_0", WeightCode::q4, 32},
                                         Stored{"Q4_K", WeightCode::q4_offset, 32}, kMixed),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Mixed, GgufMixture, testing::Values(kMixed), name_of);
INSTANTIATE_TEST_SUITE_P(Mixed, TwoDevicesGgufMixture, testing::Values(kMixed), name_of);

}  // namespace
}  // namespace nodewright::gguf_weights_test
