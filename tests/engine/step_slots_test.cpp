// Two slots over one cache: what a step chose reaches the next on the device, however slow it is, and its tokens reach
// the host without waiting for the next.
#include "engine/step_slots.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "tests/engine/golden_model.h"

namespace nodewright {
namespace {

constexpr int kSlotRows = 8;
constexpr int64_t kSlotPages = kSlotRows + 2;  // one for each sequence, two that nobody owns

class StepSlotsTest : public testing::Test {
 protected:
  StepSlotsTest()
      : slots_(loaded_.device, loaded_.kernels, loaded_.model,
               {.buckets = BucketSet({kSlotRows}),
                .max_context = kPageTokens,
                .sequences = kSlotRows,
                .pages = kSlotPages}) {}

  // Every sequence's token at `position`: its first is given, the others are what the step before chose.
  void write(int slot, int64_t position) {
    for (int32_t row = 0; row < kSlotRows; ++row)
      write_row(slots_.inputs(slot, kSlotRows), row,
                {.token = position == 0 ? 3 + row : -1,
                 .position = position,
                 .sequence = row,
                 .output = position,
                 .sampling = {.temperature = 0.8f, .seed = static_cast<uint64_t>(row)},
                 .pages = {&pages_[static_cast<size_t>(row)], 1}});
  }
  void launch(int slot, std::span<const PageCopy> copies = {}) {
    slots_.launch({.slot = slot,
                   .bucket = kSlotRows,
                   .live = kSlotRows,
                   .sampled = kSlotRows,
                   .copies = copies,
                   .prompt = false});
    slots_.sample(slot);
  }
  std::vector<int32_t> tokens(int slot) {
    const std::span<const int32_t> chosen = slots_.wait(slot);
    return {chosen.begin(), chosen.end()};
  }

  // The tokens of six steps. Slot 0 is slowed by `copies`, and is launched again only when its tokens were read.
  std::vector<std::vector<int32_t>> six_steps(bool one_at_a_time, std::span<const PageCopy> copies) {
    constexpr int kSteps = 6;
    std::vector<std::vector<int32_t>> all;
    for (int step = 0; step < kSteps; ++step) {
      const int slot = step % kSlots;
      if (!one_at_a_time && step >= kSlots) all.push_back(tokens(slot));
      write(slot, step);
      launch(slot, slot == 0 ? copies : std::span<const PageCopy>{});
      if (one_at_a_time) all.push_back(tokens(slot));
    }
    for (int step = static_cast<int>(all.size()); step < kSteps; ++step) all.push_back(tokens(step % kSlots));
    return all;
  }

  test::LoadedModel loaded_{"llama/odd_sizes"};
  StepSlots slots_;
  std::vector<int32_t> pages_ = [] {
    std::vector<int32_t> pages(kSlotRows);
    std::iota(pages.begin(), pages.end(), 0);
    return pages;
  }();
};

TEST_F(StepSlotsTest, AStepReadsWhatTheOneBeforeChoseAndItsOwnInputsHoweverSlowThatWas) {
  const std::vector<std::vector<int32_t>> expected = six_steps(true, {});
  ASSERT_NE(expected[1], expected[2]);
  const std::vector<PageCopy> slow(1000, PageCopy{.from = kSlotRows, .to = kSlotRows + 1});
  EXPECT_EQ(six_steps(false, slow), expected);
  EXPECT_EQ(six_steps(false, {}), expected);
}

// Steps behind the one that is waited for, dozens of them, are not.
TEST_F(StepSlotsTest, TheTokensOfAStepWaitForNothingThatWasSubmittedLater) {
  using Clock = std::chrono::steady_clock;
  write(0, 0);
  write(1, 0);
  launch(0), launch(1);
  const std::vector<int32_t> first = tokens(0);
  ASSERT_EQ(tokens(1), first);
  launch(0);
  for (int i = 0; i < 60; ++i) launch(1);
  const auto start = Clock::now();
  EXPECT_EQ(tokens(0), first);
  const auto between = Clock::now();
  EXPECT_EQ(tokens(1), first);
  EXPECT_LT(between - start, (Clock::now() - start) / 4);
}

}  // namespace
}  // namespace nodewright
