// An engine that sleeps and wakes: the memory it frees, the tokens it chooses afterwards, what it refuses, and that
// nothing is lost where waking fails.
#include "engine/sleep.h"

#include <optional>

#include "tests/engine/parity/planted_checkpoint.h"
#include "tests/engine/sleeper.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

class SleepOfEachFamily : public testing::TestWithParam<std::string> {};

TEST_P(SleepOfEachFamily, ChoosesTheTokensOfBeforeFromWeightsOnTheHostAndFromTheCheckpoint) {
  Sleeper on(GetParam());
  const auto expected = on.served();
  const auto found_before = on.engine.pipeline().pool().stats().found_tokens;
  for (const SleepLevel level : kLevels) {
    on.sleep.sleep(level);
    EXPECT_TRUE(on.engine.is_asleep());
    EXPECT_EQ(on.sleep.level(), level);
    EXPECT_EQ(on.engine.pipeline().pool().cached_pages(), 0);
    EXPECT_EQ(on.engine.slots().memory().total(), 0u);
    on.sleep.wake();
    EXPECT_FALSE(on.engine.is_asleep());
    EXPECT_EQ(on.sleep.level(), SleepLevel::awake);
    EXPECT_FALSE(on.loaded.model.has_copy());
    EXPECT_EQ(on.served(), expected);
  }
  EXPECT_EQ(on.engine.pipeline().pool().stats().found_tokens, found_before) << "a page outlived its contents";
}

INSTANTIATE_TEST_SUITE_P(Golden, SleepOfEachFamily, testing::ValuesIn(kGoldenModels), golden_test_name);
INSTANTIATE_TEST_SUITE_P(Mixture, SleepOfEachFamily, testing::Values("qwen3_moe/every_second"), golden_test_name);

TEST(Sleep, KeepsTheModeOfAnEngineAndWhatItsRequestsMayAskFor) {
  for (const RunMode mode : {RunMode::captured, RunMode::eager}) {
    EngineOptions options = sleep_options();
    options.mode = mode;
    options.choices = true;
    options.speculate = 2;
    options.hidden = HiddenStates::last;
    Sleeper on("llama/odd_sizes", options);
    const auto penalized = [&] {
      ChoiceOptions choice;
      choice.repetition_penalty = 1.5f;
      EXPECT_TRUE(on.engine.submit({.prompt = {7, 8, 7, 8, 7}, .max_tokens = 9}, {}, std::move(choice)).id);
      while (on.engine.advance()) continue;
      return on.engine.take_resolutions().at(0).outputs;
    };
    const auto expected = on.served();
    const Tokens expected_penalized = penalized();
    on.sleep.sleep(SleepLevel::weights_on_host);
    on.sleep.wake();
    EXPECT_EQ(on.served(), expected) << to_string(mode);
    EXPECT_EQ(penalized(), expected_penalized) << to_string(mode);
  }
}

// With a cache that is large beside the device's own memory.
TEST(Sleep, GivesTheDeviceBackNineTenthsOfWeightsAndCacheAndMore) {
  EngineOptions options = sleep_options();
  options.choices = true;
  const ModelConfig config = read_model_config(golden_folder("../../models/demo"));
  const auto layers = static_cast<uint64_t>(config.layers);
  options.pages = static_cast<int64_t>((uint64_t{256} << 20) / (layers * KvCache::page_bytes(config)));
  Sleeper on("../../models/demo", options);
  const auto expected = on.served();
  const MemoryUse use = on.engine.slots().memory();
  ASSERT_GE(use.pages, uint64_t{255} << 20);
  for (const SleepLevel level : kLevels) {
    const uint64_t before = on.loaded.device.free_bytes();
    const SleepChange slept = on.sleep.sleep(level);
    EXPECT_EQ(slept.free_before, before);
    EXPECT_EQ(slept.free_after, on.loaded.device.free_bytes());
    EXPECT_GE(slept.free_after - slept.free_before, (use.weights + use.pages) / 10 * 9);
    const SleepChange woken = on.sleep.wake();
    EXPECT_GE(woken.free_before - woken.free_after, (use.weights + use.pages) / 10 * 9);
    EXPECT_EQ(on.engine.slots().memory().total(), use.total());
    EXPECT_EQ(on.engine.slots().cache().pages(), options.pages);
    EXPECT_EQ(on.served(), expected);
  }
}

// Pages that a memory limit has left are as many after it, though the limit was spent to the last page.
TEST(Sleep, WakesWithThePagesThatAMemoryLimitLeft) {
  EngineOptions options = sleep_options();
  uint64_t others = 0, page = 0;
  {
    const Sleeper unlimited("gemma3/window_16", options);
    const MemoryUse& use = unlimited.engine.slots().memory();
    page = use.pages / static_cast<uint64_t>(unlimited.engine.slots().cache().pages());
    others = use.total() - use.pages;
  }
  options.memory_limit = others + 19 * page + page / 2;
  Sleeper on("gemma3/window_16", options);
  const int64_t pages = on.engine.slots().cache().pages();
  const auto expected = on.served();
  on.sleep.sleep(SleepLevel::weights_on_host);
  on.sleep.wake();
  EXPECT_EQ(on.engine.slots().cache().pages(), pages);
  EXPECT_EQ(on.served(), expected);
}

TEST(Sleep, IsRefusedWhileARequestHasPagesAndThenChangesNothing) {
  Sleeper on("llama/odd_sizes");
  ASSERT_TRUE(on.engine.submit({.prompt = {1, 2, 3}, .max_tokens = 8}).id);
  ASSERT_TRUE(on.engine.advance());
  for (const SleepLevel level : kLevels)
    expect_error([&] { on.sleep.sleep(level); }, {"put the engine to sleep", "1 admitted"});
  expect_error([&] { on.sleep.sleep(SleepLevel::awake); }, {"level is 0", "1 or 2"});
  EXPECT_FALSE(on.engine.is_asleep());
  EXPECT_FALSE(on.loaded.model.has_copy());
  while (on.engine.advance()) continue;
  EXPECT_EQ(on.engine.take_resolutions().at(0).outputs.size(), 8u);
}

TEST(Sleep, LetsRequestsWaitAndNothingElseBeDone) {
  Sleeper on("llama/odd_sizes");
  on.sleep.sleep(SleepLevel::weights_on_host);
  const auto submitted = on.engine.submit({.prompt = {1, 2, 3}, .max_tokens = 8});
  ASSERT_TRUE(submitted.id);
  EXPECT_FALSE(on.engine.advance());
  expect_error([&] { on.engine.resume(); }, {"it sleeps", "wake()"});
  expect_error([&] { on.engine.rebuild_graphs({}); }, {"it sleeps"});
  expect_error([&] { on.engine.replace_weights(on.loaded.model); }, {"it sleeps"});
  on.sleep.wake();
  while (on.engine.advance()) continue;
  EXPECT_EQ(on.engine.take_resolutions().at(0).outputs.size(), 8u);
}

TEST(Sleep, GoesDeeperAndNeverLessDeepAndAgainIsNothing) {
  Sleeper on("llama/odd_sizes");
  const auto expected = on.served();
  on.sleep.wake();
  EXPECT_EQ(on.sleep.level(), SleepLevel::awake);
  on.sleep.sleep(SleepLevel::weights_on_host);
  const size_t handles = on.handles();
  on.sleep.sleep(SleepLevel::weights_on_host);
  EXPECT_EQ(on.handles(), handles);
  EXPECT_TRUE(on.loaded.model.has_copy());
  on.sleep.sleep(SleepLevel::weights_dropped);
  EXPECT_FALSE(on.loaded.model.has_copy());
  on.sleep.sleep(SleepLevel::weights_on_host);
  EXPECT_EQ(on.sleep.level(), SleepLevel::weights_dropped);
  on.sleep.wake();
  on.sleep.wake();
  EXPECT_EQ(on.served(), expected);
}

TEST(Sleep, BringsTheWeightsBackAloneAndSleepsOn) {
  Sleeper on("llama/odd_sizes");
  const auto expected = on.served();
  for (const SleepLevel level : kLevels) {
    const uint64_t whole = on.loaded.device.free_bytes();
    on.sleep.sleep(level);
    const uint64_t all_free = on.loaded.device.free_bytes();
    on.sleep.wake_weights();
    EXPECT_TRUE(on.engine.is_asleep());
    EXPECT_EQ(on.sleep.level(), level);
    EXPECT_LE(on.loaded.device.free_bytes(), all_free);
    on.sleep.wake_weights();
    on.sleep.sleep(level);  // they leave again
    EXPECT_TRUE(on.has_free(all_free));
    on.sleep.wake_weights();
    on.sleep.wake();
    EXPECT_TRUE(on.has_free(whole));
    EXPECT_EQ(on.served(), expected);
  }
}

TEST(Sleep, ReadsWhatTheCheckpointHoldsWhenItWakes) {
  PlantedCheckpoint planted("llama/odd_sizes");
  std::optional<Sleeper> on(planted.name());
  const auto before = on->served();
  planted.swap_heads();
  on->sleep.sleep(SleepLevel::weights_on_host);
  on->sleep.wake();
  EXPECT_EQ(on->served(), before);
  on->sleep.sleep(SleepLevel::weights_dropped);
  on->sleep.wake();
  const auto after = on->served();
  EXPECT_NE(after, before);
  on.emplace(planted.name());
  EXPECT_EQ(on->served(), after);
}

TEST(Sleep, OutlivesACheckpointThatIsGoneForAWhile) {
  PlantedCheckpoint planted("llama/odd_sizes");
  Sleeper on(planted.name());
  const auto expected = on.served();
  const std::filesystem::path file = planted.name() + "/model.safetensors", away = planted.name() + "/away";
  on.sleep.sleep(SleepLevel::weights_dropped);
  const size_t handles = on.handles();
  const uint64_t free = on.loaded.device.free_bytes();
  std::filesystem::rename(file, away);
  expect_error([&] { on.sleep.wake(); }, {"wake the engine", "model.safetensors", "wake it again"});
  expect_error([&] { on.sleep.wake_weights(); }, {"model.safetensors"});
  EXPECT_EQ(on.sleep.level(), SleepLevel::weights_dropped);
  EXPECT_EQ(on.handles(), handles);
  EXPECT_TRUE(on.has_free(free));
  std::filesystem::rename(away, file);
  on.sleep.wake();
  EXPECT_EQ(on.served(), expected);
}

TEST(Sleep, LeavesNothingBehindHoweverOften) {
  Sleeper on("llama/odd_sizes");
  const auto expected = on.served();
  const auto cycle = [&](SleepLevel level) {
    on.sleep.sleep(level);
    on.sleep.wake();
  };
  for (const SleepLevel level : kLevels) cycle(level), cycle(level);
  on.loaded.model.forget_copy();
  const size_t handles = on.handles();
  const uint64_t free = on.loaded.device.free_bytes(), resident = resident_pages();
  for (int i = 0; i < 100; ++i) cycle(kLevels[i % 2]);
  on.loaded.model.forget_copy();
  EXPECT_EQ(on.handles(), handles) << on.loaded.opened.interposer->describe_live();
  EXPECT_TRUE(on.has_free(free));
  EXPECT_LT(resident_pages(), resident + (uint64_t{32} << 20) / 4096);
  EXPECT_EQ(on.served(), expected);
}

TEST(Sleep, TellsTheTimeOfItsParts) {
  const auto names = [](const SleepChange& change) {
    std::vector<std::string> parts;
    double sum = 0;
    for (const SleepChange::Part& part : change.parts) {
      EXPECT_GE(part.seconds, 0) << part.name;
      parts.push_back(part.name);
      sum += part.seconds;
    }
    EXPECT_LE(sum, change.seconds);
    return parts;
  };
  using Names = std::vector<std::string>;
  Sleeper on("llama/odd_sizes");
  EXPECT_EQ(names(on.sleep.wake()), Names{});
  EXPECT_EQ(names(on.sleep.sleep(SleepLevel::weights_on_host)), (Names{"copy_weights", "free_engine", "free_weights"}));
  EXPECT_EQ(names(on.sleep.sleep(SleepLevel::weights_on_host)), Names{});
  EXPECT_EQ(names(on.sleep.wake_weights()), (Names{"take_weights", "await_weights"}));
  EXPECT_EQ(names(on.sleep.wake()), (Names{"take_weights", "build_engine", "await_weights"}));
}

// Somebody else has the memory meanwhile.
TEST(SleepOnCpuDriver, GoesOnWhereMemoryIsShortAndWakesWhenItIsThere) {
  Sleeper on("llama/odd_sizes", sleep_options(), "cpu:memory_mb=64");
  const auto expected = on.served();
  const MemoryUse use = on.engine.slots().memory();
  for (const SleepLevel level : kLevels) {
    on.sleep.sleep(level);
    const uint64_t free = on.loaded.device.free_bytes();
    const size_t handles = on.handles();
    for (const uint64_t left : {uint64_t{0}, use.weights + use.state / 2, use.weights + use.state + use.pages / 2}) {
      const DeviceBuffer taken(on.loaded.device, "taken", free - left);
      expect_error([&] { on.sleep.wake(); }, {"wake the engine", "CUDA_ERROR_OUT_OF_MEMORY", "make room", "sleeps on"});
      EXPECT_TRUE(on.engine.is_asleep());
      EXPECT_EQ(on.sleep.level(), level);
      EXPECT_FALSE(on.loaded.model.is_on_device());
      EXPECT_EQ(on.engine.pipeline().mode(), PipelineMode::paused);
    }
    EXPECT_EQ(on.handles(), handles) << on.loaded.opened.interposer->describe_live();
    EXPECT_TRUE(on.has_free(free));
    on.sleep.wake();
    EXPECT_EQ(on.served(), expected);
  }
}

// Every call of the driver fails once: the engine is awake, or asleep and can be woken, or has failed for good.
// Every stride-th call of a cycle fails in its turn.
void expect_never_half_asleep(uint64_t stride) {
  for (const SleepLevel level : kLevels) {
    std::optional<Sleeper> on("llama/odd_sizes");
    const auto expected = on->served();
    const auto wake = [&] {
      on->sleep.wake();
      on->loaded.model.forget_copy();  // its calls count, too
    };
    const auto cycle = [&] {
      on->sleep.sleep(level);
      wake();
    };
    const uint64_t first = on->loaded.opened.interposer->calls();
    cycle();
    const uint64_t calls = on->loaded.opened.interposer->calls() - first;
    uint64_t errors = 0, retried = 0, lost = 0;
    for (uint64_t n = 0; n < calls; n += stride) {
      Interposer& interposer = *on->loaded.opened.interposer;
      const size_t handles = on->handles();
      interposer.fail_call(n, CUDA_ERROR_UNKNOWN);
      const std::string error = error_of(cycle);
      interposer.fail_none();
      if (!error.empty()) ++errors, expect_words(error, {"CUDA_ERROR_UNKNOWN"});
      if (on->engine.pipeline().mode() == PipelineMode::failed) {
        ++lost;
        EXPECT_FALSE(on->engine.submit({.prompt = {1}, .max_tokens = 1}).id);
        on.emplace("llama/odd_sizes");
        continue;
      }
      if (on->engine.is_asleep()) {
        ++retried;
        ASSERT_EQ(error_of(wake), "") << "call " << n;
      }
      ASSERT_EQ(on->sleep.level(), SleepLevel::awake);
      ASSERT_EQ(on->handles(), handles) << "call " << n << ": " << interposer.describe_live();
      if (n / stride % 16 != 0) continue;
      ASSERT_EQ(on->served(), expected) << "call " << n;
    }
    EXPECT_EQ(on->served(), expected);
    EXPECT_GT(errors, calls / stride / 2);  // a call that frees throws nothing
    EXPECT_GT(retried, calls / stride / 4);
    EXPECT_LT(lost, 12u);  // the calls that ask for free memory, and those that wait for the device
  }
}

TEST(SleepOnCpuDriver, IsNeverHalfAsleepWhicheverOfSomeCallsFails) { expect_never_half_asleep(7); }
TEST(SleepSweepOnCpuDriver, IsNeverHalfAsleepWhicheverCallFails) { expect_never_half_asleep(1); }

}  // namespace
}  // namespace nodewright
