// The nanoGPT model against torch in float64 (tests/reference/nanogpt_reference.py), its three runs against each other,
// the structure of its plans, and its end of the context. To write the golden dump anew: NODEWRIGHT_WRITE_GOLDEN=1.
#include "examples/nanogpt/nanogpt_graph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "examples/nanogpt/nanogpt_sequence.h"
#include "graph/dump/graph_dump.h"
#include "graph/graph_exec.h"
#include "graph/hazard_check.h"
#include "runtime/device_selection.h"
#include "tests/support/test_device.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

using Tokens = std::vector<int32_t>;
using Logits = std::vector<float>;

constexpr RunMode kModes[] = {RunMode::explicit_, RunMode::captured, RunMode::eager};
const NanogptConfig kOddSizes{.layers = 2, .heads = 3, .embedding = 15, .context = 21, .vocab = 37};

struct NanogptMachine {
  explicit NanogptMachine(const NanogptConfig& config = {}, uint64_t seed = 1,
                          const std::string& spec = test::test_device())
      : opened(open_device(spec)),
        device(*opened.device),
        stream(device, "nanogpt"),
        kernels(device),
        weights(NanogptWeights::random(device, config, seed)) {}

  NanogptSequence sequence(RunMode mode = RunMode::explicit_, EdgePolicy policy = EdgePolicy::programmatic) {
    return {device, stream, kernels, weights, {.mode = mode, .policy = policy}};
  }
  Logits logits_of(const NanogptSequence& sequence) const {
    Logits logits(static_cast<size_t>(weights.config().vocab));
    sequence.read_logits(logits);
    return logits;
  }

  OpenedDevice opened;
  Device& device;
  Stream stream;
  KernelCache kernels;
  NanogptWeights weights;
};

Tokens some_tokens(int64_t count, int64_t vocab) {
  Tokens tokens;
  for (int64_t i = 0; i < count; ++i) tokens.push_back(static_cast<int32_t>((i * 7919 + 1) % vocab));
  return tokens;
}

bool same_bits(const Logits& a, const Logits& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// ---- against torch ----

struct Golden {
  NanogptConfig config;
  uint64_t seed = 0;
  int64_t parameters = 0;
  struct Case {
    Tokens prompt, continuation;
    std::vector<std::vector<double>> logits;  // after the prompt, and after each forced token
  };
  std::vector<Case> cases;
};

Golden golden(const std::string& name) {
  std::ifstream file(test::source_dir() / "tests/golden/nanogpt" / (name + ".json"));
  const nlohmann::json json = nlohmann::json::parse(file);
  const nlohmann::json& c = json.at("config");
  Golden g{.config = {.layers = c.at("layers"),
                      .heads = c.at("heads"),
                      .embedding = c.at("embedding"),
                      .context = c.at("context"),
                      .vocab = c.at("vocab")},
           .seed = json.at("seed"),
           .parameters = json.at("parameters"),
           .cases = {}};
  for (const nlohmann::json& one : json.at("cases"))
    g.cases.push_back({one.at("prompt"), one.at("continuation"), one.at("logits")});
  return g;
}

// The largest rms error over the standard deviation of the logits that a case has.
double largest_error(const Golden& g, NanogptMachine& m) {
  double largest = 0.0;
  for (const Golden::Case& one : g.cases) {
    NanogptSequence sequence = m.sequence();
    sequence.start(one.prompt, {});
    double sum = 0, squares = 0, errors = 0, count = 0;
    for (size_t row = 0; row < one.logits.size(); ++row) {
      if (row > 0) {
        EXPECT_TRUE(sequence.step(one.continuation.at(row - 1)).has_value());
      }
      const Logits ours = m.logits_of(sequence);
      for (size_t i = 0; i < ours.size(); ++i) {
        const double expected = one.logits[row].at(i), error = static_cast<double>(ours[i]) - expected;
        sum += expected, squares += expected * expected, errors += error * error, ++count;
      }
    }
    largest = std::max(largest, std::sqrt(errors / count) / std::sqrt(squares / count - sum / count * (sum / count)));
  }
  return largest;
}

// torch's own float32 is 1.6e-7 to 4.1e-7 from its float64 on these cases, and the cheapest wrong setting costs 5.5e-6
// (nanogpt_reference.py --errors, torch 2.15, CPU): five times the one is less than half the other.
constexpr double kLargestError = 2e-6;

class NanogptGolden : public testing::TestWithParam<const char*> {};

TEST_P(NanogptGolden, LogitsAgreeWithTorchInFloat64) {
  const Golden g = golden(GetParam());
  NanogptMachine m(g.config, g.seed);
  EXPECT_EQ(m.weights.parameters(), g.parameters);
  EXPECT_LT(largest_error(g, m), kLargestError);
}

TEST_P(NanogptGolden, LogitsOfAWrongSettingDoNot) {
  Golden g = golden(GetParam());
  g.config.eps = 1e-6f;
  NanogptMachine wrong_eps(g.config, g.seed);
  EXPECT_GT(largest_error(g, wrong_eps), 2 * kLargestError);
}

INSTANTIATE_TEST_SUITE_P(Nanogpt, NanogptGolden, testing::Values("article", "odd_sizes"),
                         [](const auto& info) { return info.param; });

// ---- the three runs ----

// The tokens after `prompt` up to a full context, and the logits that led to each.
struct Story {
  Tokens tokens;
  std::vector<Logits> logits;
};

Story tell(NanogptMachine& m, NanogptSequence& sequence, const Tokens& prompt, const NanogptSampling& sampling) {
  Story story{{sequence.start(prompt, sampling)}, {m.logits_of(sequence)}};
  while (const std::optional<int32_t> next = sequence.step()) {
    story.tokens.push_back(*next);
    story.logits.push_back(m.logits_of(sequence));
    if (static_cast<int64_t>(story.tokens.size()) > m.weights.config().context) {
      ADD_FAILURE() << "the story goes on past the end of the context";
      break;
    }
  }
  return story;
}

void expect_same(const Story& a, const Story& b, const std::string& what) {
  EXPECT_EQ(a.tokens, b.tokens) << what;
  ASSERT_EQ(a.logits.size(), b.logits.size()) << what;
  for (size_t i = 0; i < a.logits.size(); ++i) EXPECT_TRUE(same_bits(a.logits[i], b.logits[i])) << what << ", " << i;
}

TEST(NanogptRuns, AreBitEqualInEveryModeGreedyAndSampled) {
  for (const NanogptConfig& config : {NanogptConfig{}, kOddSizes}) {
    NanogptMachine m(config);
    const Tokens prompt = some_tokens(8, config.vocab);
    for (const NanogptSampling& sampling : {NanogptSampling{}, NanogptSampling{.temperature = 1.0f, .seed = 42}}) {
      NanogptSequence explicit_run = m.sequence();
      const Story expected = tell(m, explicit_run, prompt, sampling);
      EXPECT_EQ(expected.tokens.size(), static_cast<size_t>(config.context - 8 + 1));
      EXPECT_GT(std::set(expected.tokens.begin(), expected.tokens.end()).size(), 3u);
      for (RunMode mode : {RunMode::captured, RunMode::eager}) {
        NanogptSequence run = m.sequence(mode);
        expect_same(tell(m, run, prompt, sampling), expected, std::string(to_string(mode)));
      }
    }
  }
}

TEST(NanogptRuns, AreBitEqualUnderEveryEdgePolicy) {
  NanogptMachine m(kOddSizes);
  NanogptSequence first = m.sequence();
  const Story expected = tell(m, first, Tokens{3, 1, 4}, {});
  for (EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full}) {
    NanogptSequence run = m.sequence(RunMode::explicit_, policy);
    expect_same(tell(m, run, Tokens{3, 1, 4}, {}), expected, "policy " + std::to_string(static_cast<int>(policy)));
  }
}

TEST(NanogptRuns, DependOnTheSeedAlone) {
  NanogptMachine m;
  NanogptSequence sequence = m.sequence();
  const NanogptSampling one{.temperature = 1.0f, .seed = 1}, two{.temperature = 1.0f, .seed = 2};
  const Story first = tell(m, sequence, Tokens{5, 6}, one);
  const Story other = tell(m, sequence, Tokens{5, 6}, two);
  EXPECT_NE(first.tokens, other.tokens);
  expect_same(tell(m, sequence, Tokens{5, 6}, one), first, "again, over the cache that another story left");
}

// A prompt of n tokens in one launch leaves what n - 1 forced steps after a prompt of one leave.
TEST(NanogptRuns, AreTheSameBitsWhetherThePromptCameAtOnceOrTokenByToken) {
  NanogptMachine m(kOddSizes);
  const Tokens prompt = some_tokens(9, kOddSizes.vocab);
  NanogptSequence at_once = m.sequence(), one_by_one = m.sequence();
  at_once.start(prompt, {});
  one_by_one.start(std::span(prompt).first(1), {});
  for (size_t i = 1; i < prompt.size(); ++i) one_by_one.step(prompt[i]);
  EXPECT_TRUE(same_bits(m.logits_of(at_once), m.logits_of(one_by_one)));
  EXPECT_EQ(at_once.step(), one_by_one.step());  // the device's own token again, after forced ones
}

TEST(NanogptRuns, SubmittedWithoutWaitingEndWhereWaitingOnesDo) {
  NanogptMachine m;
  for (RunMode mode : kModes) {
    NanogptSequence waiting = m.sequence(mode), submitted = m.sequence(mode);
    waiting.start(Tokens{7}, {});
    submitted.start(Tokens{7}, {});
    for (int i = 0; i < 20; ++i) waiting.step();
    submitted.submit(20);
    m.stream.synchronize();
    EXPECT_TRUE(same_bits(m.logits_of(waiting), m.logits_of(submitted))) << to_string(mode);
  }
}

// ---- the end of the context ----

TEST(NanogptContext, EndsWithAStopAndNotWithAWrap) {
  NanogptMachine m(kOddSizes);
  NanogptSequence sequence = m.sequence();
  sequence.start(some_tokens(19, kOddSizes.vocab), {});
  EXPECT_EQ(sequence.room(), 2);
  EXPECT_TRUE(sequence.step().has_value());
  EXPECT_TRUE(sequence.step().has_value());
  EXPECT_EQ(sequence.room(), 0);
  const Logits last = m.logits_of(sequence);
  EXPECT_FALSE(sequence.step().has_value());
  EXPECT_FALSE(sequence.step(1).has_value());
  EXPECT_TRUE(same_bits(m.logits_of(sequence), last));
  EXPECT_THROW(sequence.submit(1), Error);
  EXPECT_EQ(sequence.length(), kOddSizes.context);
}

TEST(NanogptContext, MayBeFilledByThePromptAlone) {
  NanogptMachine m(kOddSizes);
  NanogptSequence sequence = m.sequence();
  EXPECT_GE(sequence.start(some_tokens(21, kOddSizes.vocab), {}), 0);
  EXPECT_FALSE(sequence.step().has_value());
}

TEST(NanogptContext, RefusesPromptsAndTokensThatDoNotFit) {
  NanogptMachine m(kOddSizes);
  NanogptSequence sequence = m.sequence();
  EXPECT_THROW(sequence.start(Tokens{}, {}), Error);
  EXPECT_THROW(sequence.start(some_tokens(22, kOddSizes.vocab), {}), Error);
  EXPECT_THROW(sequence.start(Tokens{0, 37}, {}), Error);
  EXPECT_THROW(sequence.start(Tokens{-1}, {}), Error);
  sequence.start(Tokens{1}, {});
  EXPECT_THROW(sequence.step(37), Error);
  EXPECT_EQ(sequence.length(), 1);
}

TEST(NanogptContext, RefusesAConfigThatCannotBe) {
  const OpenedDevice opened = open_device(test::test_device());
  const auto refused = [&](NanogptConfig config) {
    EXPECT_THROW(NanogptWeights::random(*opened.device, config, 1), Error);
  };
  refused({.heads = 5});
  refused({.layers = 0});
  refused({.heads = 1, .embedding = 257});
  refused({.vocab = 70000});
}

// ---- the plans ----

TEST(NanogptPlan, HasFiveNodesALayer) {
  NanogptMachine m;
  NanogptSequence sequence = m.sequence();
  std::vector<std::string> expected{"embed"};
  for (int layer = 0; layer < 4; ++layer)
    for (const char* name : {"qkv", "attend", "out", "up", "down"})
      expected.push_back("l" + std::to_string(layer) + "." + name);
  expected.insert(expected.end(), {"logits", "sample", "chosen"});
  const auto names = [](const Plan& plan) {
    std::vector<std::string> all;
    for (const PlanNode& node : plan.nodes) all.push_back(node.name);
    return all;
  };
  EXPECT_EQ(names(sequence.step_plan()), expected);
  expected.insert(expected.begin(), "inputs");
  EXPECT_EQ(names(sequence.prompt_plan(8)), expected);
}

TEST(NanogptPlan, OrdersWhatSharesBytesWithNoEdgeThatCouldBeLeftOut) {
  NanogptMachine m;
  NanogptSequence sequence = m.sequence();
  for (const Plan& plan : {sequence.step_plan(), sequence.prompt_plan(8)}) {
    EXPECT_TRUE(missing_orders(plan).empty()) << plan.name;
    for (size_t i = 0; i < plan.edges.size(); ++i) {
      Plan without = plan;
      without.edges.erase(without.edges.begin() + static_cast<long>(i));
      EXPECT_FALSE(missing_orders(without).empty())
          << plan.name << ": " << plan.nodes[plan.edges[i].from].name << " -> " << plan.nodes[plan.edges[i].to].name;
    }
  }
}

TEST(NanogptPlan, IsHeldByTheDriverAsPlanned) {
  NanogptMachine m;
  NanogptSequence sequence = m.sequence();
  for (const Plan& plan : {sequence.step_plan(), sequence.prompt_plan(8)})
    for (const std::string& difference : read_back(ExplicitGraph(plan))) ADD_FAILURE() << difference;
}

// Grids depend on the number of SMs, so the golden is that of the CPU driver's four.
TEST(NanogptPlanDumpOnCpuDriver, IsAsTheGoldenFile) {
  NanogptMachine m;
  const std::string text = to_text(m.sequence().step_plan());
  const std::filesystem::path path = test::source_dir() / "tests/golden/graph/nanogpt.step.txt";
  if (std::getenv("NODEWRIGHT_WRITE_GOLDEN") != nullptr) std::ofstream(path) << text;
  std::stringstream file;
  file << std::ifstream(path).rdbuf();
  EXPECT_EQ(text, file.str()) << path;
}

// The same bits whatever order the CPU driver takes the work in; the checked form reports an access that a kernel's
// arguments did not declare.
TEST(NanogptFormsOnCpuDriver, AreBitEqual) {
  const auto story = [](const std::string& spec) {
    NanogptMachine m(kOddSizes, 1, spec);
    NanogptSequence sequence = m.sequence();
    return tell(m, sequence, Tokens{1, 2, 3}, {.temperature = 1.0f, .seed = 3});
  };
  const Story expected = story("cpu:checked,forward,workers=1");
  for (const char* spec : {"cpu:checked,reverse", "cpu:checked,seed=1", "cpu:checked,sm80,workers=3", "cpu:sms=7"})
    expect_same(story(spec), expected, spec);
}

}  // namespace
}  // namespace nodewright
