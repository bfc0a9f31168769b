// Requests on an engine of several devices: each gets the tokens that it gets alone, whatever stands beside it; and
// what such an engine refuses.
#include <functional>
#include <map>
#include <random>

#include "engine/engine.h"
#include "tests/engine/failing_calls.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

struct TeamSetting {
  const char* name;
  int speculate = 0;
  bool masks = false;  // every other request is chosen by the second graph
  int64_t pages = 0;   // few: requests give theirs up and come back
  bool rebuilds = false;
  std::vector<int> buckets = {1, 4, 8};
  const char* golden = "llama/odd_sizes";
};

EngineOptions team_options(const TeamSetting& setting) {
  return {.max_batch = 8,
          .step_tokens = 8,
          .buckets = setting.buckets,
          .max_context = 192,
          .pages = setting.pages,
          .reserve = setting.pages > 0 ? Reserve::prompt : Reserve::all,
          .choices = setting.masks,
          .numerics = Numerics::invariant,
          .speculate = setting.speculate};
}

struct TeamJob {
  RequestSpec spec;
  Sampling sampling;
  bool masked = false;
};

std::vector<TeamJob> some_jobs(size_t vocab, bool masks) {
  std::mt19937 random(23);
  std::vector<TeamJob> jobs;
  for (size_t i = 0; i < 12; ++i) {
    TeamJob job;
    if (i % 2 == 0) job.spec.prompt = some_tokens(kPageTokens, vocab, i % 4);  // a page that others begin with, too
    const Tokens rest = some_tokens(1 + random() % 25, vocab, random());
    job.spec.prompt.insert(job.spec.prompt.end(), rest.begin(), rest.end());
    job.spec.max_tokens = 1 + static_cast<int64_t>(random() % 10);
    job.sampling.seed = random();
    if (i % 3 == 0) job.sampling.temperature = 0.9f, job.sampling.top_k = 50, job.sampling.top_p = 0.95f;
    job.masked = masks && i % 2 == 1;
    jobs.push_back(std::move(job));
  }
  return jobs;
}

ChoiceOptions choice_of(const TeamJob& job) {
  ChoiceOptions choice;
  if (job.masked) choice.presence_penalty = 1.5f, choice.biases = {{3, 4.0f}, {9, 4.0f}};
  return choice;
}

RequestId submitted(Engine& engine, const TeamJob& job) {
  const PipelineState::Submitted result = engine.submit(job.spec, job.sampling, choice_of(job));
  EXPECT_TRUE(result.id) << result.reason;
  return result.id.value_or(RequestId{});
}

// What is served from now on, by request.
void serve(Engine& engine, std::map<RequestId, Tokens>& outputs) {
  while (engine.advance())
    for (const CommittedToken& token : engine.take_tokens()) outputs[token.request].push_back(token.token);
}

class TeamEngine : public testing::TestWithParam<TeamSetting> {};

TEST_P(TeamEngine, GivesEveryRequestTheTokensThatItGetsAlone) {
  LoadedTeam loaded(golden_folder(GetParam().golden), 2, test_device());
  const std::vector<TeamJob> jobs = some_jobs(static_cast<size_t>(loaded.models[0].config().vocab), GetParam().masks);
  std::vector<Tokens> expected;
  {
    Engine alone(loaded.places, team_options({.name = "alone", .masks = GetParam().masks}));
    for (const TeamJob& job : jobs) {
      std::map<RequestId, Tokens> outputs;
      const RequestId id = submitted(alone, job);
      serve(alone, outputs);
      expected.push_back(outputs[id]);
    }
  }
  Engine engine(loaded.places, team_options(GetParam()));
  std::map<RequestId, Tokens> outputs;
  std::vector<RequestId> ids;
  for (const TeamJob& job : jobs) ids.push_back(submitted(engine, job));
  if (GetParam().rebuilds) {
    for (int i = 0; i < 12 && engine.advance(); ++i)
      for (const CommittedToken& token : engine.take_tokens()) outputs[token.request].push_back(token.token);
    engine.pause();
    serve(engine, outputs);
    engine.rebuild_graphs({.buckets = {2, 8}});
    engine.resume();
  }
  serve(engine, outputs);
  for (size_t i = 0; i < jobs.size(); ++i) EXPECT_EQ(outputs[ids[i]], expected[i]) << "request " << i;
}

std::string name_of_team(const testing::TestParamInfo<TeamSetting>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamEngine,
                         testing::Values(TeamSetting{.name = "drafts", .speculate = 3},
                                         TeamSetting{.name = "mixture", .golden = "qwen3_moe/every_second"}),
                         name_of_team);
INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, TeamEngine,
                         testing::Values(TeamSetting{.name = "plain"}, TeamSetting{.name = "masks", .masks = true},
                                         TeamSetting{.name = "few_pages", .pages = 9},
                                         TeamSetting{.name = "rebuilt", .rebuilds = true},
                                         TeamSetting{.name = "wide_norms", .golden = "olmo2/wide_norms"}),
                         name_of_team);

TEST(TwoDevicesTeamEngine, RefusesWhatItCannotServe) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  const auto refused = [&](const EngineOptions& options) {
    return error_of([&] { Engine engine(loaded.places, options); });
  };
  expect_words(refused({.max_context = 64, .mode = RunMode::captured}), {"on 2 devices", "explicit"});
  expect_words(refused({.max_batch = 8, .buckets = {4}, .max_context = 64, .allow_eager = true}),
               {"on 2 devices", "node by node"});
  std::swap(loaded.places[0], loaded.places[1]);
  expect_words(refused({.max_context = 64}), {"in the order of their ranks"});
}

TEST(TwoDevicesTeamEngine, ServesAgainWhereOneHasServed) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  const EndedRequests ends = ended_requests(loaded.places, [] {});
  for (const auto& [request, times] : ends.times) EXPECT_EQ(times, 1) << request;
  EXPECT_EQ(ends.message, "");
  expect_served(loaded.places);
}

// Every call of the next steps fails in its turn, the launch on either rank among them: all waits end, and both devices
// live on.
TEST(TeamEngineOnCpuDriver, EndsEveryRequestOnceWhicheverCallFails) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, "cpu", false, Observe::yes);
  EXPECT_GE(expect_ends_once(loaded.places, *loaded.opened.interposer, 24)["cuGraphLaunch"], 2) << "of each rank";
}

TEST(TeamEngineSweepOnCpuDriver, EndsEveryRequestOnceWhicheverCallFailsWhilePromptsAreScored) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, "cpu", false, Observe::yes);
  std::map<std::string, int> failed = expect_ends_once(loaded.places, *loaded.opened.interposer, 64, true);
  EXPECT_GE(failed["cuGraphLaunch"], 4) << "of each rank its step and a slice";
  EXPECT_GE(failed["cuMemcpyDtoHAsync"], 3) << "tokens, and the scores of each rank";
}

}  // namespace
}  // namespace nodewright
