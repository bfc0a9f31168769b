// Requests with LoRA adapters beside others in one engine: each has the tokens that it has alone, whatever is loaded,
// unloaded and moved beside it.
#include <gtest/gtest.h>

#include <map>
#include <optional>

#include "engine/engine.h"
#include "engine/sleep.h"
#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/device/poison_free.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

const std::vector<std::string> kNames = {"llama_all", "llama_root", "llama_layer", "llama_linear"};
constexpr int64_t kAdaptedContext = 3 * kPageTokens;

struct AdaptedJob {
  std::string adapter;  // or empty
  Tokens prompt;
  int64_t tokens = 8;
};

EngineOptions adapted_options(int slots = 2) {
  EngineOptions options{.max_batch = 4, .step_tokens = 24, .buckets = {1, 4, 24}, .max_context = kAdaptedContext};
  options.numerics = Numerics::invariant;
  options.max_adapters = slots;
  options.max_adapter_rank = kGoldenRank;
  return options;
}

class EngineAdapters : public testing::Test {
 protected:
  EngineAdapters() : loaded_(base_of(kNames[0]), test_device(), Observe::yes) {}

  std::unique_ptr<Engine> engine(const EngineOptions& options, size_t adapters = kNames.size()) {
    auto engine = std::make_unique<Engine>(loaded_.device, loaded_.kernels, loaded_.model, options);
    for (size_t i = 0; i < adapters; ++i) load(*engine, kNames[i]);
    return engine;
  }
  static void load(Engine& engine, const std::string& name, const std::string& as = "") {
    engine.load_adapter(as.empty() ? name : as, engine.read_adapter(adapter_folder(name)));
  }
  static RequestId submit(Engine& engine, const AdaptedJob& job) {
    const auto submitted = engine.submit({.prompt = job.prompt, .max_tokens = job.tokens, .adapter = job.adapter});
    EXPECT_TRUE(submitted.id) << submitted.reason;
    return submitted.id.value_or(0);
  }
  AdaptedJob job(const std::string& adapter, size_t length, uint64_t salt) const {
    return {adapter, some_tokens(length, loaded_.vocab(), salt)};
  }
  // By a Decoder that holds nothing else.
  Tokens alone(const AdaptedJob& job) {
    if (!decoder_) {
      DecoderOptions options{.max_context = kAdaptedContext, .numerics = Numerics::invariant};
      options.adapters = adapter_limits(static_cast<int64_t>(kNames.size()), kGoldenRank);
      decoder_.reset(new Decoder(loaded_.decoder(options)));
      for (size_t i = 0; i < kNames.size(); ++i)
        load_adapter(*decoder_, loaded_, static_cast<int32_t>(i), adapter_folder(kNames[i]));
    }
    const auto slot = std::ranges::find(kNames, job.adapter) - kNames.begin();
    const int32_t sequence = decoder_->open(job.adapter.empty() ? -1 : static_cast<int32_t>(slot));
    decoder_->append(sequence, std::span(job.prompt).first(job.prompt.size() - 1));
    Tokens outputs;
    StepRow row{.sequence = sequence, .token = job.prompt.back()};
    for (int64_t i = 0; i < job.tokens; ++i, row.token.reset()) outputs.push_back(decoder_->step({row})[0]);
    decoder_->close(sequence);
    return outputs;
  }
  void finish(Engine& engine, bool poisons = true) {
    while (engine.advance()) {
      if (poisons) poison_free(engine, loaded_);
      engine.pipeline().check();
    }
  }
  static std::map<RequestId, Resolution> ends(Engine& engine) {
    std::map<RequestId, Resolution> all;
    for (Resolution& end : engine.take_resolutions()) all.emplace(end.request, std::move(end));
    return all;
  }
  void expect_alone(const std::map<RequestId, Resolution>& ends, RequestId id, const AdaptedJob& job) {
    ASSERT_TRUE(ends.contains(id));
    EXPECT_EQ(ends.at(id).reason, EndReason::length) << ends.at(id).message;
    EXPECT_EQ(ends.at(id).outputs, alone(job)) << "adapter '" << job.adapter << "'";
  }

  LoadedModel loaded_;
  std::unique_ptr<Decoder> decoder_;
};

// Fourteen requests with four adapters or none, and slots for two.
TEST_F(EngineAdapters, EveryRequestHasTheTokensThatItHasAlone) {
  std::vector<EngineOptions> settings(4, adapted_options());
  settings[1].schedule = Schedule::drained;
  settings[1].mode = RunMode::captured;
  settings[2].speculate = 3;
  settings[3].prefill = PrefillForm::piecewise;
  settings[3].depth = 1;
  settings[3].choices = true;
  for (const EngineOptions& options : settings) {
    SCOPED_TRACE(&options - settings.data());
    const auto engine = this->engine(options);
    std::map<RequestId, AdaptedJob> jobs;
    for (size_t i = 0; i < 14; ++i) {
      const AdaptedJob one = job(i % 5 == 4 ? "" : kNames[i % 5], 2 + 7 * (i % 6), i);
      jobs.emplace(submit(*engine, one), one);
      if (i % 3 == 0) engine->advance();
    }
    finish(*engine);
    const auto ends = this->ends(*engine);
    for (const auto& [id, one] : jobs) expect_alone(ends, id, one);
    for (const LoadedAdapter& one : engine->adapters()) EXPECT_EQ(one.requests, 0) << one.name;
  }
}

// Prompts that are alike share pages under the same adapter alone.
TEST_F(EngineAdapters, PagesAreFoundUnderTheSameAdapterAlone) {
  const auto engine = this->engine(adapted_options());
  for (const std::string name : {"", "llama_all", "llama_root"}) {
    const AdaptedJob one = job(name, 2 * kPageTokens + 3, 7);
    for (const int64_t found : {int64_t{0}, 2 * kPageTokens}) {
      const RequestId id = submit(*engine, one);
      finish(*engine);
      const auto ends = this->ends(*engine);
      expect_alone(ends, id, one);
      EXPECT_EQ(ends.at(id).found_tokens, found) << "adapter '" << name << "'";
    }
  }
}

// Outputs of one prompt share its pages, computed with the adapter.
TEST_F(EngineAdapters, OutputsOfOnePromptHaveItsAdapter) {
  const auto engine = this->engine(adapted_options());
  const AdaptedJob one = job("llama_root", 21, 3);
  RequestSpec spec{.prompt = one.prompt, .max_tokens = one.tokens, .adapter = one.adapter};
  const RequestId first = spec.like = engine->submit(spec).id.value();
  const std::vector<RequestId> all = {first, engine->submit(spec).id.value(), engine->submit(spec).id.value()};
  finish(*engine);
  const auto ends = this->ends(*engine);
  for (const RequestId id : all) expect_alone(ends, id, one);
}

TEST_F(EngineAdapters, OneIsLoadedWhileOthersDecode) {
  const auto engine = this->engine(adapted_options(), 1);
  const AdaptedJob plain = job("", 5, 1), first = job(kNames[0], 9, 2), second = job(kNames[1], 30, 3);
  const RequestId a = submit(*engine, plain), b = submit(*engine, first);
  for (int i = 0; i < 5; ++i) engine->advance();
  load(*engine, kNames[1]);
  const RequestId c = submit(*engine, second);
  finish(*engine, false);
  const auto ends = this->ends(*engine);
  expect_alone(ends, a, plain);
  expect_alone(ends, b, first);
  expect_alone(ends, c, second);
}

TEST_F(EngineAdapters, AnUnloadWaitsForThoseThatHaveIt) {
  const auto engine = this->engine(adapted_options(1), 1);
  const AdaptedJob one = job(kNames[0], 2 * kPageTokens + 1, 4);
  const RequestId running = submit(*engine, one), waiting = submit(*engine, one);
  for (int i = 0; i < 4; ++i) engine->advance();
  EXPECT_TRUE(engine->unload_adapter(kNames[0]));
  EXPECT_FALSE(engine->unload_adapter(kNames[0]));
  EXPECT_TRUE(engine->adapters().empty());
  EXPECT_EQ(engine->submit({.prompt = one.prompt, .adapter = kNames[0]}).reason, "no adapter 'llama_all' is loaded");
  // Another under the same name: it waits for the slot, and shares no page with the one before.
  load(*engine, kNames[1], kNames[0]);
  const auto other = engine->submit({.prompt = one.prompt, .max_tokens = one.tokens, .adapter = kNames[0]});
  finish(*engine);
  const auto ends = this->ends(*engine);
  expect_alone(ends, running, one);
  expect_alone(ends, waiting, one);
  expect_alone(ends, other.id.value(), {kNames[1], one.prompt});
  EXPECT_EQ(ends.at(other.id.value()).found_tokens, 0);
  ASSERT_EQ(engine->adapters().size(), 1u);
  EXPECT_EQ(engine->adapters()[0].id, 2);
}

TEST_F(EngineAdapters, TheOneUsedLeastRecentlyMakesRoom) {
  const auto engine = this->engine(adapted_options(2), 3);
  const auto slots = [&] {
    std::vector<int> all;
    for (const LoadedAdapter& one : engine->adapters()) all.push_back(one.slot);
    return all;
  };
  EXPECT_EQ(slots(), (std::vector<int>{0, 1, -1}));
  submit(*engine, job(kNames[0], 3, 1));
  finish(*engine);
  submit(*engine, job(kNames[2], 3, 1));
  finish(*engine);
  EXPECT_EQ(slots(), (std::vector<int>{0, -1, 1}));
}

TEST_F(EngineAdapters, SleepAndARebuildKeepThem) {
  const auto engine = this->engine(adapted_options(), 2);
  EngineSleep sleep(*engine, loaded_.model);
  const AdaptedJob one = job(kNames[1], 12, 5);
  const Tokens expected = alone(one);
  decoder_.reset();  // its graphs know where the weights are now
  const auto expect_same = [&](RequestId id) {
    const auto ends = this->ends(*engine);
    ASSERT_TRUE(ends.contains(id));
    EXPECT_EQ(ends.at(id).outputs, expected);
  };
  for (const SleepLevel level : {SleepLevel::weights_on_host, SleepLevel::weights_dropped}) {
    sleep.sleep(level);
    sleep.wake();
    const RequestId id = submit(*engine, one);
    finish(*engine);
    expect_same(id);
  }
  const RequestId id = submit(*engine, one);
  for (int i = 0; i < 3; ++i) engine->advance();
  engine->pause();
  while (engine->pipeline().mode() != PipelineMode::paused) engine->advance();
  engine->rebuild_graphs({.buckets = {2, 4, 24}, .mode = RunMode::captured});
  engine->resume();
  finish(*engine);
  expect_same(id);
}

TEST_F(EngineAdapters, RefusalsSayWhy) {
  const auto none = engine(adapted_options(0), 0);
  const auto image = engine(adapted_options(1), 0)->read_adapter(adapter_folder(kNames[0]));
  EXPECT_EQ(error_of([&] { none->load_adapter("a", image); }),
            "cannot load adapter 'a': the engine has no slots for adapters; try: --max-adapters");
  EXPECT_EQ(none->submit({.prompt = {1}, .adapter = "a"}).reason, "no adapter 'a' is loaded");
  const auto one = engine(adapted_options(1), 1);
  EXPECT_EQ(error_of([&] { load(*one, kNames[0]); }),
            "cannot load adapter 'llama_all': it has already been loaded; try: unload it, or another name");
  EngineOptions narrow = adapted_options(1);
  narrow.max_adapter_rank = 4;
  const auto engine_of_four = engine(narrow, 0);
  EXPECT_NE(error_of([&] {
              (void)engine_of_four->read_adapter(adapter_folder(kNames[1]));
            }).find("is 8, and at most 4 is allowed; try: --max-adapter-rank 8"),
            std::string::npos);
}

TEST_F(EngineAdapters, NothingIsLeftBehind) {
  { const auto first = engine(adapted_options(), 1); }  // loads the kernels
  const std::string handles = loaded_.opened.interposer->describe_live();
  const uint64_t free = loaded_.device.free_bytes();
  {
    const auto engine = this->engine(adapted_options());
    EXPECT_GT(engine->slots().memory().adapters, 0u);
    for (const std::string& name : kNames) submit(*engine, job(name, 9, 1));
    for (int i = 0; i < 6; ++i) engine->advance();
    for (const std::string& name : kNames) engine->unload_adapter(name);
  }
  EXPECT_EQ(loaded_.device.free_bytes(), free);
  EXPECT_EQ(loaded_.opened.interposer->describe_live(), handles);
}

}  // namespace
}  // namespace nodewright
