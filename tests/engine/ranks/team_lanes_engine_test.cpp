// An engine whose prompts go in two lanes gives the tokens of one whose steps are the lanes' size, whatever stands
// beside a request; and what cannot go in lanes.
#include <algorithm>
#include <map>
#include <random>

#include "engine/engine.h"
#include "engine/engine_parts.h"
#include "tests/engine/adapters/written_adapter.h"
#include "tests/engine/ranks/shared_sizes.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

struct LanesSetting {
  const char* name;
  const char* golden = "llama/odd_sizes";
  int ranks = 2;
  int speculate = 0;
  bool masks = false;
  int64_t pages = 0;
  bool rebuilds = false;
  bool adapts = false;  // every other request
  bool scores = false;  // every third one's prompt
};

// Every step has one size, so that all rows have the bits of it.
EngineOptions options_of(const LanesSetting& setting, int overlap) {
  const int rows = 48 * overlap;
  return {.max_batch = 4,
          .step_tokens = rows,
          .buckets = {rows},
          .max_context = 192,
          .pages = setting.pages,
          .reserve = setting.pages > 0 ? Reserve::prompt : Reserve::all,
          .choices = true,
          .max_adapters = setting.adapts ? 1 : 0,
          .speculate = setting.speculate,
          .overlap = overlap};
}

struct LanesJob {
  RequestSpec spec;
  Sampling sampling;
  ChoiceOptions choice;
};

// Prompts of a part of a lane to three of them, some of which begin with the same pages.
std::vector<LanesJob> jobs_of(size_t vocab, const LanesSetting& setting) {
  std::mt19937 random(29);
  std::vector<LanesJob> jobs;
  for (size_t i = 0; i < 10; ++i) {
    LanesJob job;
    if (i % 2 == 0) job.spec.prompt = some_tokens(kPageTokens, vocab, i % 4);
    const Tokens rest = some_tokens(1 + random() % 80, vocab, random());
    job.spec.prompt.insert(job.spec.prompt.end(), rest.begin(), rest.end());
    job.spec.max_tokens = 1 + static_cast<int64_t>(random() % 8);
    job.sampling.seed = random();
    if (i % 3 == 0) job.sampling.temperature = 0.9f, job.sampling.top_k = 50;
    if (setting.speculate == 0 || i % 2 == 1) job.choice.logprobs = 3;  // with which there are no drafts
    if (setting.scores && i % 3 == 0) job.choice.prompt_logprobs = 2;
    if (setting.adapts && i % 2 == 1) job.spec.adapter = "own";
    if (setting.masks && i % 2 == 1) job.choice.presence_penalty = 1.5f, job.choice.biases = {{3, 4.0f}};
    jobs.push_back(std::move(job));
  }
  return jobs;
}

// A request's tokens, each with its log probability and those of the likeliest, which tell more.
using Told = std::vector<std::pair<int32_t, std::vector<float>>>;

std::vector<Told> told_of(Engine& engine, std::span<const LanesJob> jobs, bool rebuilds) {
  std::map<RequestId, size_t> places;
  for (const LanesJob& job : jobs) {
    const PipelineState::Submitted result = engine.submit(job.spec, job.sampling, job.choice);
    EXPECT_TRUE(result.id) << result.reason;
    places[result.id.value_or(RequestId{})] = places.size();
  }
  std::vector<Told> all(jobs.size());
  const auto take = [&] {
    for (const CommittedToken& token : engine.take_tokens())
      if (const size_t place = places.at(token.request); jobs[place].choice.logprobs < 0)
        all[place].emplace_back(token.token, std::vector<float>());
    const auto add = [&](const TokenLogprobs& told) {
      auto& [token, values] = all[places.at(told.request)].emplace_back(told.token, std::vector{told.logprob});
      for (const auto& [likely, value] : told.top) values.push_back(value);
    };
    std::ranges::for_each(engine.take_prompt_logprobs(), add);
    std::ranges::for_each(engine.take_logprobs(), add);
  };
  if (rebuilds) {
    for (int i = 0; i < 6 && engine.advance(); ++i) take();
    engine.pause();
    while (engine.advance()) take();
    engine.rebuild_graphs({.buckets = {static_cast<int>(engine.slots().lane_rows(96)) * 2}});
    engine.resume();
  }
  while (engine.advance()) take();
  return all;
}

class TeamLanesEngine : public testing::TestWithParam<LanesSetting> {};

TEST_P(TeamLanesEngine, GivesTheTokensOfStepsOfALanesSize) {
  ScratchFolder folder;
  write_shared_sizes(GetParam().golden, folder.path(), 0, true);
  LoadedTeam loaded(folder.path(), GetParam().ranks, test_device(), true);
  const std::vector<LanesJob> jobs = jobs_of(static_cast<size_t>(loaded.models[0].config().vocab), GetParam());
  ScratchFolder adapter;
  if (GetParam().adapts) write_adapter(adapter.path(), read_model_config(folder.path()), 6, 3);
  const auto load = [&](Engine& engine) {
    if (GetParam().adapts) engine.load_adapter("own", engine.read_adapter(adapter.path()));
  };
  std::vector<Told> expected;
  {
    LanesSetting roomy = GetParam();
    roomy.pages = 0;
    Engine alone(loaded.places, options_of(roomy, 1));
    load(alone);
    for (const LanesJob& job : jobs) expected.push_back(told_of(alone, {&job, 1}, false)[0]);
  }
  Engine engine(loaded.places, options_of(GetParam(), 2));
  load(engine);
  EXPECT_EQ(engine.slots().lane_rows(96), 48);
  EXPECT_EQ(told_of(engine, jobs, GetParam().rebuilds), expected);
}

INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, TeamLanesEngine,
                         testing::Values(LanesSetting{.name = "plain"}, LanesSetting{.name = "drafts", .speculate = 3},
                                         LanesSetting{.name = "masks", .masks = true},
                                         LanesSetting{.name = "few_pages", .pages = 9},
                                         LanesSetting{.name = "rebuilt", .rebuilds = true},
                                         LanesSetting{.name = "adapters", .golden = "llama/biases", .adapts = true},
                                         LanesSetting{.name = "scores", .scores = true},
                                         LanesSetting{.name = "post_norms", .golden = "gemma2/caps"},
                                         LanesSetting{.name = "mixture", .golden = "qwen3_moe/every_second"}),
                         [](const auto& info) { return std::string(info.param.name); });
INSTANTIATE_TEST_SUITE_P(FourRanksSweepOnCpuDriver, TeamLanesEngine,
                         testing::Values(LanesSetting{.name = "of_four", .ranks = 4}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(TwoDevicesLanesEngine, HasItsLanesAgainWhenItHasSlept) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  const LanesSetting setting{.name = "sleeps"};
  const std::vector<LanesJob> jobs = jobs_of(static_cast<size_t>(loaded.models[0].config().vocab), setting);
  Engine engine(loaded.places, options_of(setting, 2));
  const std::vector<Told> expected = told_of(engine, jobs, false);
  engine.sleep();
  engine.wake();
  EXPECT_EQ(engine.slots().lane_rows(96), 48);
  EXPECT_EQ(told_of(engine, jobs, false), expected);
}

TEST(TwoDevicesLanesEngine, RefusesWhatCannotGoInLanes) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  const auto refused = [&](const EngineOptions& options) {
    return error_of([&] { Engine engine(loaded.places, options); });
  };
  const EngineOptions good{.max_batch = 4, .step_tokens = 96, .buckets = {4, 96}, .max_context = 96, .overlap = 2};
  const auto but = [&](auto change) {
    EngineOptions options = good;
    change(options);
    return options;
  };
  expect_words(refused(but([](EngineOptions& o) { o.overlap = 3; })), {"overlap", "1 to 2"});
  expect_words(refused(but([](EngineOptions& o) { o.hidden = HiddenStates::full; })), {"overlap", "hidden states"});
  expect_words(refused(but([](EngineOptions& o) { o.numerics = Numerics::invariant; })),
               {"two lanes", "however large", "fast numerics"});
  expect_words(refused(but([](EngineOptions& o) { o.products_from = 0; })), {"two lanes", "products"});
  const ModelConfig whole = read_model_config(golden_folder("llama/odd_sizes"));
  expect_words(error_of([&] { checked_options(good, whole); }), {"overlap", "one device", "--tp"});
  // Steps that cannot be halves are one lane.
  EngineOptions mixed = good;
  mixed.max_batch = 49, mixed.buckets = {49, 64, 96, 128};
  const Engine engine(loaded.places, mixed);
  for (const int bucket : {49, 64, 96}) EXPECT_EQ(engine.slots().lane_rows(bucket), 0) << bucket;
  EXPECT_EQ(engine.slots().lane_rows(128), 64);
}

}  // namespace
}  // namespace nodewright
