// A head that is rounded to FP8 while it loads: logits against those of bf16, in every form of a step, and what an
// engine does with it.
#include <map>

#include "models/weights/row_stride.h"
#include "tests/engine/parity/fp8_checkpoint.h"
#include "tests/engine/sampling/scored_prompts.h"
#include "tests/engine/sleeper.h"

namespace nodewright {
namespace {

using namespace test;

const LoadOptions kRounded{.rounds_head = true};

// One head of its own, and one that is the embedding; neither number of rows is even.
class RoundedHead : public testing::TestWithParam<std::string> {
 protected:
  std::vector<Logits> logits_of_model(LoadedModel& loaded, int64_t rows, RunMode mode = RunMode::explicit_,
                                      Numerics numerics = Numerics::fast, int64_t chunk = 8) const {
    DecoderOptions options = decoder_options(rows, mode);
    options.sequences = rows, options.prefill_rows = chunk, options.numerics = numerics;
    Decoder decoder = loaded.decoder(options);
    return forced_logits(decoder, loaded, some_tokens(20, loaded.vocab(), 3), some_tokens(3, loaded.vocab(), 4));
  }
};

// By rows, in tiles, in held tiles of one group and of two, and by the library. A code is off by 2^-4 of its number at
// most, 2.6 % in the mean square, and so are logits, whose errors are independent.
TEST_P(RoundedHead, GivesLogitsNearThoseOfBf16InEveryForm) {
  LoadedModel loaded(GetParam());
  std::map<int64_t, std::vector<Logits>> in_bf16;
  for (const int64_t rows : {1, 2, 4, 8, 40, 72}) in_bf16[rows] = logits_of_model(loaded, rows);
  loaded.model = DecoderModel::load(loaded.device, loaded.stream, golden_folder(GetParam()), {}, kRounded);
  std::vector<Logits> first;
  for (const auto& [rows, expected] : in_bf16) {
    const std::vector<Logits> logits = logits_of_model(loaded, rows);
    const double error = relative_error(logits, expected);
    EXPECT_GT(error, 0.005) << rows << " rows";
    EXPECT_LT(error, 0.04) << rows << " rows";
    if (first.empty()) first = logits;
    EXPECT_LT(relative_error(logits, first), 0.02) << rows << " rows";  // activations are bf16
  }
}

TEST_P(RoundedHead, HasTheSameBitsInEveryMode) {
  LoadedModel loaded(GetParam(), test_device(), Observe::no, kRounded);
  for (const int64_t rows : {1, 8, 72}) {
    const std::vector<Logits> first = logits_of_model(loaded, rows);
    for (const RunMode mode : {RunMode::captured, RunMode::eager})
      EXPECT_TRUE(same_bits(logits_of_model(loaded, rows, mode), first)) << rows << " rows, " << to_string(mode);
  }
}

TEST_P(RoundedHead, HasTheSameBitsInEveryStepWithInvariantNumerics) {
  LoadedModel loaded(GetParam(), test_device(), Observe::no, kRounded);
  std::vector<Logits> first;
  for (const auto& [rows, chunk] : {std::pair{1, 8}, {2, 1}, {8, 3}, {40, 40}}) {
    const std::vector<Logits> logits = logits_of_model(loaded, rows, RunMode::explicit_, Numerics::invariant, chunk);
    if (first.empty()) first = logits;
    EXPECT_TRUE(same_bits(logits, first)) << rows << " rows, chunks of " << chunk;
  }
}

TEST_P(RoundedHead, TakesAByteAnElementAndLeavesTheEmbedding) {
  LoadedModel loaded(GetParam());
  const uint64_t bytes = loaded.model.weights().bytes(), of_token = loaded.model.weights().bytes_per_token();
  loaded.model = DecoderModel::load(loaded.device, loaded.stream, golden_folder(GetParam()), {}, kRounded);
  const ModelConfig& config = loaded.model.config();
  const DecoderWeights& now = loaded.model.weights();
  const auto elements = static_cast<uint64_t>(config.vocab * row_stride(config.hidden)),
             head = elements + 4 * static_cast<uint64_t>(config.vocab);
  EXPECT_EQ(now.head().layout, WeightLayout{WeightCode::fp8});
  EXPECT_EQ(now.embedding().layout, WeightLayout{});
  EXPECT_EQ(now.bytes_per_token(), of_token - 2 * elements + head);
  const uint64_t expected = bytes + head - (config.tied ? 0 : 2 * elements);
  EXPECT_NEAR(static_cast<double>(now.bytes()), static_cast<double>(expected),
              512);  // ranges begin at multiples of 256
}

INSTANTIATE_TEST_SUITE_P(Golden, RoundedHead, testing::Values("llama/one_kv_head", "llama/odd_sizes"),
                         golden_test_name);

TEST(RoundedHeadEngine, ServesTheSameTokensAfterSleep) {
  const std::map<RequestId, Tokens> in_bf16 = Sleeper("llama/odd_sizes").served();
  Sleeper on("llama/odd_sizes", sleep_options(), test_device(), kRounded);
  const std::map<RequestId, Tokens> expected = on.served();
  EXPECT_NE(expected, in_bf16);
  expect_served_after_sleep(on, expected);
}

// The head of a prompt's tokens is the one of its answer.
TEST(RoundedHeadEngine, ScoresPromptsByItsLogits) {
  LoadedModel loaded("llama/odd_sizes", test_device(), Observe::no, kRounded);
  const Tokens prompt = some_tokens(23, loaded.vocab(), 5);
  Decoder decoder = loaded.decoder(decoder_options(1));
  const std::vector<Logits> logits =
      forced_logits(decoder, loaded, {prompt[0]}, {prompt.begin() + 1, prompt.end() - 1});
  for (const Numerics numerics : {Numerics::fast, Numerics::invariant}) {
    Engine engine(loaded.device, loaded.kernels, loaded.model,
                  {.max_batch = 1,
                   .step_tokens = 24,
                   .buckets = {1, 24},
                   .max_context = 64,
                   .choices = true,
                   .numerics = numerics});
    const RequestId id = engine.submit({.prompt = prompt, .max_tokens = 2}, {}, {.prompt_logprobs = 1}).id.value();
    const std::map<RequestId, Scored> told = serve_scores(engine);
    ASSERT_EQ(told.at(id).prompt.size(), prompt.size() - 1) << told.at(id).end.message;
    for (size_t i = 0; i + 1 < prompt.size(); ++i)
      EXPECT_NEAR(told.at(id).prompt[i].logprob, logprobs_on_host(logits[i])[static_cast<size_t>(prompt[i + 1])], 0.1)
          << "token " << i + 1;
  }
}

TEST(RoundedHeadOf, LayersInFp8AndDrawnWeightsIsRoundedToo) {
  const Fp8Checkpoint checkpoint(false);
  LoadedModel loaded(checkpoint.in_fp8(), test_device(), Observe::no, kRounded);
  EXPECT_TRUE(loaded.model.config().layouts.head.is_fp8());
  EXPECT_TRUE(loaded.model.config().layouts.down.is_fp8());
  loaded.model = DecoderModel::load(loaded.device, loaded.stream, golden_folder("llama/odd_sizes"), {},
                                    {.draws_weights = true, .rounds_head = true});
  EXPECT_TRUE(loaded.model.config().layouts.head.is_fp8());
}

TEST(RoundedHeadOf, AModelThatHasNoneInAShapeForItIsRefused) {
  const auto refused = [](const std::string& model, std::initializer_list<std::string_view> words,
                          LoadOptions options = kRounded) {
    expect_error([&] { LoadedModel(model, test_device(), Observe::no, options); }, words);
  };
  refused("qwen3/normed_heads", {"its head has 60 columns", "multiple of 16", "--quantize-head"});
  refused("llama/odd_sizes", {"--tp", "--quantize-head"}, {.rounds_head = true, .shard = {0, 2}});
}

}  // namespace
}  // namespace nodewright
