// Masks that take long on the engine's thread, in counted work: requests of costly masks take turns and stop nobody
// else, and where many turn costly at once they share a limit.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

#include "base/work_budget.h"
#include "engine/engine.h"
#include "tests/engine/parity/golden_model.h"
#include "tests/support/error_text.h"

namespace nodewright {
namespace {

class MaskWorkOnCpuDriver : public testing::Test {
 protected:
  // A mask of everything that takes so much work, a thousand units at a time.
  ChoiceOptions masks_of(uint64_t work) {
    return {.allow = [this, work](std::span<const int32_t>, std::span<uint32_t> allowed) {
      const uint64_t step = engine_.pipeline().forward()->number;
      if (work >= kCostly) ++costly_[step];
      for (uint64_t done = 0; done < work; done += 1000, spent_[step] += 1000) WorkBudget::spend(1000);
      std::ranges::fill(allowed, ~0u);
    }};
  }
  RequestId submit(ChoiceOptions choice, int64_t max_tokens, uint64_t salt) {
    return engine_
        .submit({.prompt = test::some_tokens(3, loaded_.vocab(), salt), .max_tokens = max_tokens}, {},
                std::move(choice))
        .id.value();
  }
  std::map<RequestId, Resolution> serve() {
    while (engine_.advance()) continue;
    std::map<RequestId, Resolution> ends;
    for (Resolution& end : engine_.take_resolutions()) ends[end.request] = std::move(end);
    return ends;
  }

  static constexpr uint64_t kCostly = 5'000'000;
  test::LoadedModel loaded_{"llama/odd_sizes", "cpu", Observe::yes};
  Engine engine_{loaded_.device, loaded_.kernels, loaded_.model,
                 EngineOptions{.max_batch = 8, .max_context = 128, .choices = true}};
  std::map<uint64_t, int> costly_;      // masks by the number of their step
  std::map<uint64_t, uint64_t> spent_;  // units
};

TEST_F(MaskWorkOnCpuDriver, CostlyMasksTakeTurnsAndEveryRequestEnds) {
  constexpr int64_t kTokens = 6;
  std::vector<RequestId> costly;
  for (uint64_t i = 0; i < 5; ++i) costly.push_back(submit(masks_of(kCostly), kTokens, i));
  const RequestId plain = submit({}, 20, 7), cheap = submit(masks_of(2000), 20, 8);
  std::map<RequestId, Resolution> ends = serve();
  for (const RequestId id : costly) EXPECT_EQ(ends.at(id).outputs.size(), static_cast<size_t>(kTokens));
  EXPECT_EQ(ends.at(plain).outputs.size(), 20u);
  EXPECT_EQ(ends.at(cheap).outputs.size(), 20u);
  int together = 0;  // steps with more than one, in which nobody knew yet
  for (const auto& [step, masks] : costly_) together += masks > 1;
  EXPECT_LE(together, 2);
  EXPECT_GE(std::ssize(costly_), 5 * (kTokens - 2));
}

TEST_F(MaskWorkOnCpuDriver, WhereManyTurnCostlyAtOnceTheyShareALimitAndTheCheapGoOn) {
  std::vector<RequestId> costly;
  for (uint64_t i = 0; i < 6; ++i) costly.push_back(submit(masks_of(30'000'000), 3, i));
  const RequestId cheap = submit(masks_of(500'000), 4, 9);
  std::map<RequestId, Resolution> ends = serve();
  EXPECT_EQ(ends.at(cheap).reason, EndReason::length) << ends.at(cheap).message;
  const auto failed =
      std::ranges::find_if(costly, [&](RequestId id) { return ends.at(id).reason == EndReason::failed; });
  ASSERT_NE(failed, costly.end());
  expect_words(ends.at(*failed).message, {"the mask of output", "units of work", "other requests"});
  EXPECT_EQ(ends.at(costly.front()).reason, EndReason::length) << "alone it may";
  for (const auto& [step, units] : spent_) EXPECT_LE(units, 72'000'000u) << step;
}

}  // namespace
}  // namespace nodewright
