// Two slots over one cache: what a step chose reaches the next on the device, however slow it is, and its tokens reach
// the host without waiting for the next.
#include "engine/topology/step_slots.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <utility>

#include "tests/engine/parity/golden_model.h"

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
                 .sampling = {.temperature = 0.8f, .seed = static_cast<uint64_t>(row)}});
  }
  void launch(int slot, std::span<const PageCopy> copies = {}, std::vector<TablePages> tables = {}) {
    if (!std::exchange(told_, true))
      for (int32_t row = 0; row < kSlotRows; ++row) tables.push_back({row, 0, {&pages_[static_cast<size_t>(row)], 1}});
    slots_.launch({.slot = slot,
                   .bucket = kSlotRows,
                   .live = kSlotRows,
                   .sampled = kSlotRows,
                   .copies = copies,
                   .tables = tables,
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
  bool told_ = false;  // the tables
};

TEST_F(StepSlotsTest, AStepReadsWhatTheOneBeforeChoseAndItsOwnInputsHoweverSlowThatWas) {
  const std::vector<std::vector<int32_t>> expected = six_steps(true, {});
  ASSERT_NE(expected[1], expected[2]);
  const std::vector<PageCopy> slow(1000, PageCopy{.from = kSlotRows, .to = kSlotRows + 1});
  EXPECT_EQ(six_steps(false, slow), expected);
  EXPECT_EQ(six_steps(false, {}), expected);
}

TEST_F(StepSlotsTest, AChangedTableIsReadByTheStepItComesWithAndNotByTheOneBefore) {
  const std::vector<std::vector<int32_t>> expected = six_steps(true, {});
  const auto fill_page = [&](int32_t page) {
    const uint64_t bytes = KvCache::page_bytes(loaded_.model.config());
    for (int64_t layer = 0; layer < loaded_.model.config().layers; ++layer)
      fill_device(loaded_.device, slots_.cache().layer(layer).address() + static_cast<uint64_t>(page) * bytes,
                  std::byte{0xff}, bytes, "kv");
  };
  const int32_t mine = pages_[3], other = kSlotRows + 1;
  fill_page(mine), fill_page(other);
  write(0, 0), write(1, 1);
  const std::vector<PageCopy> slow(1000, PageCopy{.from = kSlotRows, .to = kSlotRows});
  launch(0, slow);
  launch(1, std::vector{PageCopy{.from = mine, .to = other}}, {{3, 0, {&other, 1}}});
  EXPECT_EQ(tokens(0), expected[0]);
  EXPECT_EQ(tokens(1), expected[1]);
  fill_page(mine);
  write(0, 2);
  launch(0);
  EXPECT_EQ(tokens(0), expected[2]);
}

// Steps after the one that is waited for, dozens of them, are not.
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
