// Changes of block tables: each reaches its place on the device, also where one call has more than the pinned memory
// holds, and a call without changes launches nothing.
#include "engine/device/table_updates.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/engine/parity/golden_model.h"

namespace nodewright {
namespace {

class TableUpdatesTest : public testing::Test {
 protected:
  // 40 tables of 8192 entries: more than are held at once.
  static constexpr int32_t kTables = 40;
  static constexpr int64_t kEntries = 8192;

  std::vector<int32_t> tables() {
    loaded_.stream.synchronize();
    std::vector<int32_t> all(state_.block_table.count);
    read_view<int32_t>(loaded_.device, all, state_.block_table, "block_table");
    return all;
  }

  test::LoadedModel loaded_{"llama/odd_sizes"};
  DecodeSlot slot_{
      loaded_.device, loaded_.model.config(), {.max_context = kEntries * kPageTokens, .sequences = kTables}};
  DecodeState state_ = slot_.state(1);
  TableUpdates updates_{loaded_.device, loaded_.kernels, state_, loaded_.stream};
};

TEST_F(TableUpdatesTest, ReachTheirPlacesAndNoOther) {
  std::vector<int32_t> expected(state_.block_table.count, 0);
  const std::vector<int32_t> some{3, 1, 4, 1, 5};
  updates_.submit(std::vector<TablePages>{{7, 100, some}, {39, kEntries - 5, some}, {0, 0, std::span(some).first(1)}});
  std::ranges::copy(some, expected.begin() + 7 * kEntries + 100);
  std::ranges::copy(some, expected.end() - 5);
  expected[0] = 3;
  EXPECT_EQ(tables(), expected);
  updates_.submit({});
  EXPECT_EQ(tables(), expected);
}

TEST_F(TableUpdatesTest, ReachTheirPlacesWhereThereAreMoreThanArePinned) {
  std::vector<int32_t> expected(state_.block_table.count);
  std::iota(expected.begin(), expected.end(), 1);
  std::vector<TablePages> all;
  for (int32_t sequence = 0; sequence < kTables; ++sequence)
    all.push_back({sequence, 0, std::span(expected).subspan(static_cast<size_t>(sequence) * kEntries, kEntries)});
  updates_.submit(all);
  EXPECT_EQ(tables(), expected);
}

}  // namespace
}  // namespace nodewright
