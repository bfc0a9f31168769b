// update_tables: runs of entries from pinned memory into tables, and nothing beside them.
#include "kernels_src/step/update_tables.h"

#include <gtest/gtest.h>

#include "tests/kernels/machine.h"
#include "tests/kernels/one_node.h"

namespace nodewright::test::update_tables_test {
namespace {

struct RunOfPages {
  int64_t to;
  std::vector<int32_t> pages;
};

void check(const std::vector<RunOfPages>& changes, size_t entries, int64_t sequences) {
  std::vector<TableRun> runs;
  std::vector<int32_t> pages, expected(entries, -7);
  for (const RunOfPages& change : changes) {
    runs.push_back({change.to, static_cast<int32_t>(pages.size()), static_cast<int32_t>(change.pages.size())});
    pages.insert(pages.end(), change.pages.begin(), change.pages.end());
    std::ranges::copy(change.pages, expected.begin() + change.to);
  }
  const auto count = static_cast<int32_t>(runs.size());
  runs.push_back({0, 0, 5});  // of an earlier step
  const Guarded<int32_t> n_runs("n_runs", std::vector{count}), of_runs("pages", pages),
      table("block_table", std::vector<int32_t>(entries, -7));
  const Guarded<TableRun> all("runs", runs);
  run_node(machine().kernels.kernel<UpdateTables>("update_tables", update_tables_shape(sequences)),
           {.n_runs = n_runs, .runs = all, .pages = of_runs, .block_table = table});
  EXPECT_EQ(table.read(), expected);
}

TEST(UpdateTables, CopiesEveryRunToItsPlaceAndNothingElse) {
  check({{0, {4}}}, 1, 1);
  check({{5, {1, 2, 3}}, {12, {9}}, {0, {7, 8}}}, 16, 3);
  std::vector<RunOfPages> many;
  for (int32_t i = 0; i < 300; ++i) {  // more runs than warps, and runs longer than a warp
    RunOfPages& run = many.emplace_back(RunOfPages{i * int64_t{100}, {}});
    for (int32_t page = 0; page < 1 + i % 100; ++page) run.pages.push_back(1000 * i + page);
  }
  check(many, 30000, 300);
}

}  // namespace
}  // namespace nodewright::test::update_tables_test
