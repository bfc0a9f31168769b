// Log probabilities of prompts on several devices: those of the logits that the ranks gather before each token, and of
// one device within what its own rounding differs.
#include "tests/engine/ranks/shared_sizes.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/engine/sampling/scored_prompts.h"
#include "tests/support/error_text.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

struct ScoredTeam {
  const char* name;
  const char* golden;
  ScoreSetting setting = {};
  double limit = 1e-5;  // against the team's own logits: the same sums, which the ranks' parts round once more
};

// Three prompts end in their first page and outputs in the second. With the logits before each token, which a decoder
// of the same team gives token by token.
std::vector<ScoredJob> jobs_of(LoadedTeam& loaded) {
  TeamDecoder decoder(loaded, 1, Numerics::invariant);
  const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
  std::vector<ScoredJob> jobs;
  for (const auto& [wanted, tokens] : {std::pair{-1, 60}, {1, 59}, {5, 61}, {0, 2}, {20, 9}, {0, 1}}) {
    ScoredJob job{.spec = {.prompt = some_tokens(static_cast<size_t>(tokens), vocab, jobs.size()), .max_tokens = 40},
                  .choice = {.prompt_logprobs = wanted},
                  .logits = {}};
    if (wanted >= 0 && tokens > 1) {
      const Tokens& prompt = job.spec.prompt;
      job.logits = agreed(decoder.forced({prompt[0]}, {prompt.begin() + 1, prompt.end() - 1}));
    }
    jobs.push_back(std::move(job));
  }
  return jobs;
}

void expect_those_of_the_team(LoadedTeam& loaded, const ScoredTeam& of) {
  const std::vector<ScoredJob> jobs = jobs_of(loaded);
  Engine engine(loaded.places, score_engine(of.setting));
  std::vector<RequestId> ids;
  for (const ScoredJob& job : jobs) {
    const PipelineState::Submitted submitted = engine.submit(job.spec, {}, job.choice);
    ASSERT_TRUE(submitted.id) << submitted.reason;
    ids.push_back(*submitted.id);
  }
  const std::map<RequestId, Scored> told = serve_scores(engine, [&] {
    if (const std::optional<int> slot = engine.pipeline().free_slot()) engine.slots().poison(*slot);
  });
  for (size_t i = 0; i < jobs.size(); ++i) {
    SCOPED_TRACE("request " + std::to_string(i));
    EXPECT_EQ(told.at(ids[i]).end.outputs.size(), 40u) << told.at(ids[i]).end.message;
    expect_scores(jobs[i], told.at(ids[i]).prompt, of.limit);
  }
  EXPECT_EQ(engine.pipeline().preemptions() > 0, of.setting.pages > 0);
}

// Products round what they multiply to bf16, as in prompt_logprobs_test.cpp.
const ScoredTeam kScoredTeams[] = {{.name = "of_two", .golden = "llama/odd_sizes"},
                                   {.name = "of_two_in_few_pages",
                                    .golden = "llama/odd_sizes",
                                    .setting = {.chunk = 5, .schedule = Schedule::mixed, .pages = 5}},
                                   {.name = "of_two_with_capped_logits", .golden = "gemma2/caps"}};

const ScoredTeam kOtherScoredTeams[] = {
    {.name = "of_two_in_products", .golden = "llama/odd_sizes", .setting = {.products_from = 1}, .limit = 0.25},
    {.name = "of_two_with_shared_norms", .golden = "olmo2/wide_norms"}};

class TeamScores : public testing::TestWithParam<ScoredTeam> {};

TEST_P(TeamScores, AreThoseOfTheLogitsThatAllRanksGather) {
  LoadedTeam loaded(golden_folder(GetParam().golden), 2, test_device());
  expect_those_of_the_team(loaded, GetParam());
}

std::string name_of_scored(const testing::TestParamInfo<ScoredTeam>& info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamScores, testing::ValuesIn(kScoredTeams), name_of_scored);
INSTANTIATE_TEST_SUITE_P(TwoDevicesSweep, TeamScores, testing::ValuesIn(kOtherScoredTeams), name_of_scored);

TEST(TeamScoresSweepOnCpuDriver, OfFourAndEightRanksAreThoseOfTheirLogits) {
  ScratchFolder folder;
  write_shared_sizes("qwen2/biases", folder.path());  // 131 tokens, which no team shares evenly
  for (const int ranks : {4, 8}) {
    SCOPED_TRACE(ranks);
    LoadedTeam loaded(folder.path(), ranks, "cpu", true);
    expect_those_of_the_team(loaded, {.name = "", .golden = "qwen2/biases"});
  }
}

// Scores of the same prompts, by request.
std::map<RequestId, Scored> scores_on(Engine& engine, const std::vector<Tokens>& prompts) {
  for (const Tokens& prompt : prompts)
    EXPECT_TRUE(engine.submit({.prompt = prompt, .max_tokens = 1}, {}, {.prompt_logprobs = 5}).id);
  return serve_scores(engine);
}

// A team's logits are not those of one device bit for bit: sums over ranks are added in another order, activations
// round to bf16 what comes of them, and one device has tiles where a team's ranks multiply by rows.
TEST(TwoDevicesScores, AreThoseOfOneDeviceWithinRounding) {
  constexpr float kLimit = 0.1f;
  const char* const golden = "llama/odd_sizes";
  std::vector<Tokens> prompts;
  for (uint64_t i = 0; i < 4; ++i) prompts.push_back(some_tokens(5 + 13 * i, 1003, i));
  std::map<RequestId, Scored> expected;
  {
    LoadedModel alone(golden);
    ASSERT_EQ(alone.vocab(), 1003u);
    Engine one(alone.device, alone.kernels, alone.model, score_engine({}));
    expected = scores_on(one, prompts);
  }
  LoadedTeam team(golden_folder(golden), 2, test_device());
  Engine several(team.places, score_engine({}));
  const std::map<RequestId, Scored> found = scores_on(several, prompts);
  size_t compared = 0;
  float worst = 0;
  for (const auto& [id, scored] : expected) {
    const std::vector<TokenLogprobs>& other = found.at(id).prompt;
    ASSERT_EQ(other.size(), scored.prompt.size());
    for (size_t i = 0; i < other.size(); ++i) {
      const TokenLogprobs &a = scored.prompt[i], &b = other[i];
      EXPECT_EQ(a.token, b.token);
      worst = std::max(worst, std::abs(a.logprob - b.logprob));
      ASSERT_EQ(a.top.size(), b.top.size());
      for (size_t k = 0; k < a.top.size(); ++k) {
        worst = std::max(worst, std::abs(a.top[k].second - b.top[k].second));
        // Where its neighbours are further off than the two can differ.
        const auto apart = [&](size_t n, size_t m) { return a.top[n].second - a.top[m].second > 2 * kLimit; };
        if (k + 1 == a.top.size() || (k > 0 && !apart(k - 1, k)) || !apart(k, k + 1)) continue;
        EXPECT_EQ(a.top[k].first, b.top[k].first) << "token " << i + 1 << ", place " << k;
        ++compared;
      }
    }
  }
  EXPECT_LE(worst, kLimit);
  EXPECT_GT(worst, 0) << "compared with itself?";
  EXPECT_GT(compared, 20u);
}

TEST(TwoDevicesScores, OfAPromptWithANaNFailItAlone) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  // One row of the second rank's part of the head: the first rank's logits are sound.
  const WeightMatrix& head = loaded.models[1].weights().head();
  fill_device(*loaded.devices[1], head.data.address(), std::byte{0xff}, static_cast<uint64_t>(head.stride) * 2, "head");
  Engine engine(loaded.places, score_engine({}));
  const RequestId id = engine.submit({.prompt = {5, 6, 7, 8}}, {}, {.prompt_logprobs = 1}).id.value();
  const auto told = serve_scores(engine);
  EXPECT_EQ(told.at(id).end.reason, EndReason::failed);
  EXPECT_TRUE(told.at(id).prompt.empty());
  expect_words(told.at(id).end.message, {"behind token 0 of the prompt", "NaN"});
  EXPECT_EQ(engine.pipeline().mode(), PipelineMode::running);
}

}  // namespace
}  // namespace nodewright
