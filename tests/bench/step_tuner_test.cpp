// The tuner on a small model: what it tries, what it takes, and what it refuses.
#include "bench/steps/step_tuner.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>

#include "runtime/device_selection.h"
#include "tests/support/error_text.h"
#include "tests/support/test_device.h"
#include "tests/support/test_places.h"

namespace nodewright {
namespace {

class StepTuner : public testing::Test {
 protected:
  Tuning tune(const TunerOptions& options) {
    return tune_steps(*opened_.device, kernels_, model_, options,
                      [&](const TunerTrial& trial) { trials_.push_back(trial); });
  }

  OpenedDevice opened_ = open_device(test::test_device());
  Stream stream_{*opened_.device, "tune"};
  KernelCache kernels_{*opened_.device};
  DecoderModel model_ =
      DecoderModel::load(*opened_.device, stream_, test::source_dir() / "tests/golden/llama/odd_sizes");
  std::vector<TunerTrial> trials_;
};

TEST_F(StepTuner, TakesWhatIsFasterAndNothingElse) {
  const Tuning tuning =
      tune({.rows = {1}, .context = 20, .parts = {"out"}, .samples = 3, .launches_per_sample = 1, .most_rounds = 1});
  EXPECT_EQ(tuning.key.model, model_sizes(model_.config()));
  EXPECT_EQ(tuning.key.device, opened_.device->properties().name);
  ASSERT_EQ(tuning.steps.size(), 1u);
  ASSERT_FALSE(trials_.empty());
  std::map<int64_t, StepTuning> expected{{1, {}}};
  for (const TunerTrial& trial : trials_) {
    EXPECT_TRUE(trial.number.starts_with("out.matvec.")) << trial.number;  // a step of one row has no tiles
    if (!trial.refused.empty()) continue;
    EXPECT_GT(trial.us, 0);
    EXPECT_EQ(trial.taken,
              trial.samples == 3 && trial.gain_us > 0.002 * trial.best_us && trial.gain_us > 3 * trial.error_us)
        << trial.number << " " << trial.value;
    if (!trial.taken) continue;
    MatvecTuning& out = expected[trial.rows].out.matvec;
    (trial.number == "out.matvec.threads" ? out.threads
     : trial.number == "out.matvec.batch" ? out.batch
                                          : out.blocks_per_sm) = std::stoll(trial.value);
  }
  EXPECT_TRUE(tuning.steps == expected);
}

TEST_F(StepTuner, GivesUpACandidateThatIsFarBehindAfterTwoSamples) {
  tune({.rows = {1}, .context = 20, .parts = {"out"}, .samples = 5, .launches_per_sample = 2, .most_rounds = 1});
  int given_up = 0;
  for (const TunerTrial& trial : trials_) {
    if (!trial.refused.empty() || trial.samples == 5) continue;
    ++given_up;
    EXPECT_EQ(trial.samples, 2);
    EXPECT_GT(trial.us, 1.03 * trial.best_us);
    EXPECT_FALSE(trial.taken);
  }
  if (opened_.driver->is_cpu()) {
    EXPECT_GT(given_up, 0) << "threads without a column take time on the CPU driver: up to half as much again";
  }
}

TEST_F(StepTuner, TriesNoPlanTwiceAgainstTheSameBest) {
  TunerOptions options{.rows = {1}, .context = 20, .parts = {"out"}, .samples = 1, .launches_per_sample = 1};
  options.least_errors = 0;
  options.least_gain = -1e9;  // the first is taken, whatever it takes, and no other: the second round finds nothing new
  std::map<std::pair<std::string, std::string>, int> tried;
  tune_steps(*opened_.device, kernels_, model_, options, [&](const TunerTrial& trial) {
    if (trial.taken) options.least_gain = 1;
    EXPECT_EQ(++tried[std::pair(trial.number, trial.value)], 1) << trial.number << " " << trial.value;
  });
  EXPECT_EQ(options.least_gain, 1);
  EXPECT_GT(tried.size(), 5u);
}

TEST_F(StepTuner, TakesNothingOfWhichItDoesNotKnowTheNoise) {
  tune({.rows = {1}, .context = 20, .parts = {"out"}, .samples = 2, .launches_per_sample = 1, .most_rounds = 1});
  EXPECT_FALSE(trials_.empty());
  for (const TunerTrial& trial : trials_) EXPECT_FALSE(trial.taken) << trial.number << " " << trial.value;
}

TEST_F(StepTuner, GivesWhatItFoundWhenItIsStopped) {
  TunerOptions options{.rows = {1, 2}, .context = 20, .parts = {"out"}, .samples = 1, .launches_per_sample = 1};
  options.least_errors = 0;
  options.least_gain = -1e9;
  options.stop = [&] { return !trials_.empty(); };
  const Tuning tuning = tune(options);
  EXPECT_EQ(trials_.size(), 1u);
  ASSERT_EQ(tuning.steps.size(), 1u);
  EXPECT_FALSE(tuning.steps.at(1) == StepTuning{});
}

// The CPU driver's reference has one algorithm.
TEST_F(StepTuner, LeavesAPromptAsItIsInUseWhereTheLibraryProposesNothing) {
  auto in_use = std::make_shared<Tuning>();
  in_use->products.down = {{17, 40}};
  in_use->steps[48].gate_up.product.config = {.algorithm = 66, .tile = 1, .stages = 1, .cluster = 7};
  const Tuning tuning = tune({.rows = {}, .prompts = {48}, .in_use = in_use, .samples = 1, .launches_per_sample = 1});
  ASSERT_EQ(tuning.steps.size(), 1u);
  EXPECT_EQ(tuning.steps.at(48).down.product.as_rows, 40);
  EXPECT_TRUE(tuning.steps.at(48).gate_up.product == ProductTuning{}) << "no version of the library proposes it";
  if (opened_.driver->is_cpu()) {
    EXPECT_TRUE(trials_.empty());
  }
}

TEST_F(StepTuner, NamesAPartThatAStepDoesNotHave) {
  expect_error([&] { tune({.parts = {"out", "embed"}}); }, {"embed", "no such part", "gate_up"});
  EXPECT_TRUE(trials_.empty());
}

}  // namespace
}  // namespace nodewright
