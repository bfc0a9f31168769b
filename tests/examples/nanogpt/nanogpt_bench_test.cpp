// What `nodewright bench nanogpt` reports: figures of every mode, and tokens that differ.
#include "examples/nanogpt/nanogpt_bench.h"

#include <gtest/gtest.h>

#include "runtime/device_selection.h"
#include "tests/support/test_device.h"

namespace nodewright {
namespace {

struct BenchMachine {
  OpenedDevice opened = open_device(test::test_device());
  Stream stream{*opened.device, "bench tests"};
  KernelCache kernels{*opened.device};
  NanogptWeights weights =
      NanogptWeights::random(*opened.device, {.layers = 2, .heads = 3, .embedding = 15, .context = 21, .vocab = 37}, 1);
  NanogptBench bench{*opened.device, stream, kernels, weights, {.samples = 2}};
};

TEST(NanogptBench, MeasuresEveryModeOverTheSameTokens) {
  BenchMachine m;
  const NanogptLine line = m.bench.measure({"small", 4, 6});
  EXPECT_EQ(token_difference(line), std::nullopt);
  for (size_t mode = 0; mode < line.modes.size(); ++mode) {
    const NanogptFigures& figures = line.modes[mode];
    EXPECT_EQ(figures.greedy.size(), 6u);
    EXPECT_EQ(figures.sampled.size(), 6u);
    EXPECT_NE(figures.greedy, figures.sampled);
    for (const Spread* spread :
         {&figures.step_ms, &figures.end_to_end_ms, &figures.device_step_ms, &figures.build_ms}) {
      EXPECT_GT(spread->least, 0.0);
      EXPECT_LE(spread->least, spread->median);
      EXPECT_LE(spread->median, spread->most);
    }
    // Five of the six tokens come from steps, which are timed within the whole.
    EXPECT_GT(figures.end_to_end_ms.most, 5 * figures.step_ms.least);
    EXPECT_DOUBLE_EQ(line.tokens_per_s(mode), 6000.0 / figures.end_to_end_ms.median);
  }
  EXPECT_DOUBLE_EQ(line.step_speedup(0), 1.0);
  EXPECT_DOUBLE_EQ(line.end_to_end_speedup(2), line.modes[0].end_to_end_ms.median / line.modes[2].end_to_end_ms.median);
}

TEST(NanogptBench, FillsTheContextAndRefusesMore) {
  BenchMachine m;
  EXPECT_EQ(token_difference(m.bench.measure({"full", 4, 18})), std::nullopt);
  EXPECT_EQ(token_difference(m.bench.measure({"shortest", 20, 2})), std::nullopt);
  for (const NanogptConfiguration& c : {NanogptConfiguration{"too long", 4, 19}, {"no step", 4, 1}}) {
    try {
      m.bench.measure(c);
      ADD_FAILURE() << c.name;
    } catch (const Error& error) {
      EXPECT_EQ(error.parts().fault, Fault::usage);
      EXPECT_NE(std::string(error.what()).find("2 to 18"), std::string::npos) << error.what();
    }
  }
}

TEST(NanogptBench, HasTheArticlesRows) {
  const std::vector<NanogptConfiguration> rows = nanogpt_named_configurations();
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[3], (NanogptConfiguration{"heavy_prompt", 32, 16}));
  EXPECT_EQ(nanogpt_sweep_lengths(), (std::vector<int64_t>{8, 16, 32, 48, 56}));
}

NanogptLine line_of(std::vector<int32_t> tokens) {
  NanogptLine line;
  for (NanogptFigures& figures : line.modes) figures.greedy = figures.sampled = tokens;
  return line;
}

TEST(TokenDifference, NamesTheModeThePlaceAndBothTokens) {
  EXPECT_EQ(token_difference(line_of({1, 2, 3})), std::nullopt);
  NanogptLine line = line_of({1, 2, 3});
  line.modes[2].sampled[1] = 7;
  EXPECT_EQ(token_difference(line), "sampled token 1 is eager 2, explicit 7");
  line = line_of({1, 2, 3});
  line.modes[0].greedy[2] = 9;
  EXPECT_EQ(token_difference(line), "greedy token 2 is eager 9, captured 3");
}

TEST(TokenDifference, SeesAMissingTokenAndAChangeFromSampleToSample) {
  NanogptLine line = line_of({1, 2, 3});
  line.modes[1].greedy.pop_back();
  EXPECT_EQ(token_difference(line), "greedy token 2 is eager 3, captured none");
  line = line_of({1, 2, 3});
  line.changed = "explicit";
  EXPECT_EQ(token_difference(line), "explicit chose other tokens in another sample");
}

TEST(Spread, IsTheMiddleAndTheEnds) {
  const Spread spread = spread_of({3.0, 1.0, 10.0, 2.0, 4.0});
  EXPECT_EQ(spread.median, 3.0);
  EXPECT_EQ(spread.least, 1.0);
  EXPECT_EQ(spread.most, 10.0);
  EXPECT_EQ(spread_of({}).median, 0.0);
}

}  // namespace
}  // namespace nodewright
