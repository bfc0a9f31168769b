// Every family that the loader knows, on a small checkpoint with its quirks on (tests/reference/family_checkpoint.py):
// logits against transformers, what each quirk costs where it is left out, and what changes no bit.
#include "tests/engine/parity/parity_limits.h"
#include "tests/engine/parity/planted_checkpoint.h"

namespace nodewright {
namespace {

using namespace test;

DecoderOptions family_options(const std::string& form, const LoadedModel& loaded) {
  DecoderOptions options = decoder_options(form == "eight_rows" ? 8 : 1);
  if (form == "products") options.bucket = options.sequences = kProductsFromRows, options.prefill_rows = 40;
  options.max_context = loaded.model.config().max_position;
  return options;
}

constexpr const char* kFamilyForms[] = {"one_row", "eight_rows", "products"};

std::vector<double> family_errors(LoadedModel& loaded, const std::vector<GoldenCase>& cases, const std::string& form) {
  Decoder decoder = loaded.decoder(family_options(form, loaded));
  std::vector<double> errors;
  for (const GoldenCase& one : cases)
    errors.push_back(relative_error(forced_logits(decoder, loaded, one.prompt, one.continuation), one.expected));
  return errors;
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, LogitsAreThoseOfTransformersInEveryForm) {
  LoadedModel loaded(GetParam());
  const std::vector<GoldenCase> cases = golden_cases_of(GetParam());
  for (const std::string form : kFamilyForms) {
    const std::vector<double> errors = family_errors(loaded, cases, form);
    if (writes_parity()) record_errors(GetParam(), form, errors);
    for (size_t i = 0; i < cases.size(); ++i) {
      EXPECT_LE(errors[i], parity_limit(GetParam(), form, i)) << form << ", prompt of " << cases[i].prompt.size();
      EXPECT_GT(errors[i], 0) << "compared with itself?";
    }
  }
}

// One sequence alone, and as row 3 of 8 among others and poisoned memory.
TEST_P(Families, ModesAndNeighboursChangeNoBit) {
  LoadedModel loaded(GetParam());
  const GoldenCase one = golden_cases_of(GetParam()).at(2);
  std::vector<Logits> alone;
  for (const RunMode mode : {RunMode::explicit_, RunMode::captured, RunMode::eager}) {
    Decoder decoder = loaded.decoder(decoder_options(8, mode));
    const std::vector<Logits> rows = forced_logits(decoder, loaded, one.prompt, one.continuation);
    if (alone.empty()) alone = rows;
    EXPECT_TRUE(same_bits(rows, alone)) << "mode " << static_cast<int>(mode);
  }
  Decoder decoder = loaded.decoder(decoder_options(8));
  std::vector<StepRow> rows;
  for (size_t i = 0; i < 6; ++i) {
    const Tokens prompt = some_tokens(2 + 11 * i, loaded.vocab(), i);
    rows.push_back({.sequence = decoder.open(), .token = prompt.back()});
    decoder.append(rows.back().sequence, std::span(prompt).first(prompt.size() - 1));
  }
  const int32_t sequence = decoder.open();
  decoder.append(sequence, std::span(one.prompt).first(one.prompt.size() - 1));
  Tokens forced{one.prompt.back()};
  forced.insert(forced.end(), one.continuation.begin(), one.continuation.end());
  rows.insert(rows.begin() + 3, {.sequence = sequence});
  for (size_t i = 0; i < forced.size(); ++i) {
    decoder.poison();
    rows[3].token = forced[i];
    decoder.step(rows);
    EXPECT_TRUE(same_bits(logits_of(decoder, loaded, 3), alone[i])) << "step " << i;
    for (StepRow& row : rows) row.token.reset();  // what the device chose
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Families, testing::ValuesIn(kFamilyModels), golden_test_name);

// What a wrong reading of a key, or none, costs.
struct PlantedKey {
  const char* golden;
  const char* key;
  nlohmann::json value;  // null: the key is taken out
};
const std::vector<PlantedKey> kPlantedKeys = {
    {"qwen2/biases", "max_window_layers", 2},
    {"llama/yarn", "rope_scaling.attention_factor", 1.0},
    {"llama/yarn", "rope_scaling.factor", 7.0},
    {"mistral/window_16", "sliding_window", 17},
    {"phi3/long", "rope_scaling.long_factor", {1.0, 1.0, 1.0, 1.0, 1.0, 1.0}},
    {"phi3/long", "rope_scaling.attention_factor", 1.0},
    {"phi3/short", "original_max_position_embeddings", 511},
    {"phi3/short", "sliding_window", 17},
    {"granite/multipliers", "embedding_multiplier", 11.0},
    {"granite/multipliers", "residual_multiplier", 0.24},
    {"granite/multipliers", "attention_multiplier", 0.16},
    {"granite/multipliers", "logits_scaling", 8.5},
    {"smollm3/unrotated", "no_rope_layers", {1, 1, 1, 1}},
    {"gemma2/caps", "attn_logit_softcapping", 3.3},
    {"gemma2/caps", "final_logit_softcapping", 6.5},
    {"gemma2/caps", "sliding_window", 17},
    {"exaone4/hybrid",
     "layer_types",
     {"sliding_attention", "sliding_attention", "sliding_attention", "sliding_attention"}},
    {"gpt_neox/parallel", "use_parallel_residual", false},
    {"gpt_neox/parallel", "rope_parameters.partial_rotary_factor", 0.2},
    {"starcoder2/window_16", "sliding_window", 17},
    {"stablelm/partial", "partial_rotary_factor", 0.25},
    {"cohere/parallel", "logit_scale", 0.26},
    {"cohere2/hybrid", "sliding_window", 17},
    {"qwen3_moe/normed", "norm_topk_prob", false},
    {"qwen3_moe/normed", "num_experts_per_tok", 2},
    {"olmoe/wide_norms", "norm_topk_prob", true},
    {"mixtral/two_of_four", "num_experts_per_tok", 1},
};

class PlantedKeys : public testing::TestWithParam<size_t> {};

TEST_P(PlantedKeys, AreNoticed) {
  const PlantedKey& key = kPlantedKeys.at(GetParam());
  SCOPED_TRACE(std::string(key.golden) + ", " + key.key);
  PlantedCheckpoint planted(key.golden);
  planted.set_in_config(key.key, key.value);
  LoadedModel loaded(planted.name());
  const std::vector<GoldenCase> cases = golden_cases_of(key.golden);
  const std::vector<double> errors = family_errors(loaded, cases, "one_row");
  double most = 0;
  for (size_t i = 0; i < cases.size(); ++i) most = std::max(most, errors[i] / parity_limit(key.golden, "one_row", i));
  EXPECT_GT(most, 1) << "the largest error is so many times its limit";
}

INSTANTIATE_TEST_SUITE_P(Golden, PlantedKeys, testing::Range(size_t{0}, kPlantedKeys.size()));

// A mixture whose layers are all dense has no experts at all.
TEST(Mixtures, GiveTheBitsOfTheDenseNetworkWhereNoLayerHasExperts) {
  const std::string golden = "qwen3/normed_heads";
  const GoldenCase one = golden_cases_of(golden).at(1);
  const auto logits_of_model = [&](const std::string& name) {
    LoadedModel loaded(name);
    Decoder decoder = loaded.decoder(decoder_options(1));
    return forced_logits(decoder, loaded, one.prompt, one.continuation);
  };
  PlantedCheckpoint planted(golden);
  planted.set_in_config("architectures", {"Qwen3MoeForCausalLM"});
  planted.set_in_config("num_experts", 4);
  planted.set_in_config("num_experts_per_tok", 2);
  planted.set_in_config("mlp_only_layers", {0, 1});
  EXPECT_TRUE(same_bits(logits_of_model(planted.name()), logits_of_model(golden)));
}

// A checkpoint of Gemma-3 4B and larger: the same text network below other names, beside a vision tower.
TEST(VisionCheckpoints, GiveTheBitsOfTheirTextPart) {
  const std::string golden = "gemma3/window_16";
  const GoldenCase one = golden_cases_of(golden).at(2);
  const auto logits_of_model = [&](const std::string& name) {
    LoadedModel loaded(name);
    Decoder decoder = loaded.decoder(decoder_options(1));
    return forced_logits(decoder, loaded, one.prompt, one.continuation);
  };
  const std::vector<Logits> expected = logits_of_model(golden);
  for (const std::string prefix : {"language_model.model.", "model.language_model."}) {
    PlantedCheckpoint planted(golden);
    planted.put_below_vision(prefix);
    EXPECT_TRUE(same_bits(logits_of_model(planted.name()), expected)) << prefix;
  }
}

}  // namespace
}  // namespace nodewright
