// A sliding layer sees its window and nothing before it, through a whole network; and the end of the context of learned
// positions is a stop.
#include <unistd.h>

#include <map>
#include <optional>

#include "engine/engine.h"
#include "runtime/error.h"
#include "tests/engine/device/poison_free.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

// The golden Gemma-3 with another window and all of its layers sliding.
class SlidingModel {
 public:
  explicit SlidingModel(int64_t window)
      : folder_(std::filesystem::temp_directory_path() / ("nodewright-window-" + std::to_string(::getpid()))) {
    std::filesystem::create_directories(folder_);
    const std::filesystem::path golden = golden_folder("gemma3/window_16");
    std::filesystem::copy_file(golden / "model.safetensors", folder_ / "model.safetensors",
                               std::filesystem::copy_options::overwrite_existing);
    nlohmann::json config = nlohmann::json::parse(std::ifstream(golden / "config.json"));
    config["sliding_window"] = window;
    config["max_position_embeddings"] = 512;
    config["layer_types"] = std::vector<std::string>(7, "sliding_attention");
    std::ofstream(folder_ / "config.json") << config;
    loaded_.emplace(golden_folder("gemma3/window_16"));
    loaded_->model = DecoderModel::load(loaded_->device, loaded_->stream, folder_);
  }
  ~SlidingModel() { std::filesystem::remove_all(folder_); }

  LoadedModel& loaded() { return *loaded_; }

 private:
  std::filesystem::path folder_;
  std::optional<LoadedModel> loaded_;
};

Logits last_logits(Decoder& decoder, const LoadedModel& loaded, const Tokens& prompt) {
  return forced_logits(decoder, loaded, prompt, {}).front();
}

// Seven layers reach 7 (W - 1) tokens back: the token before that changes nothing, not a bit, and the one at the end of
// the reach does. With wider windows that one's share, passed on seven times, is lost in bf16 roundings.
TEST(Window, EndsTheReachOfANetworkOfSlidingLayers) {
  for (const int64_t window : {1, 2, 3, 16}) {
    SlidingModel model(window);
    LoadedModel& loaded = model.loaded();
    Decoder decoder = loaded.decoder(decoder_options(1));
    const auto reach = static_cast<size_t>(7 * (window - 1));
    for (const size_t length : {reach + 2, size_t{64}, size_t{65}, size_t{129}}) {
      if (length < reach + 2) continue;
      const Tokens prompt = some_tokens(length, loaded.vocab(), length);
      const Logits expected = last_logits(decoder, loaded, prompt);
      const auto changed = [&](size_t back) {
        Tokens other = prompt;
        int32_t& token = other[length - 1 - back];
        token = (token + 1) % static_cast<int32_t>(loaded.vocab());
        return last_logits(decoder, loaded, other);
      };
      EXPECT_TRUE(same_bits(changed(reach + 1), expected)) << "window " << window << ", length " << length;
      if (window > 2) continue;
      EXPECT_FALSE(same_bits(changed(reach), expected)) << "window " << window << ", length " << length;
    }
  }
}

// Pages before the window may hold anything; a global layer still reads them.
TEST(Window, LeavesTheGlobalLayerAllOfTheContext) {
  LoadedModel loaded("gemma3/window_16");
  Decoder decoder = loaded.decoder(decoder_options(1));
  Tokens prompt = some_tokens(200, loaded.vocab(), 1);
  const Logits expected = last_logits(decoder, loaded, prompt);
  prompt[3] = prompt[3] == 0 ? 1 : 0;
  EXPECT_FALSE(same_bits(last_logits(decoder, loaded, prompt), expected));
}

// Five pages of tokens in four: what the window leaves is given back, filled with NaN, and missed by nobody; alone, in
// company and with drafts.
TEST(Window, OfAllLayersIsAllThatAnEngineKeepsOfARequest) {
  SlidingModel model(2);
  LoadedModel& loaded = model.loaded();
  constexpr int64_t kPrompt = 240, kOutputs = 20, kPagesOfOne = 4;
  const auto request_of = [&](size_t i) {
    return RequestSpec{.prompt = some_tokens(kPrompt - 8 * i, loaded.vocab(), i),
                       .max_tokens = kOutputs + 8 * static_cast<int64_t>(i)};
  };
  const auto options_of = [&](int64_t pages, int speculate) {
    return EngineOptions{.max_batch = 2,
                         .step_tokens = 8,
                         .buckets = {8},
                         .max_context = kPrompt + kOutputs,
                         .pages = pages,
                         .speculate = speculate};
  };
  const auto serve = [&](Engine& engine) {
    std::map<RequestId, Tokens> outputs;
    for (int i = 0; engine.advance(); ++i) {
      engine.pipeline().check();
      engine.pipeline().pool().check();
      if (i % 3 == 0) poison_free(engine, loaded);
    }
    for (const Resolution& end : engine.take_resolutions()) {
      EXPECT_EQ(end.reason, EndReason::length) << end.message;
      outputs[end.request] = end.outputs;
    }
    return outputs;
  };
  std::vector<Tokens> expected;
  {
    Engine engine(loaded.device, loaded.kernels, loaded.model, options_of(kPagesOfOne, 0));
    for (size_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(engine.submit(request_of(i)).id);
      expected.push_back(serve(engine).at(static_cast<RequestId>(i + 1)));
    }
    EXPECT_EQ(engine.stats().most_pages, 2);
    Decoder decoder = loaded.decoder({.bucket = 8, .prefill_rows = 8, .max_context = kPrompt + kOutputs});
    const Tokens prompt = request_of(0).prompt;
    const int32_t sequence = decoder.open();
    decoder.append(sequence, std::span(prompt).first(prompt.size() - 1));
    Tokens kept{decoder.step({{.sequence = sequence, .token = prompt.back()}})[0]};
    while (kept.size() < expected[0].size()) kept.push_back(decoder.step({{.sequence = sequence}})[0]);
    EXPECT_EQ(kept, expected[0]) << "of a cache that keeps every page";
  }
  for (const int speculate : {0, 3}) {
    Engine engine(loaded.device, loaded.kernels, loaded.model, options_of(2 * kPagesOfOne, speculate));
    for (size_t i = 0; i < 2; ++i) ASSERT_TRUE(engine.submit(request_of(i)).id);
    const auto outputs = serve(engine);
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(outputs.at(static_cast<RequestId>(i + 1)), expected[i]) << speculate;
    EXPECT_EQ(engine.pipeline().pool().free_pages(), 2 * kPagesOfOne);
  }
  Engine small(loaded.device, loaded.kernels, loaded.model, options_of(kPagesOfOne - 1, 0));
  expect_words(small.submit(request_of(0)).reason, {"need 4 pages", "the cache has 3"});
  EngineOptions unlimited = options_of(0, 0);
  EXPECT_EQ(Engine(loaded.device, loaded.kernels, loaded.model, unlimited).slots().cache().pages(), 2 * kPagesOfOne);
}

// Beside a global layer: the sliding layers' pages are given back and filled with NaN, and the tokens are those of a
// cache that keeps every page; so are those of prompts that begin with what was computed before.
TEST(Window, OfSomeLayersIsAllThatAnEngineKeepsOfThem) {
  LoadedModel loaded("gemma3/window_16");
  constexpr int64_t kPrompt = 220, kOutputs = 12;
  for (const bool prefix_cache : {false, true}) {
    SCOPED_TRACE(prefix_cache);
    Engine engine(
        loaded.device, loaded.kernels, loaded.model,
        {.max_batch = 2, .step_tokens = 16, .buckets = {16}, .max_context = 256, .prefix_cache = prefix_cache});
    const KvPool& pool = engine.pipeline().pool();
    ASSERT_EQ(pool.groups(), 2);
    Decoder decoder = loaded.decoder({.bucket = 16, .prefill_rows = 16, .max_context = 256});
    std::vector<Tokens> prompts;
    for (size_t i = 0; i < 3; ++i) prompts.push_back(some_tokens(kPrompt - 30 * i, loaded.vocab(), i));
    for (int turn = 0; turn < 2; ++turn) {
      std::map<RequestId, size_t> asked;
      for (size_t i = 0; i < prompts.size(); ++i)
        asked[engine.submit({.prompt = prompts[i], .max_tokens = kOutputs}).id.value()] = i;
      for (int i = 0; engine.advance(); ++i) {
        engine.pipeline().check();
        if (i % 3 == 0) poison_free(engine, loaded);
      }
      for (const Resolution& end : engine.take_resolutions()) {
        ASSERT_EQ(end.reason, EndReason::length) << end.message;
        Tokens& prompt = prompts[asked.at(end.request)];
        const int32_t sequence = decoder.open();
        decoder.append(sequence, std::span(prompt).first(prompt.size() - 1));
        Tokens kept{decoder.step({{.sequence = sequence, .token = prompt.back()}})[0]};
        while (kept.size() < end.outputs.size()) kept.push_back(decoder.step({{.sequence = sequence}})[0]);
        decoder.close(sequence);
        EXPECT_EQ(end.outputs, kept) << "prompt " << asked.at(end.request) << " in turn " << turn;
        prompt.insert(prompt.end(), kept.begin(), kept.end());
      }
    }
    EXPECT_EQ(pool.stats().found_tokens > 0, prefix_cache) << pool.stats().found_tokens;
  }
}

TEST(LearnedPositions, EndInAStopAndNotInAWrap) {
  LoadedModel loaded("gpt2/learned_positions");
  ASSERT_EQ(loaded.model.config().max_position, 256);
  DecoderOptions options = decoder_options(1);
  options.max_context = 257;
  EXPECT_THROW(loaded.decoder(options), Error);
  options.max_context = 256;
  Decoder decoder = loaded.decoder(options);
  const int32_t sequence = decoder.open();
  decoder.append(sequence, some_tokens(255, loaded.vocab(), 1));
  decoder.step({{.sequence = sequence, .token = 5}});  // the last position there is
  EXPECT_EQ(decoder.length(sequence), 256);
  try {
    decoder.step({{.sequence = sequence}});
    ADD_FAILURE() << "went on past the last position";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("257 tokens do not fit in a context of 256"), std::string::npos)
        << error.what();
  }
  EXPECT_EQ(decoder.length(sequence), 256);
}

}  // namespace
}  // namespace nodewright
