// A cache in FP8: how far its logits are from those of bf16, its scales, and what else an engine does beside it.
#include <fmt/format.h>

#include <map>

#include "models/config/part.h"
#include "tests/engine/parity/fp8_checkpoint.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/engine/sleeper.h"
#include "tests/engine/stages/stages_decoder.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

const LoadOptions kInFp8{.cache = CacheFormat::fp8};

// Keys over two pages, and a few that follow.
std::vector<Logits> logits_of_model(LoadedModel& loaded, DecoderOptions options) {
  options.sequences = options.prefill_rows = options.bucket;
  Decoder decoder = loaded.decoder(options);
  return forced_logits(decoder, loaded, some_tokens(100, loaded.vocab(), 3), some_tokens(3, loaded.vocab(), 4));
}

// Odd heads, a window, no rotation; on a GPU shared and normed heads, too.
std::vector<std::string> models_in_fp8_cache() {
  std::vector<std::string> models = {"llama/odd_sizes", "gemma3/window_16", "gpt2/learned_positions"};
  if (!test_device().starts_with("cpu")) models.insert(models.end(), {"llama/one_kv_head", "qwen3/normed_heads"});
  return models;
}

class Fp8Cache : public testing::TestWithParam<std::string> {};

// Keys and values are rounded by 2^-4 of themselves at most, 2.6 % in the mean square; the sharp scores of the seven
// layers of Gemma make 11 % of that. Rows one by one, in small steps, and in steps of products, whose prompts attend in
// tiles.
TEST_P(Fp8Cache, GivesLogitsNearThoseOfBf16) {
  LoadedModel loaded(GetParam());
  std::map<int64_t, std::vector<Logits>> in_bf16;
  for (const int64_t bucket : {1, 8, 40}) in_bf16[bucket] = logits_of_model(loaded, decoder_options(bucket));
  loaded.model = DecoderModel::load(loaded.device, loaded.stream, golden_folder(GetParam()), {}, kInFp8);
  for (const auto& [bucket, expected] : in_bf16) {
    const double error = relative_error(logits_of_model(loaded, decoder_options(bucket)), expected);
    EXPECT_GT(error, 1e-4) << bucket << " rows";
    EXPECT_LT(error, 0.15) << bucket << " rows";
  }
}

TEST_P(Fp8Cache, HasTheSameBitsInEveryMode) {
  LoadedModel loaded(GetParam(), test_device(), Observe::no, kInFp8);
  for (const int64_t bucket : {1, 8, 40}) {
    const std::vector<Logits> first = logits_of_model(loaded, decoder_options(bucket));
    for (const RunMode mode : {RunMode::captured, RunMode::eager})
      EXPECT_TRUE(same_bits(logits_of_model(loaded, decoder_options(bucket, mode)), first))
          << to_string(mode) << ", " << bucket << " rows";
  }
}

TEST_P(Fp8Cache, HasTheSameBitsInEveryStepWithInvariantNumerics) {
  LoadedModel loaded(GetParam(), test_device(), Observe::no, kInFp8);
  std::vector<Logits> first;
  for (const int64_t bucket : {1, 8, 40}) {
    DecoderOptions options = decoder_options(bucket);
    options.numerics = Numerics::invariant;
    const std::vector<Logits> rows = logits_of_model(loaded, options);
    if (first.empty()) first = rows;
    EXPECT_TRUE(same_bits(rows, first)) << bucket << " rows";
  }
}

TEST_P(Fp8Cache, TakesHalfTheMemory) {
  ModelConfig config = read_model_config(golden_folder(GetParam()));
  const uint64_t in_bf16 = KvCache::page_bytes(config);
  config.cache = CacheFormat::fp8;
  EXPECT_EQ(padded_head_dim(config.head_dim, config.cache) % 16, 0);
  EXPECT_GE(2 * KvCache::page_bytes(config), in_bf16);
  if (config.head_dim % 16 == 0) {
    EXPECT_EQ(2 * KvCache::page_bytes(config), in_bf16);
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Fp8Cache, testing::ValuesIn(models_in_fp8_cache()), golden_test_name);

// Requests share pages of prompts, and are the same where none are: with other neighbours, in another order.
TEST(Fp8CacheRequests, HaveTheirTokensWhateverIsBesideThem) {
  LoadedModel loaded("llama/odd_sizes", test_device(), Observe::no, kInFp8);
  const Tokens shared = some_tokens(kPageTokens + 5, loaded.vocab(), 9);
  const auto tokens_of = [&](const std::vector<uint64_t>& numbers, bool prefix_cache) {
    Engine engine(loaded.device, loaded.kernels, loaded.model,
                  {.max_batch = 4,
                   .buckets = {4, 8},
                   .max_context = 3 * kPageTokens,
                   .prefix_cache = prefix_cache,
                   .numerics = Numerics::invariant});
    std::map<RequestId, uint64_t> number_of;
    for (const uint64_t number : numbers) {
      Tokens prompt = number % 2 == 0 ? shared : Tokens{};
      const Tokens own = some_tokens(3 + number * 7, loaded.vocab(), number);
      prompt.insert(prompt.end(), own.begin(), own.end());
      const auto submitted = engine.submit({.prompt = prompt, .max_tokens = 20});
      EXPECT_TRUE(submitted.id) << submitted.reason;
      number_of[submitted.id.value_or(0)] = number;
      if (number == numbers.front())
        while (engine.advance()) engine.pipeline().check();  // so that others find its pages
    }
    while (engine.advance()) engine.pipeline().check();
    std::map<uint64_t, Tokens> tokens;
    for (const Resolution& end : engine.take_resolutions()) tokens[number_of.at(end.request)] = end.outputs;
    EXPECT_EQ(tokens.size(), numbers.size());
    EXPECT_EQ(engine.pipeline().pool().stats().found_tokens > 0, prefix_cache);
    return tokens;
  };
  const std::map<uint64_t, Tokens> expected = tokens_of({0, 1, 2, 3, 4, 5}, false);
  EXPECT_EQ(tokens_of({4, 2, 5, 3, 0, 1}, true), expected);
}

TEST(Fp8CacheSleep, LeavesTheTokensAsTheyWere) {
  const std::map<RequestId, Tokens> in_bf16 = Sleeper("llama/odd_sizes").served();
  Sleeper on("llama/odd_sizes", sleep_options(), test_device(), kInFp8);
  const std::map<RequestId, Tokens> expected = on.served();
  EXPECT_NE(expected, in_bf16);
  expect_served_after_sleep(on, expected);
}

TEST(TwoDevicesFp8Cache, HasTheBitsOfOneDeviceInStages) {
  const auto logits = [&](int count) {
    LoadedStages loaded(golden_folder("llama/odd_sizes"), count, test_device(), false, Observe::no, CacheFormat::fp8);
    StagesDecoder decoder(loaded, 8);
    const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
    return decoder.forced(some_tokens(39, vocab, 5), some_tokens(3, vocab, 6), true);
  };
  EXPECT_TRUE(same_bits(logits(2), logits(1)));
}

// The ranks' sums are rounded in another order, which codes may differ by.
TEST(Fp8CacheOnCpuDriver, HasLogitsNearThoseOfOneDevice) {
  const auto vocab = static_cast<size_t>(read_model_config(golden_folder("llama/odd_sizes")).vocab);
  const Tokens prompt = some_tokens(39, vocab, 5), continuation = some_tokens(3, vocab, 6);
  const std::vector<Logits> expected = [&] {
    LoadedModel alone("llama/odd_sizes", "cpu", Observe::no, kInFp8);
    Decoder decoder = alone.decoder(decoder_options(1));
    return forced_logits(decoder, alone, prompt, continuation);
  }();
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, "cpu", false, Observe::no, CacheFormat::fp8);
  TeamDecoder team(loaded, 8);
  const double error = relative_error(agreed(team.forced(prompt, continuation, true)), expected);
  EXPECT_LT(error, 0.05);
}

// ---- Scales

std::vector<TestTensor> scales(const std::vector<std::pair<std::string, float>>& named) {
  std::vector<TestTensor> tensors;
  for (int64_t l = 0; l < Fp8Checkpoint::kLayers; ++l)
    for (const auto& [name, scale] : named)
      tensors.push_back(
          {fmt::format("model.layers.{}.self_attn.{}", l, name), "F32", {}, bytes_of(std::vector{scale})});
  return tensors;
}

std::vector<Logits> logits_of_folder(const std::string& folder, const LoadOptions& options = kInFp8) {
  LoadedModel loaded(folder, test_device(), Observe::no, options);
  return logits_of_model(loaded, decoder_options(8));
}

// Powers of two move all values by as much within FP8's range, so that codes are the same but for the smallest.
TEST(Fp8CacheScales, OfTheCheckpointMultiplyCodes) {
  const Fp8Checkpoint plain(false), other(false, "", "", scales({{"k_scale", 0.0625f}, {"v_scale", 0.125f}}));
  const std::vector<Logits> of_one = logits_of_folder(plain.in_bf16());
  EXPECT_LT(relative_error(logits_of_folder(other.in_bf16()), of_one), 0.01);
  // 448 times this is less than most values.
  const Fp8Checkpoint small(false, "", "", scales({{"v_scale", 0x1p-12f}}));
  EXPECT_GT(relative_error(logits_of_folder(small.in_bf16()), of_one), 0.1);
  EXPECT_TRUE(same_bits(logits_of_folder(small.in_bf16(), {}), logits_of_folder(plain.in_bf16(), {})));
}

TEST(Fp8CacheScales, HaveTheNamesThatCheckpointsGiveThem) {
  using Names = std::vector<std::pair<std::string, float>>;
  for (const Names& names : {Names{{"k_scale", 0.5f}, {"v_scale", 2.0f}},
                             {{"attn.k_scale", 0.5f}, {"attn.v_scale", 2.0f}},
                             {{"k_proj.k_scale", 0.5f}, {"v_proj.v_scale", 2.0f}}}) {
    const Fp8Checkpoint checkpoint(false, "", "", scales(names));
    for (const std::string& folder : {checkpoint.in_fp8(), checkpoint.in_bf16()}) {
      LoadedModel loaded(folder, test_device(), Observe::no, kInFp8);
      EXPECT_EQ(loaded.model.weights().layers()[1].cache_scales.key, 0.5f) << names[0].first;
      EXPECT_EQ(loaded.model.weights().layers()[1].cache_scales.value, 2.0f) << names[1].first;
    }
  }
  const Fp8Checkpoint both(false, "", "", scales({{"kv_scale", 0.25f}}));
  LoadedModel loaded(both.in_fp8(), test_device(), Observe::no, kInFp8);
  EXPECT_EQ(loaded.model.weights().layers()[0].cache_scales.key, 0.25f);
  EXPECT_EQ(loaded.model.weights().layers()[0].cache_scales.value, 0.25f);
}

TEST(Fp8CacheScales, AreRefusedWhereTheyAreNone) {
  for (const float scale : {0.0f, -1.0f, kNaN, kInfinity}) {
    const Fp8Checkpoint checkpoint(false, "", "", scales({{"v_scale", scale}}));
    expect_error([&] { logits_of_folder(checkpoint.in_bf16()); },
                 {"model.layers.0.self_attn.v_scale", "is no scale", "--kv-cache-dtype bf16"});
    ModelConfig config = read_model_config(checkpoint.in_bf16());
    config.cache = CacheFormat::fp8;
    expect_error([&] { weight_footprint(Checkpoint::open(checkpoint.in_bf16()), config); },  // as `inspect` says
                 {"model.layers.0.self_attn.v_scale", "is no scale"});
  }
  const Fp8Checkpoint of_heads(false, "", "",
                               {{"model.layers.1.self_attn.k_scale", "F32", {2}, bytes_of(std::vector<float>{1, 1})}});
  expect_error([&] { logits_of_folder(of_heads.in_bf16()); },
               {"model.layers.1.self_attn.k_scale", "one scale", "shape [2]"});
  logits_of_folder(of_heads.in_bf16(), {});  // bf16 needs none

  const Fp8Checkpoint of_int8(false, "", "", scales({{"k_scale", 0.5f}, {"v_scale", 0.5f}}));
  const std::filesystem::path config = std::filesystem::path(of_int8.in_fp8()) / "config.json";
  nlohmann::json changed = nlohmann::json::parse(read_text(config));
  changed["quantization_config"]["kv_cache_scheme"] = {{"num_bits", 8}, {"type", "int"}};
  write_text(config, changed.dump());
  expect_error([&] { logits_of_folder(of_int8.in_fp8()); },
               {of_int8.in_fp8(), "kv_cache_scheme, int of 8 bits by tensor", "--kv-cache-dtype bf16"});
  logits_of_folder(of_int8.in_fp8(), {});
}

}  // namespace
}  // namespace nodewright
