// Which buckets an engine's report suggests, against every choice.
#include "engine/engine_report.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

namespace nodewright {
namespace {

int64_t least_padding(const std::map<int, int64_t>& step_rows, size_t count) {
  std::vector<int> sizes;
  for (const auto& [rows, steps] : step_rows) sizes.push_back(rows);
  int64_t least = std::numeric_limits<int64_t>::max();
  for (uint32_t chosen = 0; chosen < 1u << sizes.size(); ++chosen) {
    std::vector<int> buckets;
    for (size_t i = 0; i < sizes.size(); ++i)
      if (chosen >> i & 1) buckets.push_back(sizes[i]);
    if (buckets.size() <= count && !buckets.empty() && buckets.back() == sizes.back())
      least = std::min(least, padding_of(step_rows, buckets));
  }
  return least;
}

TEST(EngineReport, SuggestsTheBucketsThatPadLeast) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    std::map<int, int64_t> step_rows;
    for (uint32_t sizes = 1 + random() % 8; sizes > 0; --sizes)
      step_rows[static_cast<int>(1 + random() % 40)] += 1 + random() % 100;
    const size_t count = 1 + random() % 5;
    const std::vector<int> buckets = suggest_buckets(step_rows, count);
    ASSERT_LE(buckets.size(), count);
    ASSERT_TRUE(std::ranges::is_sorted(buckets));
    EXPECT_EQ(buckets.back(), step_rows.rbegin()->first);
    EXPECT_EQ(padding_of(step_rows, buckets), least_padding(step_rows, count));
  }
  EXPECT_TRUE(suggest_buckets({}, 3).empty());
  EXPECT_EQ(suggest_buckets({{5, 10}}, 3), std::vector<int>{5});
}

TEST(EngineReport, AddsUpTheSlotsOfABucket) {
  const MemoryUse memory{.weights = 3000000, .state = 1000000, .graphs = 2000000, .pages = 4000000};
  BuiltGraphs built{.graphs = {{.slot = 0, .bucket = 4, .nodes = 16, .bytes = 1000000, .ms = 1},
                               {.slot = 1, .bucket = 4, .nodes = 16, .bytes = 1000000, .ms = 2},
                               {.slot = 0, .bucket = 0, .ms = 1}},
                    .products = 5,
                    .products_ms = 10.5,
                    .threads = 2,
                    .ms = 2.5,
                    .choice_ms = 0.75,
                    .free_before = 9000000,
                    .free_after = 7000000};
  const std::string text = start_report(built, memory);
  EXPECT_NE(text.find("bucket    4: 32 nodes, about 2.00 MB, 3.0 ms\n"), std::string::npos);
  EXPECT_NE(text.find("bucket    eager: 0 nodes"), std::string::npos);
  EXPECT_NE(text.find("products  5 of a library, their kernels loaded in 10.5 ms\n"), std::string::npos);
  EXPECT_NE(
      text.find("graphs    2 in 2 slots: 32 nodes, 2.5 ms on 2 threads; 9.00 MB free before, 2.00 MB less after\n"),
      std::string::npos);
  EXPECT_NE(text.find("choices   the graphs of second choices: 0.8 ms"), std::string::npos);
  EXPECT_NE(text.find("memory    10.0 MB: 3.00 MB of weights, 1.00 MB of state, about 2.00 MB of graphs, 4.00 MB of"),
            std::string::npos);
  built.choice_ms = 0;
  built.products = 0;
  EXPECT_EQ(start_report(built, memory).find("products"), std::string::npos);
  EXPECT_EQ(start_report(built, memory).find("choices"), std::string::npos);
}

}  // namespace
}  // namespace nodewright
