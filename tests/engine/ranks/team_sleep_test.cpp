// An engine of several devices that sleeps and wakes: all give their memory back and take it again, or none does, and
// the tokens are those of before.
#include <map>

#include "engine/sleep.h"
#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/engine/sleeper.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

using namespace test;

const std::string kSleeperAdapter = "llama_all";

struct TeamSleeper {
  explicit TeamSleeper(const std::string& device = test_device())
      : loaded(golden_folder(base_of(kSleeperAdapter)), 2, device, false, Observe::yes),
        engine(loaded.places, options()),
        sleep(engine, loaded.models) {
    engine.load_adapter("own", engine.read_adapter(adapter_folder(kSleeperAdapter)));
  }
  static EngineOptions options() {
    EngineOptions options{.max_batch = 3, .buckets = {2, 8}, .max_context = 2 * kPageTokens, .choices = true};
    options.max_adapters = 2;
    options.max_adapter_rank = kGoldenRank;
    return options;
  }

  // Without an adapter, with one, and one that is drawn with a seed.
  std::map<RequestId, Tokens> served() {
    std::map<RequestId, Tokens> outputs;
    RequestId first = 0;
    for (uint64_t i = 0; i < 3; ++i) {
      const auto submitted = engine.submit({.prompt = some_tokens(5 + 20 * i, 131, i),
                                            .max_tokens = 10,
                                            .adapter = i == 1 ? std::string("own") : std::string()},
                                           {.temperature = i == 2 ? 0.9f : 0.0f, .seed = 3});
      EXPECT_TRUE(submitted.id) << submitted.reason;
      if (first == 0) first = submitted.id.value_or(1);
    }
    while (engine.advance()) engine.pipeline().check();
    for (const Resolution& end : engine.take_resolutions()) {
      EXPECT_EQ(end.reason, EndReason::length) << end.message;
      outputs[end.request - first] = end.outputs;
    }
    EXPECT_EQ(outputs.size(), 3u);
    return outputs;
  }
  std::vector<uint64_t> free_bytes() const {
    std::vector<uint64_t> bytes;
    for (const Device* device : loaded.devices) bytes.push_back(device->free_bytes());
    return bytes;
  }
  bool is_on_any_device() const {
    return std::ranges::any_of(loaded.models, [](const DecoderModel& model) { return model.is_on_device(); });
  }

  LoadedTeam loaded;
  Engine engine;
  EngineSleep sleep;
};

TEST(TwoDevicesSleep, ChoosesTheTokensOfBeforeAndFreesEveryDevice) {
  TeamSleeper on;
  const auto expected = on.served();
  const std::vector<uint64_t> awake = on.free_bytes();
  for (const SleepLevel level : kLevels) {
    const uint64_t of_engine = on.engine.slots().memory().total() - on.engine.slots().memory().graphs;
    const SleepChange change = on.sleep.sleep(level);
    EXPECT_TRUE(on.engine.is_asleep());
    EXPECT_FALSE(on.is_on_any_device());
    const std::vector<uint64_t> asleep = on.free_bytes();
    EXPECT_EQ(change.free_after, asleep[0] + asleep[1]);
    // A GPU's driver takes and gives back whole pages, of which this engine has less than one.
    for (size_t rank = 0; rank < 2 && on.loaded.devices[0]->driver().is_cpu(); ++rank)
      EXPECT_GE(asleep[rank] - awake[rank], of_engine * 9 / 10) << "rank " << rank;
    on.sleep.wake();
    EXPECT_FALSE(on.engine.is_asleep());
    EXPECT_EQ(on.served(), expected);
    for (const DecoderModel& model : on.loaded.models) EXPECT_FALSE(model.has_copy());
  }
  on.sleep.sleep(SleepLevel::weights_on_host);
  on.sleep.wake_weights();
  for (const DecoderModel& model : on.loaded.models) EXPECT_TRUE(model.is_on_device());
  EXPECT_TRUE(on.engine.is_asleep());
  on.sleep.wake();
  EXPECT_EQ(on.served(), expected);
}

// Somebody else has the memory of the second device meanwhile.
TEST(TeamSleepOnCpuDriver, GoesOnWhereMemoryOfOneDeviceIsShort) {
  TeamSleeper on("cpu:memory_mb=64");
  const auto expected = on.served();
  const MemoryUse use = on.engine.slots().memory();
  for (const SleepLevel level : kLevels) {
    on.sleep.sleep(level);
    const std::vector<uint64_t> free = on.free_bytes();
    for (const uint64_t left : {uint64_t{0}, use.weights + use.state / 2, use.weights + use.state + use.pages / 2}) {
      const DeviceBuffer taken(*on.loaded.devices[1], "taken", free[1] - left);
      expect_words(error_of([&] { on.sleep.wake(); }), {"wake the engine", "CUDA_ERROR_OUT_OF_MEMORY", "sleeps on"});
      EXPECT_TRUE(on.engine.is_asleep());
      EXPECT_EQ(on.sleep.level(), level);
      EXPECT_FALSE(on.is_on_any_device());
    }
    EXPECT_EQ(on.free_bytes(), free);
    on.sleep.wake();
    EXPECT_EQ(on.served(), expected);
  }
}

// Calls of the driver fail, one in each cycle, all over it: awake, or asleep on both devices and woken by the next try,
// or failed for good.
TEST(TeamSleepSweepOnCpuDriver, IsNeverHalfAsleepWhicheverCallFails) {
  for (const SleepLevel level : kLevels) {
    std::optional<TeamSleeper> on(std::in_place, "cpu");
    const auto expected = on->served();
    const auto cycle = [&] {
      on->sleep.sleep(level);
      on->sleep.wake();
      for (DecoderModel& model : on->loaded.models) model.forget_copy();  // its calls count, too
    };
    const uint64_t first = on->loaded.opened.interposer->calls();
    cycle();
    const uint64_t calls = on->loaded.opened.interposer->calls() - first;
    uint64_t errors = 0;
    for (uint64_t n = 0; n < calls; n += 1 + calls / 60) {
      Interposer& interposer = *on->loaded.opened.interposer;
      interposer.fail_call(n, CUDA_ERROR_UNKNOWN);
      const std::string error = error_of(cycle);
      interposer.fail_none();
      errors += !error.empty();
      SCOPED_TRACE("call " + std::to_string(n) + " of " + std::to_string(calls) + ": " + error);
      if (on->engine.pipeline().mode() == PipelineMode::failed) {
        on.reset();
        on.emplace("cpu");
      } else if (on->engine.is_asleep()) {
        EXPECT_NE(on->sleep.level(), SleepLevel::awake);
        on->sleep.wake();
      }
      ASSERT_EQ(on->sleep.level(), SleepLevel::awake);
      ASSERT_EQ(on->served(), expected);
    }
    EXPECT_GT(errors, 20u);
  }
}

}  // namespace
}  // namespace nodewright
