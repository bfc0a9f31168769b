// Many requests at once on a device: each gets the tokens that a Decoder gives it alone, whatever arrives, ends or is
// cancelled beside it, with everything that no step may look at poisoned.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <random>

#include "engine/sampling/seeds.h"
#include "tests/engine/device/poison_free.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using test::Decoder;

constexpr int64_t kServedContext = 192;
constexpr int kServedRows = 8;

struct ServedJob {
  RequestSpec spec;
  Sampling sampling;
};

// One sequence, nothing beside it, and no engine: the tokens up to the stop id or the length.
std::vector<int32_t> decoded_alone(Decoder& decoder, const ServedJob& job) {
  const std::vector<int32_t>& prompt = job.spec.prompt;
  const int32_t sequence = decoder.open();
  decoder.append(sequence, std::span(prompt).first(prompt.size() - 1));
  StepRow row{.sequence = sequence, .token = prompt.back(), .sampling = job.sampling};
  std::vector<int32_t> outputs;
  const int64_t most = std::min(job.spec.max_tokens, kServedContext - static_cast<int64_t>(prompt.size()));
  while (static_cast<int64_t>(outputs.size()) < most) {
    outputs.push_back(decoder.step({row})[0]);
    row.token.reset();
    if (std::ranges::count(job.spec.stop_ids, outputs.back()) > 0) break;
  }
  decoder.close(sequence);
  return outputs;
}

struct ServedSetting {
  const char* name = "";
  int depth = kSlots;
  bool prefix_cache = true;
  Schedule schedule = Schedule::mixed;
  int chunk = 8;
  int max_batch = kServedRows;
  int64_t pages = 0;
  RunMode mode = RunMode::explicit_;
  std::vector<int> buckets = {kServedRows};  // across buckets only invariant numerics give the same bits
  bool masks = false;  // every other request is constrained to everything: chosen by the second graph
  int64_t products_from = 0;
  PrefillForm prefill = PrefillForm::graph;
  int speculate = 0;
  bool poisons = false;  // after each thing done, which waits for the device: what is not ordered shows without it
};

Numerics numerics_of(const ServedSetting& setting) {
  return setting.buckets.size() == 1 ? Numerics::fast : Numerics::invariant;
}

// NODEWRIGHT_ENGINE_JOBS: requests of a run, more than in CI.
size_t served_jobs() {
  const char* jobs = std::getenv("NODEWRIGHT_ENGINE_JOBS");
  return jobs == nullptr ? 25 : std::stoul(jobs);
}

EngineOptions engine_options(const ServedSetting& setting = {}) {
  return {.max_batch = setting.max_batch,
          .step_tokens = setting.chunk,
          .schedule = setting.schedule,
          .buckets = setting.buckets,
          .max_context = kServedContext,
          .pages = setting.pages,
          .prefix_cache = setting.prefix_cache,
          .choices = setting.masks,
          .depth = setting.depth,
          .numerics = numerics_of(setting),
          .mode = setting.mode,
          .products_from = setting.products_from,
          .prefill = setting.prefill,
          .speculate = setting.speculate};
}

class EngineRun : public testing::TestWithParam<ServedSetting> {
 protected:
  std::mt19937 random_{17};

  int64_t up_to(int64_t most) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(most + 1)); }

  ServedJob any_job(size_t vocab) {
    ServedJob job{.spec = {.prompt = {}, .max_tokens = 1 + up_to(9), .stop_ids = {}}, .sampling = {.seed = random_()}};
    // Every other prompt begins with a page that others begin with, and some are that page and no more.
    if (up_to(1) == 0) job.spec.prompt = test::some_tokens(kPageTokens, vocab, static_cast<uint64_t>(up_to(1)));
    const std::vector<int32_t> rest =
        test::some_tokens(static_cast<size_t>(std::max<int64_t>(up_to(30) - 10, 0)), vocab, random_());
    job.spec.prompt.insert(job.spec.prompt.end(), rest.begin(), rest.end());
    if (job.spec.prompt.empty()) job.spec.prompt.push_back(1);
    if (up_to(2) == 0) job.sampling.temperature = 0.9f, job.sampling.top_k = 50, job.sampling.top_p = 0.95f;
    return job;
  }
};

TEST_P(EngineRun, GivesEveryRequestTheTokensThatItGetsAlone) {
  test::LoadedModel loaded("llama/odd_sizes");
  Decoder alone = loaded.decoder({.bucket = GetParam().buckets.front(),
                                  .prefill_rows = kServedRows,
                                  .max_context = kServedContext,
                                  .sequences = GetParam().speculate > 0 ? kServedRows : GetParam().max_batch,
                                  .numerics = numerics_of(GetParam()),
                                  .products_from = GetParam().products_from});
  std::map<RequestId, std::vector<int32_t>> expected, streamed;
  EngineOptions options = engine_options(GetParam());
  // What will be chosen, but for every fifth output, and more of it than is used.
  options.drafts = [&expected](const Request& request) {
    std::vector<int32_t> drafts(5, 1);
    const std::vector<int32_t>& tokens = expected.at(request.id());
    for (size_t i = 0, output = request.outputs().size(); i < drafts.size() && output < tokens.size(); ++i, ++output)
      drafts[i] = output % 5 == 4 ? 2 : tokens[output];
    return drafts;
  };
  Engine engine(loaded.device, loaded.kernels, loaded.model, options);
  const size_t job_count = served_jobs();
  std::map<RequestId, ServedJob> jobs;
  std::map<size_t, std::vector<int32_t>> asked;  // about its end, by the number of the job
  std::map<RequestId, Resolution> ended;
  while (ended.size() < job_count) {
    if (jobs.size() < job_count && up_to(6) == 0)
      for (int64_t burst = up_to(4); burst >= 0 && jobs.size() < job_count; --burst) {
        ServedJob job = any_job(loaded.vocab());
        std::vector<int32_t> tokens = decoded_alone(alone, job);
        if (up_to(3) == 0) {  // stops at a token that it will choose
          job.spec.stop_ids = {tokens[static_cast<size_t>(up_to(static_cast<int64_t>(tokens.size()) - 1))]};
          tokens.resize(static_cast<size_t>(std::ranges::find(tokens, job.spec.stop_ids[0]) - tokens.begin()) + 1);
        }
        ChoiceOptions choice;
        if (GetParam().masks && jobs.size() % 2 == 0)
          choice.allow = [](auto, std::span<uint32_t> allowed) { std::ranges::fill(allowed, ~0u); };
        choice.ends = [&asked = asked[jobs.size()]](int32_t token) {
          asked.push_back(token);
          return std::nullopt;
        };
        const RequestId id = engine.submit(job.spec, job.sampling, choice).id.value();
        jobs[id] = job;
        expected[id] = std::move(tokens);
      }
    if (!jobs.empty() && up_to(50) == 0) engine.cancel(jobs.rbegin()->first);
    if (up_to(70) == 0 && engine.pipeline().mode() == PipelineMode::running) engine.pause();
    const bool advanced = engine.advance();
    if (engine.pipeline().mode() == PipelineMode::paused) engine.resume();
    ASSERT_TRUE(advanced || jobs.size() < job_count || engine.pipeline().mode() == PipelineMode::running);
    engine.pipeline().check();
    if (GetParam().poisons) test::poison_free(engine, loaded);
    for (const CommittedToken& token : engine.take_tokens()) streamed[token.request].push_back(token.token);
    for (Resolution& resolution : engine.take_resolutions())
      ASSERT_TRUE(ended.emplace(resolution.request, resolution).second) << "request " << resolution.request;
  }
  for (auto& [id, resolution] : ended) {
    std::vector<int32_t>& tokens = expected.at(id);
    if (resolution.reason == EndReason::cancelled) tokens.resize(std::min(tokens.size(), resolution.outputs.size()));
    EXPECT_EQ(resolution.outputs, tokens) << "request " << id << ", " << name_of(resolution.reason);
    EXPECT_EQ(streamed[id], resolution.outputs) << "request " << id;
    if (resolution.reason == EndReason::stop_id) resolution.outputs.pop_back();
    EXPECT_EQ(asked[static_cast<size_t>(id) - 1], resolution.outputs) << "request " << id;
  }
  while (engine.advance()) continue;  // what is in flight for requests that have ended
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
  const EngineStats& stats = engine.stats();
  EXPECT_GT(stats.prefill_steps, 8);
  EXPECT_GT(stats.output_tokens, 80);
  EXPECT_EQ(stats.accepted_drafts > 5, GetParam().speculate > 0) << stats.accepted_drafts << " of " << stats.drafted;
  EXPECT_EQ(stats.drafted > stats.accepted_drafts, GetParam().speculate > 0);
  EXPECT_EQ(engine.pipeline().pool().stats().found_tokens > 0, GetParam().prefix_cache);
  EXPECT_EQ(engine.pipeline().pool().stats().copied_pages > 0, GetParam().prefix_cache);
}

std::string name_of_setting(const testing::TestParamInfo<ServedSetting>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(
    Usual, EngineRun,
    testing::Values(
        ServedSetting{.name = "Pipelined"},
        ServedSetting{.name = "WithoutPrefixCache", .prefix_cache = false, .poisons = true},
        ServedSetting{
            .name = "PiecewisePrompts", .products_from = 1, .prefill = PrefillForm::piecewise, .poisons = true},
        ServedSetting{.name = "FewPages", .pages = 7, .poisons = true},
        ServedSetting{
            .name = "SpeculatingMaskedAndPoisoned", .max_batch = 3, .masks = true, .speculate = 3, .poisons = true},
        ServedSetting{.name = "Captured", .mode = RunMode::captured}),
    name_of_setting);
INSTANTIATE_TEST_SUITE_P(
    RunsSweep, EngineRun,
    testing::Values(
        ServedSetting{.name = "Poisoned", .poisons = true},
        ServedSetting{.name = "OneStepAtATime", .depth = 1, .poisons = true},
        ServedSetting{.name = "PromptsApart", .schedule = Schedule::drained},
        ServedSetting{.name = "ChunksOfThree", .chunk = 3}, ServedSetting{.name = "ThreeAtOnce", .max_batch = 3},
        ServedSetting{.name = "Products", .products_from = 1, .poisons = true},
        ServedSetting{.name = "ManyBuckets", .buckets = {1, 2, 3, 8}},
        ServedSetting{.name = "Speculating", .max_batch = 3, .speculate = 3},
        ServedSetting{
            .name = "SpeculatingWithProducts", .max_batch = 2, .products_from = 1, .speculate = 3, .poisons = true},
        ServedSetting{.name = "SpeculatingAcrossBuckets", .max_batch = 3, .buckets = {1, 2, 3, 8}, .speculate = 3},
        ServedSetting{.name = "Masked", .masks = true},
        ServedSetting{.name = "MaskedAndPoisoned", .masks = true, .poisons = true},
        ServedSetting{.name = "MaskedEager", .mode = RunMode::eager, .masks = true},
        ServedSetting{.name = "Eager", .mode = RunMode::eager}),
    name_of_setting);

// A random model that soon goes round in circles: what n-grams draft there is right.
TEST(Engine, AcceptsWhatNgramsDraftAndSavesAStepForEachWithTheSameTokens) {
  test::LoadedModel loaded("qwen3/normed_heads");
  const auto serve = [&](int speculate) {
    Engine engine(loaded.device, loaded.kernels, loaded.model,
                  engine_options({.name = "", .max_batch = 1, .speculate = speculate}));
    EXPECT_TRUE(engine.submit({.prompt = {5, 9, 7, 5, 9, 7, 5, 9, 7}, .max_tokens = 40}).id);
    while (engine.advance()) engine.pipeline().check();
    EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
    return std::pair(engine.take_resolutions().at(0).outputs, engine.stats());
  };
  const auto [expected, plain] = serve(0);
  EXPECT_EQ(expected.size(), 40u);
  EXPECT_EQ(plain.drafted, 0);
  const auto [outputs, stats] = serve(3);
  EXPECT_EQ(outputs, expected);
  EXPECT_GT(stats.accepted_drafts, 5);
  EXPECT_LE(stats.accepted_drafts, stats.drafted);
  EXPECT_EQ(stats.steps() + stats.accepted_drafts, plain.steps());
}

TEST(Engine, SharesThePagesOfOnePromptAmongItsOutputsWhichAreThoseOfTheirSeedsAlone) {
  test::LoadedModel loaded("llama/odd_sizes");
  RequestSpec spec{.prompt = test::some_tokens(kPageTokens + 9, loaded.vocab(), 3), .max_tokens = 6};
  const Sampling sampling{.temperature = 1.0f, .seed = 5};
  EngineOptions options = engine_options({.name = "", .prefix_cache = false});
  Engine engine(loaded.device, loaded.kernels, loaded.model, options);
  std::vector<std::vector<int32_t>> alone;
  for (uint64_t i = 0; i < 3; ++i) {
    Sampling own = sampling;
    if (i > 0) own.seed = derived_seed(5, i);
    EXPECT_TRUE(engine.submit(spec, own).id);
    while (engine.advance()) continue;
    alone.push_back(engine.take_resolutions().at(0).outputs);
  }
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_NE(alone[1], alone[2]);
  const int64_t computed = engine.stats().prompt_tokens;
  std::vector<RequestId> ids;
  for (size_t i = 0; i < 3; ++i) {
    Sampling own = sampling;
    if (i > 0) own.seed = derived_seed(5, i);
    ids.push_back(engine.submit(spec, own).id.value());
    spec.like = ids.front();
  }
  std::map<RequestId, std::vector<int32_t>> together;
  int64_t most_pages = 0;
  while (engine.advance()) {
    engine.pipeline().check();
    most_pages = std::max(most_pages, engine.pipeline().pool().owned_pages());
  }
  for (const Resolution& end : engine.take_resolutions()) together[end.request] = end.outputs;
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(together.at(ids[i]), alone[i]) << i;
  EXPECT_EQ(engine.stats().prompt_tokens - computed, kPageTokens + 9 + 2);  // of the others the last token
  EXPECT_EQ(most_pages, 1 + 3);
  EXPECT_EQ(engine.pipeline().pool().stats().forked, 2);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
}

TEST(Engine, DrawsOtherNumbersForEachRequestWithoutASeedUnlessItHasOneItself) {
  test::LoadedModel loaded("llama/odd_sizes");
  const auto serve = [&](std::optional<uint64_t> of_engine, std::optional<uint64_t> of_request) {
    EngineOptions options = engine_options();
    options.seed = of_engine;
    Engine engine(loaded.device, loaded.kernels, loaded.model, options);
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(engine.submit({.prompt = {1, 2, 3}, .max_tokens = 12}, {.temperature = 1.5f, .seed = of_request}).id);
    while (engine.advance()) continue;
    std::map<RequestId, std::vector<int32_t>> outputs;
    for (const Resolution& end : engine.take_resolutions()) outputs[end.request] = end.outputs;
    return outputs;
  };
  const auto drawn = serve({}, {}), again = serve({}, {});
  EXPECT_NE(drawn.at(1), drawn.at(2));
  EXPECT_NE(drawn.at(1), again.at(1));
  EXPECT_EQ(serve(7, {}), serve(7, {}));
  EXPECT_NE(serve(7, {}).at(1), serve(7, {}).at(2));
  const auto seeded = serve({}, 4);
  EXPECT_EQ(seeded.at(1), seeded.at(2));
}

TEST(Engine, PausesAThousandTimesAndLeavesNothing) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine engine(loaded.device, loaded.kernels, loaded.model, engine_options());
  ASSERT_TRUE(engine.submit({.prompt = {1, 2, 3}, .max_tokens = 150}).id);
  const uint64_t free_before = loaded.device.free_bytes();
  for (int cycle = 0; cycle < 1000; ++cycle) {
    engine.pause();
    while (engine.advance()) continue;
    ASSERT_EQ(engine.pipeline().mode(), PipelineMode::paused);
    engine.resume();
    if (cycle % 4 == 0) engine.advance();
  }
  while (engine.advance()) continue;
  EXPECT_EQ(engine.take_resolutions().at(0).outputs.size(), 150u);
  EXPECT_EQ(loaded.device.free_bytes(), free_before);
  EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
}

TEST(Engine, RefusesRequestsThatItCannotServeAndSaysWhy) {
  test::LoadedModel loaded("llama/odd_sizes");
  Engine engine(loaded.device, loaded.kernels, loaded.model, engine_options());
  const auto reason = [&](RequestSpec spec, const Sampling& sampling = {}) {
    const PipelineState::Submitted submitted = engine.submit(std::move(spec), sampling);
    EXPECT_FALSE(submitted.id);
    return submitted.reason;
  };
  expect_words(reason({.prompt = {1, 5000}}), {"token 5000", "1003 tokens"});
  expect_words(reason({.prompt = {-1}}), {"token -1"});
  expect_words(reason({.prompt = std::vector<int32_t>(kServedContext, 1)}), {"192"});
  expect_words(reason({.prompt = {1}, .constrained = true}), {"constrained", "masks"});
  expect_words(reason({.prompt = {1}}, {.temperature = -1}), {"temperature of -1"});
  expect_words(reason({.prompt = {1}}, {.top_k = -2}), {"top_k of -2"});
  expect_words(reason({.prompt = {1}}, {.top_p = 0}), {"top_p of 0"});
  expect_words(reason({.prompt = {1}}, {.min_p = 1.5f}), {"min_p of 1.5"});
  EXPECT_FALSE(engine.advance());
  EXPECT_TRUE(engine.take_resolutions().empty());
}

TEST(Engine, RefusesOptionsThatContradictEachOtherNamingBoth) {
  test::LoadedModel loaded("llama/odd_sizes");
  const auto refusal = [&](const EngineOptions& options) {
    return error_of([&] { const Engine engine(loaded.device, loaded.kernels, loaded.model, options); });
  };
  EngineOptions options = engine_options();
  options.max_batch = 9;
  expect_words(refusal(options), {"buckets", "8", "max batch is 9"});
  options = engine_options();
  options.max_context = loaded.model.config().max_position + 1;
  expect_words(refusal(options), {"max context"});
  options = engine_options();
  options.depth = 3;
  expect_words(refusal(options), {"depth", "3"});
  options = engine_options();
  options.buckets = {0, 8};
  expect_words(refusal(options), {"buckets", "0"});
}

// Every fifth driver call of serving fails once in turn: each request is resolved once, as served or with the error.
TEST(EngineOnCpuDriver, ResolvesEveryRequestOnceWhicheverCallFails) {
  test::LoadedModel loaded("llama/odd_sizes", "cpu", Observe::yes);
  Interposer& interposer = *loaded.opened.interposer;
  (void)Engine(loaded.device, loaded.kernels, loaded.model, engine_options());  // loads the kernels
  const std::string before = interposer.describe_live();
  uint64_t failed = 0;
  for (uint64_t call = 0;; call += 17) {
    {
      Engine engine(loaded.device, loaded.kernels, loaded.model, engine_options({.pages = 7}));
      for (uint64_t i = 0; i < 4; ++i)
        ASSERT_TRUE(
            engine.submit({.prompt = test::some_tokens(5 + 40 * i, loaded.vocab(), i / 2), .max_tokens = 4}).id);
      const uint64_t injected = interposer.failures_injected();
      interposer.fail_call(call, CUDA_ERROR_ILLEGAL_ADDRESS);
      while (engine.advance()) engine.pipeline().check();
      interposer.fail_none();
      const std::vector<Resolution> ended = engine.take_resolutions();
      ASSERT_EQ(ended.size(), 4u) << "call " << call;
      EXPECT_EQ(engine.pipeline().pool().owned_pages(), 0);
      if (interposer.failures_injected() == injected) {
        for (const Resolution& resolution : ended) EXPECT_EQ(resolution.reason, EndReason::length);
        break;
      }
      ++failed;
      EXPECT_EQ(engine.pipeline().mode(), PipelineMode::failed);
      EXPECT_EQ(ended.back().reason, EndReason::failed);
      expect_words(ended.back().message, {"cu"});
      expect_words(engine.submit({.prompt = {1}}).reason, {"the engine has failed"});
    }
    EXPECT_EQ(interposer.describe_live(), before) << "call " << call;
  }
  EXPECT_GT(failed, 10u);
}

}  // namespace
}  // namespace nodewright
