// Several steps in one launch, in a row and as a loop: the tokens of as many launches of one step, bit for bit, while
// rows end at different steps; and nothing of a row is stored after its end.
#include <algorithm>

#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int64_t kBucket = 4, kMost = 6;

// What one sequence asks for in one launch.
struct Wish {
  Sampling sampling;
  int64_t most = 1;
  std::vector<int32_t> stop_ids;
};

std::string name_of(const LaunchSteps& steps, RunMode mode) {
  return (steps.loop ? "a loop of " : "") + std::to_string(steps.most) + " steps, mode " +
         std::to_string(static_cast<int>(mode));
}

// Sequences of one decoder, each after a prompt of its own.
class Sequences {
 public:
  Sequences(LoadedModel& loaded, const DecoderOptions& options, size_t count)
      : loaded_(loaded), decoder_(loaded.decoder(options)) {
    for (size_t i = 0; i < count; ++i) {
      const Tokens prompt = some_tokens(3 + 7 * i, loaded.vocab(), i);
      ids_.push_back(decoder_.open());
      decoder_.append(ids_.back(), std::span(prompt).first(prompt.size() - 1));
      next_.push_back(prompt.back());
    }
  }

  // One launch, in which each sequence does what it wishes for.
  std::vector<Tokens> launch(const std::vector<Wish>& wishes) {
    std::vector<StepRow> rows;
    for (size_t i = 0; i < wishes.size(); ++i) {
      rows.push_back(row(i, wishes[i]));
      rows.back().most = wishes[i].most, rows.back().stop_ids = wishes[i].stop_ids;
    }
    const auto chosen = decoder_.launch(rows);
    for (std::optional<int32_t>& token : next_) token.reset();
    return {chosen.begin(), chosen.end()};
  }

  // The same by launches of one step, of the sequences that have not ended.
  std::vector<Tokens> steps(const std::vector<Wish>& wishes) {
    std::vector<Tokens> chosen(wishes.size());
    const auto goes_on = [&](size_t i) {
      return std::ssize(chosen[i]) < wishes[i].most &&
             (chosen[i].empty() || !std::ranges::count(wishes[i].stop_ids, chosen[i].back()));
    };
    while (true) {
      std::vector<StepRow> rows;
      std::vector<size_t> of;
      for (size_t i = 0; i < wishes.size(); ++i)
        if (goes_on(i)) rows.push_back(row(i, wishes[i])), of.push_back(i);
      if (rows.empty()) return chosen;
      const auto tokens = decoder_.step(rows);
      for (size_t r = 0; r < of.size(); ++r) chosen[of[r]].push_back(tokens[r]), next_[of[r]].reset();
    }
  }

  std::vector<int64_t> lengths() const {
    std::vector<int64_t> lengths;
    for (const int32_t id : ids_) lengths.push_back(decoder_.length(id));
    return lengths;
  }

  // The pages of all layers, one after the other.
  std::vector<std::byte> pool() {
    std::vector<std::byte> bytes;
    for (const Buffer& buffer : decoder_.plan().buffers) {
      if (buffer.range.kind != "kv") continue;
      const size_t before = bytes.size();
      bytes.resize(before + buffer.range.bytes);
      read_device(loaded_.device, std::span(bytes).subspan(before), buffer.range.address, buffer.range.name);
    }
    return bytes;
  }

 private:
  StepRow row(size_t i, const Wish& wish) const {
    return {.sequence = ids_[i], .token = next_[i], .sampling = wish.sampling};
  }

  LoadedModel& loaded_;
  Decoder decoder_;
  std::vector<int32_t> ids_;
  std::vector<std::optional<int32_t>> next_;
};

DecoderOptions options_of(const LaunchSteps& steps, RunMode mode, int64_t bucket = kBucket) {
  DecoderOptions options = decoder_options(bucket, mode);
  options.steps = steps;
  return options;
}

// Greedy, sampled, ended by the budget and by a stop id; the third launch is after the ends of the others.
std::vector<Wish> wishes_of(size_t launch) {
  const Sampling sampled{.temperature = 1.5f, .top_k = 40, .top_p = 0.9f, .seed = 7 + launch};
  const auto most = [&](int64_t n) { return 1 + (n + static_cast<int64_t>(launch)) % kMost; };
  return {{.sampling = {}, .most = most(5), .stop_ids = {}},
          {.sampling = sampled, .most = most(1), .stop_ids = {}},
          {.sampling = {.temperature = 0.7f, .seed = 3}, .most = most(4), .stop_ids = {}}};
}

class LaunchStepsOf : public testing::TestWithParam<std::string> {};

TEST_P(LaunchStepsOf, ChooseTheTokensOfAsManyLaunches) {
  LoadedModel loaded(GetParam());
  Sequences one_by_one(loaded, options_of({}, RunMode::explicit_), 3);
  std::vector<std::vector<Wish>> wishes;
  std::vector<std::vector<Tokens>> expected;
  for (size_t launch = 0; launch < 3; ++launch) {
    wishes.push_back(wishes_of(launch));
    expected.push_back(one_by_one.steps(wishes.back()));
  }
  // Ended by a token, too: one of those that the row chooses, at the second place where it can.
  for (size_t row = 0; row < 2; ++row) {
    const Tokens& tokens = expected[1][row];
    if (tokens.size() > 1) wishes[1][row].stop_ids = {-1, static_cast<int32_t>(loaded.vocab()), tokens[1]};
  }
  Sequences stopped(loaded, options_of({}, RunMode::explicit_), 3);
  for (size_t launch = 0; launch < 3; ++launch) expected[launch] = stopped.steps(wishes[launch]);
  const std::vector<int64_t> lengths = stopped.lengths();
  const std::vector<std::byte> pool = stopped.pool();

  const std::pair<LaunchSteps, RunMode> forms[] = {{{.most = kMost}, RunMode::explicit_},
                                                   {{.most = kMost}, RunMode::captured},
                                                   {{.most = kMost}, RunMode::eager},
                                                   {{.most = kMost + 3}, RunMode::explicit_},
                                                   {{.most = kMost, .loop = true}, RunMode::explicit_},
                                                   {{.most = 4 * kMost, .loop = true}, RunMode::explicit_},
                                                   {{.most = kMost, .loop = true}, RunMode::eager}};
  for (const auto& [steps, mode] : forms) {
    SCOPED_TRACE(name_of(steps, mode));
    Sequences together(loaded, options_of(steps, mode), 3);
    for (size_t launch = 0; launch < 3; ++launch)
      EXPECT_EQ(together.launch(wishes[launch]), expected[launch]) << "launch " << launch;
    EXPECT_EQ(together.lengths(), lengths);
    EXPECT_TRUE(together.pool() == pool) << "what is stored differs";  // nothing after an end, the same before it
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, LaunchStepsOf,
                         testing::Values("llama/odd_sizes", "qwen3/normed_heads", "gemma3/window_16",
                                         "gpt2/learned_positions"),
                         golden_test_name);

TEST(LaunchSteps, OfOneRowTakeTheKernelsOfOneRow) {
  LoadedModel loaded("llama/odd_sizes");
  const std::vector<Wish> wishes{{.sampling = {}, .most = kMost, .stop_ids = {}}};
  Sequences one_by_one(loaded, options_of({}, RunMode::explicit_, 1), 1);
  const std::vector<Tokens> expected = one_by_one.steps(wishes);
  for (const bool loop : {false, true}) {
    Sequences together(loaded, options_of({.most = kMost, .loop = loop}, RunMode::explicit_, 1), 1);
    EXPECT_EQ(together.launch(wishes), expected);
  }
}

TEST(LaunchSteps, AStepOfALaunchOfSeveralIsAStep) {
  LoadedModel loaded("llama/odd_sizes");
  const std::vector<Wish> wishes{{.sampling = {}, .most = 3, .stop_ids = {}}};
  Sequences one_by_one(loaded, options_of({}, RunMode::explicit_), 1);
  Sequences together(loaded, options_of({.most = kMost}, RunMode::explicit_), 1);
  EXPECT_EQ(together.steps(wishes), one_by_one.steps(wishes));
  EXPECT_EQ(together.lengths(), one_by_one.lengths());
}

TEST(LaunchSteps, EndWithTheContext) {
  LoadedModel loaded("llama/odd_sizes");
  DecoderOptions options = options_of({.most = 2 * kPageTokens}, RunMode::explicit_);
  options.max_context = 2 * kPageTokens, options.steps.loop = true;
  Sequences sequences(loaded, options, 1);
  const std::vector<Tokens> chosen = sequences.launch({{.sampling = {}, .most = kPageTokens, .stop_ids = {}}});
  EXPECT_EQ(std::ssize(chosen[0]), kPageTokens);
  expect_error([&] { sequences.launch({{.sampling = {}, .most = kPageTokens, .stop_ids = {}}}); },
               {"do not fit in a context of 128"});
  EXPECT_EQ(std::ssize(sequences.launch({{.sampling = {}, .most = 5, .stop_ids = {}}})[0]), 5);
}

TEST(LaunchSteps, RefuseNoneAndALoopThatIsCaptured) {
  LoadedModel loaded("llama/odd_sizes");
  expect_error([&] { loaded.decoder(options_of({.most = 0}, RunMode::explicit_)); }, {"steps per launch"});
  expect_error([&] { loaded.decoder(options_of({.most = 2, .loop = true}, RunMode::captured)); },
               {"'steps' is conditional"});
}

}  // namespace
}  // namespace nodewright
