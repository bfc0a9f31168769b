// Logits of the golden checkpoints against transformers, and how a prompt's logits depend on how it was appended.
#include "tests/engine/golden_model.h"

namespace nodewright {
namespace {

using namespace test;

// tests/reference/README.md: transformers in bf16 stands up to 1.2 % from its own float32 on these checkpoints.
constexpr double kLimit = 0.02;

class DecoderParity : public testing::TestWithParam<std::string> {};

TEST_P(DecoderParity, LogitsAreThoseOfTransformers) {
  LoadedModel loaded(GetParam());
  Decoder decoder = loaded.decoder(decoder_options(1));
  const std::vector<GoldenCase> cases = golden_cases_of(GetParam());
  ASSERT_EQ(cases.size(), 4u);
  for (const GoldenCase& one : cases) {
    ASSERT_EQ(one.expected.size(), 1 + one.continuation.size());
    const double error = relative_error(forced_logits(decoder, loaded, one.prompt, one.continuation), one.expected);
    EXPECT_LE(error, kLimit) << "prompt of " << one.prompt.size();
    EXPECT_GT(error, 0) << "compared with itself?";
    RecordProperty("error_percent_" + std::to_string(one.prompt.size()), std::to_string(100 * error));
  }
}

TEST_P(DecoderParity, LogitsAreThoseOfTransformersInTheLargestBucket) {
  LoadedModel loaded(GetParam());
  Decoder decoder = loaded.decoder(decoder_options(8));
  for (const GoldenCase& one : golden_cases_of(GetParam()))
    EXPECT_LE(relative_error(forced_logits(decoder, loaded, one.prompt, one.continuation), one.expected), kLimit)
        << "prompt of " << one.prompt.size();
}

// Chunks of 40 rows end inside a tile, a page and a prompt.
DecoderOptions with_products() {
  return {.bucket = kProductsFromRows,
          .prefill_rows = 40,
          .max_context = 256,
          .sequences = kProductsFromRows,
          .keep_logits = true};
}

TEST_P(DecoderParity, TheMeasureSeesOneTokenOfThePromptChanged) {
  LoadedModel loaded(GetParam());
  Decoder decoder = loaded.decoder(decoder_options(1));
  GoldenCase one = golden_cases_of(GetParam()).at(2);
  one.prompt[20] = one.prompt[20] == 0 ? 1 : 0;
  EXPECT_GT(relative_error(forced_logits(decoder, loaded, one.prompt, one.continuation), one.expected), kLimit);
}

INSTANTIATE_TEST_SUITE_P(Golden, DecoderParity, testing::ValuesIn(kGoldenModels), golden_test_name);

class DecoderProducts : public testing::TestWithParam<std::string> {};

TEST_P(DecoderProducts, LogitsAreThoseOfTransformers) {
  LoadedModel loaded(GetParam());
  Decoder decoder = loaded.decoder(with_products());
  size_t products = 0, tiles = 0;
  for (const PlanNode& node : decoder.step_plan().nodes) {
    products += node.kind == NodeKind::library;
    tiles += node.kernel_name().starts_with("tile_");
  }
  // All projections alike: tiles where a device has clusters and rows can be held.
  EXPECT_TRUE(products == 0 || tiles == 0);
  EXPECT_EQ(products + tiles, static_cast<size_t>(4 * loaded.model.config().layers + 1));
  for (const GoldenCase& one : golden_cases_of(GetParam()))
    EXPECT_LE(relative_error(forced_logits(decoder, loaded, one.prompt, one.continuation), one.expected), kLimit)
        << "prompt of " << one.prompt.size();
}

INSTANTIATE_TEST_SUITE_P(Golden, DecoderProducts,
                         testing::Values("llama/odd_sizes", "llama/unaligned", "qwen3/normed_heads",
                                         "gemma3/window_16"),
                         golden_test_name);

// Around the prefill bucket of 8 rows and the page of 64 tokens.
void expect_same_bits_however_appended(LoadedModel& loaded, const DecoderOptions& options,
                                       std::initializer_list<size_t> lengths) {
  Decoder decoder = loaded.decoder(options);
  for (size_t length : lengths) {
    const Tokens prompt = some_tokens(length, loaded.vocab(), length);
    const int32_t once = decoder.open(), singly = decoder.open(), split = decoder.open();
    decoder.append(once, prompt);
    for (int32_t token : prompt) decoder.append(singly, {&token, 1});
    decoder.append(split, std::span(prompt).first(length / 3));
    decoder.append(split, std::span(prompt).subspan(length / 3));
    std::vector<Logits> of_once;
    for (int32_t sequence : {once, singly, split}) {
      EXPECT_EQ(decoder.length(sequence), static_cast<int64_t>(length));
      std::vector<Logits> rows;
      for (int32_t token : some_tokens(2, loaded.vocab(), 99)) {
        decoder.step({{.sequence = sequence, .token = token}});
        rows.push_back(logits_of(decoder, loaded));
      }
      if (sequence == once) of_once = rows;
      EXPECT_TRUE(same_bits(rows, of_once)) << "prompt of " << length << ", sequence " << sequence;
      decoder.close(sequence);
    }
  }
}

TEST(DecoderPrefill, APromptAppendedAtOnceGivesTheBitsOfOneAppendedTokenByToken) {
  LoadedModel loaded("llama/odd_sizes");
  expect_same_bits_however_appended(loaded, decoder_options(1), {1, 7, 8, 9, 63, 64, 65, 130});
}

TEST(DecoderPrefill, DoesSoWithProductsOnTensorCores) {
  LoadedModel loaded("llama/odd_sizes");
  expect_same_bits_however_appended(loaded, with_products(), {1, 41});
}

}  // namespace
}  // namespace nodewright
