// An engine that sleeps and wakes on an observed device: what the tests of sleep share.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <string>

#include "engine/sleep.h"
#include "tests/engine/parity/golden_model.h"

namespace nodewright::test {

inline constexpr SleepLevel kLevels[] = {SleepLevel::weights_on_host, SleepLevel::weights_dropped};

inline EngineOptions sleep_options() { return {.max_batch = 3, .buckets = {2, 8}, .max_context = 2 * kPageTokens}; }

// A model, an engine of it, and both asleep or awake.
struct Sleeper {
  explicit Sleeper(const std::string& name, const EngineOptions& options = sleep_options(),
                   const std::string& spec = test_device(), const LoadOptions& load = {})
      : loaded(name, spec, Observe::yes, load),
        engine(loaded.device, loaded.kernels, loaded.model, options),
        sleep(engine, loaded.model) {}

  // Greedy ones, and one that is drawn with a seed.
  std::map<RequestId, Tokens> served() {
    std::map<RequestId, Tokens> outputs;
    RequestId first = 0;
    for (uint64_t i = 0; i < 4; ++i) {
      const auto submitted = engine.submit({.prompt = some_tokens(5 + 20 * i, loaded.vocab(), i), .max_tokens = 12},
                                           {.temperature = i == 1 ? 0.9f : 0.0f, .seed = 3});
      EXPECT_TRUE(submitted.id) << submitted.reason;
      if (first == 0) first = submitted.id.value_or(1);
    }
    while (engine.advance()) engine.pipeline().check();
    engine.take_tokens();
    for (const Resolution& end : engine.take_resolutions()) {
      EXPECT_EQ(end.reason, EndReason::length) << end.message;
      outputs[end.request - first] = end.outputs;
    }
    EXPECT_EQ(outputs.size(), 4u);
    return outputs;
  }
  // Whether `bytes` of device memory are free; a GPU takes and gives memory in blocks of 2 MiB.
  testing::AssertionResult has_free(uint64_t bytes) const {
    const uint64_t free = loaded.device.free_bytes(), slack = test_device_is_cuda() ? uint64_t{4} << 20 : 0;
    if (free + slack >= bytes && free <= bytes + slack) return testing::AssertionSuccess();
    return testing::AssertionFailure() << free << " bytes are free, expected " << bytes;
  }
  size_t handles() const { return loaded.opened.interposer->live().size(); }
  uint64_t host_memory() const { return loaded.opened.interposer->live_count(HandleKind::host_memory); }

  LoadedModel loaded;
  Engine engine;
  EngineSleep sleep;
};

// Serves `expected` after each level of sleep.
inline void expect_served_after_sleep(Sleeper& on, const std::map<RequestId, Tokens>& expected) {
  for (const SleepLevel level : kLevels) {
    on.sleep.sleep(level);
    on.sleep.wake();
    EXPECT_EQ(on.served(), expected);
  }
}

// Resident pages of this process, 4096 bytes each.
inline uint64_t resident_pages() {
  uint64_t size = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> size >> resident;
  return resident;
}

}  // namespace nodewright::test
