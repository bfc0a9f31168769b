// Requests on an engine whose model is cut into stages: tokens, log probabilities and hidden states are, bit by bit,
// those of one device that serves the same requests; stages overlap where rows allow it; and what is refused.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>
#include <ostream>
#include <random>

#include "engine/engine.h"
#include "tests/engine/failing_calls.h"
#include "tests/engine/stages/stages_decoder.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

struct StagedSetting {
  const char* name;
  const char* model = "llama/odd_sizes";
  bool choices = false;  // every other request is chosen by the second graph, and tells log probabilities
  bool rebuilds = false;
  bool naps = false;  // gives all memory back and takes it again
  EngineOptions options = {};
};

void PrintTo(const StagedSetting& setting, std::ostream* out) { *out << setting.name; }

EngineOptions staged_options(const StagedSetting& setting) {
  EngineOptions options = setting.options;
  options.max_batch = 8;
  options.step_tokens = 8;
  if (options.buckets.empty()) options.buckets = {1, 4, 8};
  options.max_context = 192;
  options.reserve = options.pages > 0 ? Reserve::prompt : Reserve::all;
  options.choices = setting.choices;
  options.seed = 3;
  return options;
}

struct StagedJob {
  RequestSpec spec;
  Sampling sampling;
  ChoiceOptions choice;
};

std::vector<StagedJob> staged_jobs(size_t vocab, const StagedSetting& setting) {
  std::mt19937 random(23);
  std::vector<StagedJob> jobs;
  for (size_t i = 0; i < 12; ++i) {
    StagedJob job;
    if (i % 2 == 0) job.spec.prompt = some_tokens(kPageTokens, vocab, i % 4);  // a page that others begin with, too
    const Tokens rest = some_tokens(1 + random() % 25, vocab, random());
    job.spec.prompt.insert(job.spec.prompt.end(), rest.begin(), rest.end());
    job.spec.max_tokens = 1 + static_cast<int64_t>(random() % 10);
    job.spec.hidden = i % 3 == 0 ? setting.options.hidden : HiddenStates::none;
    if (i % 3 == 0) job.sampling.temperature = 0.9f, job.sampling.top_k = 50, job.sampling.top_p = 0.95f;
    if (setting.choices && i % 2 == 1) {
      job.choice.presence_penalty = 1.5f, job.choice.biases = {{3, 4.0f}, {9, 4.0f}};
      job.choice.logprobs = 2;
      if (i % 4 == 1) job.choice.prompt_logprobs = 1;
      if (i % 4 == 3)  // waits for the token before it
        job.choice.allow = [](std::span<const int32_t> outputs, std::span<uint32_t> allowed) {
          std::ranges::fill(allowed, outputs.size() % 2 == 0 ? 0x55555555u : 0x33333333u);
        };
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// All that an engine tells, in words that show each bit.
struct ToldOutputs {
  std::map<RequestId, Tokens> tokens;
  std::vector<std::string> logprobs, hidden;
};

void take(Engine& engine, ToldOutputs& told) {
  for (const CommittedToken& token : engine.take_tokens()) told.tokens[token.request].push_back(token.token);
  const auto add = [&](const std::vector<TokenLogprobs>& all) {
    for (const TokenLogprobs& one : all) {
      std::string line = fmt::format("{} {} {} {:a}", one.request, one.output, one.token, one.logprob);
      for (const auto& [token, logprob] : one.top) line += fmt::format(" {}:{:a}", token, logprob);
      told.logprobs.push_back(line);
    }
  };
  add(engine.take_logprobs());
  add(engine.take_prompt_logprobs());
  for (const HiddenRows& rows : engine.take_hidden()) {
    std::string line = fmt::format("{} {} {}", rows.request, rows.first, rows.rows);
    for (const float value : rows.values) line += fmt::format(" {:a}", value);
    told.hidden.push_back(std::move(line));
  }
}

void serve_all(Engine& engine, ToldOutputs& told) {
  while (engine.advance()) take(engine, told);
  take(engine, told);
}

// On `count` devices, closed afterwards.
ToldOutputs told_by(const StagedSetting& setting, int count, const std::string& spec = test_device()) {
  LoadedStages loaded(golden_folder(setting.model), count, spec);
  Engine engine(loaded.places, staged_options(setting));
  ToldOutputs told;
  const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
  for (StagedJob& job : staged_jobs(vocab, setting)) {
    const PipelineState::Submitted result = engine.submit(job.spec, job.sampling, job.choice);
    EXPECT_TRUE(result.id) << result.reason;
  }
  if (setting.rebuilds) {
    for (int i = 0; i < 12 && engine.advance(); ++i) take(engine, told);
    engine.pause();
    serve_all(engine, told);
    engine.rebuild_graphs({.buckets = {2, 8}});
    engine.resume();
  }
  serve_all(engine, told);
  if (setting.naps) {
    engine.sleep();
    engine.wake();
    EXPECT_TRUE(engine.submit({.prompt = some_tokens(20, vocab, 8), .max_tokens = 5}).id);
    serve_all(engine, told);
  }
  for (const Resolution& resolution : engine.take_resolutions()) EXPECT_EQ(resolution.message, "");
  return told;
}

class StagedEngine : public testing::TestWithParam<StagedSetting> {};

TEST_P(StagedEngine, TellsWhatOneDeviceTellsBitByBit) {
  const ToldOutputs expected = told_by(GetParam(), 1), told = told_by(GetParam(), 2);
  EXPECT_GE(expected.tokens.size(), 12u);
  EXPECT_EQ(told.tokens, expected.tokens);
  EXPECT_EQ(told.logprobs, expected.logprobs);
  EXPECT_EQ(expected.logprobs.empty(), !GetParam().choices);
  EXPECT_EQ(told.hidden, expected.hidden);
  EXPECT_EQ(expected.hidden.empty(), GetParam().options.hidden == HiddenStates::none);
}

std::vector<StagedSetting> usual_settings() {
  return {{.name = "windows", .model = "gemma3/window_16"},       {.name = "mixture", .model = "mixtral/two_of_four"},
          {.name = "drafts", .options = {.speculate = 3}},        {.name = "few_pages", .options = {.pages = 9}},
          {.name = "rebuilt", .choices = true, .rebuilds = true}, {.name = "slept", .naps = true}};
}

std::vector<StagedSetting> other_settings() {
  return {{.name = "plain"},
          {.name = "invariant", .options = {.numerics = Numerics::invariant}},
          {.name = "choices", .choices = true},
          {.name = "hidden", .options = {.hidden = HiddenStates::full}},
          {.name = "one_at_a_time", .options = {.depth = 1}},
          {.name = "captured", .options = {.mode = RunMode::captured}},
          {.name = "eager", .options = {.mode = RunMode::eager}},
          {.name = "fell_back", .options = {.buckets = {4}, .allow_eager = true}},
          {.name = "piecewise", .options = {.schedule = Schedule::drained, .prefill = PrefillForm::piecewise}},
          {.name = "products", .options = {.products_from = 8}}};
}

std::string name_of_staged(const testing::TestParamInfo<StagedSetting>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(TwoDevices, StagedEngine, testing::ValuesIn(usual_settings()), name_of_staged);
INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, StagedEngine, testing::ValuesIn(other_settings()), name_of_staged);

TEST(StagedEngineOnCpuDriver, ServesInSevenStages) {
  const StagedSetting setting{.name = "seven", .model = "gemma3/window_16"};
  const ToldOutputs expected = told_by(setting, 1, "cpu");
  EXPECT_EQ(told_by(setting, 7, "cpu").tokens, expected.tokens);
}

// Which of the streams' work runs next is the schedule's choice wherever no event orders it.
TEST(StagedEngineOnCpuDriver, TellsTheSameUnderEverySchedule) {
  const StagedSetting setting{.name = "schedules", .choices = true, .options = {.speculate = 2}};
  const ToldOutputs expected = told_by(setting, 1, "cpu");
  for (const std::string schedule : {"reverse", "immediate", "seed=1"}) {
    const ToldOutputs told = told_by(setting, 2, "cpu:" + schedule);
    EXPECT_EQ(told.tokens, expected.tokens) << schedule;
    EXPECT_EQ(told.logprobs, expected.logprobs) << schedule;
  }
}

// How often a driver call is made while a step of StepSlots is launched and sampled.
size_t waits_of_step(LoadedStages& loaded, StepSlots& slots, int slot, int32_t token) {
  size_t waits = 0;
  loaded.opened.interposer->trace_to(
      [&](std::string_view line) { waits += line.find("cuStreamWaitEvent") != std::string_view::npos ? 1 : 0; });
  RowInputs row{.position = slot, .sequence = 0, .sampling = {}};
  row.token = token;
  write_row(slots.inputs(slot, 1), 0, row);
  slots.launch({.slot = slot, .bucket = 1, .live = 1, .sampled = 1, .copies = {}});
  slots.sample(slot);
  loaded.opened.interposer->trace_to({});
  return waits;
}

// Where the host knows all tokens of a step, its first stage waits for no other: a chunk of a prompt begins while the
// one before it is in the last stage.
TEST(StagedSlotsOnCpuDriver, LetTheFirstStageBeginUnlessItNeedsAToken) {
  LoadedStages loaded(golden_folder("llama/odd_sizes"), 2, "cpu", false, Observe::yes);
  StepSlots slots(loaded.places, {.max_context = 64, .pages = 1});
  slots.write_table(0, std::vector<int32_t>{0});
  const size_t known = waits_of_step(loaded, slots, 0, 5), next = waits_of_step(loaded, slots, 1, 6);
  EXPECT_EQ(known, 2u) << "of the last stage for the first, and of the copies for the last stage";
  EXPECT_EQ(next, known);
  slots.wait(0);
  EXPECT_EQ(waits_of_step(loaded, slots, 0, -1), known + 1);
  slots.wait(1);
  slots.wait(0);
}

TEST(TwoDevicesStagedEngine, RefusesWhatItCannotServe) {
  LoadedStages loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  const auto refused = [&](const EngineOptions& options) {
    return error_of([&] { Engine engine(loaded.places, options); });
  };
  expect_words(refused({.max_context = 64, .max_adapters = 1}), {"on 2 devices", "rows have no adapters"});
  std::swap(loaded.places[0], loaded.places[1]);
  expect_words(refused({.max_context = 64}), {"on 2 devices", "the stages of one, in their order"});
  std::swap(loaded.places[0], loaded.places[1]);
  EXPECT_NE(error_of([&] { Engine engine(std::span(loaded.places).first(1), {.max_context = 64}); }).find("Stage"),
            std::string::npos);
  Engine engine(loaded.places, {.max_batch = 1, .max_context = 64});
  engine.pause();
  expect_words(error_of([&] { engine.replace_weights(loaded.models[0]); }), {"replace weights", "several devices"});
}

// A stage has the pages of its layers; the stage with the least room bounds them.
TEST(StagedMemoryOnCpuDriver, IsWhatTheFullestStageHasRoomFor) {
  LoadedStages loaded(golden_folder("llama/unaligned"), 2, "cpu");
  const auto engine_with = [&](uint64_t limit) {
    return std::make_unique<Engine>(
        loaded.places,
        EngineOptions{.max_batch = 1, .step_tokens = 1, .buckets = {1}, .max_context = 64, .memory_limit = limit});
  };
  const MemoryUse use = engine_with(uint64_t{1} << 30)->slots().memory();
  const uint64_t most_of_page =
      KvCache::page_bytes(loaded.models[0].config()) *
      static_cast<uint64_t>(std::max(loaded.models[0].config().layers, loaded.models[1].config().layers));
  const uint64_t without_pages = use.total() - use.pages;
  const auto engine = engine_with(without_pages + 5 * most_of_page);
  EXPECT_LE(engine->slots().memory().total(), without_pages + 5 * most_of_page);
  EXPECT_GE(engine->slots().cache().pages(), 5);
}

// Every call of the next steps fails in its turn, the launch of either stage among them.
TEST(StagedEngineOnCpuDriver, EndsEveryRequestOnceWhicheverCallFails) {
  LoadedStages loaded(golden_folder("llama/odd_sizes"), 2, "cpu", false, Observe::yes);
  const EndedRequests ends = ended_requests(loaded.places, [] {});
  for (const auto& [request, times] : ends.times) EXPECT_EQ(times, 1) << request;
  ASSERT_EQ(ends.message, "");
  std::map<std::string, int> failed = expect_ends_once(loaded.places, *loaded.opened.interposer, 32);
  EXPECT_GE(failed["cuGraphLaunch"], 2) << "of each stage";
  EXPECT_GE(failed["cuStreamWaitEvent"], 1);
  EXPECT_GE(failed["cuMemcpyDtoDAsync"], 1);
}

}  // namespace
}  // namespace nodewright
