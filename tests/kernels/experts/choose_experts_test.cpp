// choose_experts and group_by_expert against a sort.
#include "kernels_src/experts/choose_experts.h"

#include <gtest/gtest.h>

#include "kernels_src/experts/group_by_expert.h"
#include "tests/kernels/experts/experts_case.h"

namespace nodewright::test::choose_experts_test {
namespace {

struct Choice {
  std::vector<int32_t> experts;
  std::vector<float> weights;
};

Choice choose(const std::vector<float>& logits, int64_t rows, int64_t count, int64_t chosen, bool normalised,
              int32_t n_live) {
  const Guarded<float> in("logits", logits), weights("weights", at(rows * chosen));
  const Guarded<int32_t> experts("experts", at(rows * chosen)), live("n_live", std::vector{n_live});
  run_node(machine().kernels.kernel<ChooseExperts>(
               {"choose_experts", {{"kExperts", count}, {"kChosen", chosen}, {"kNormalised", normalised}}},
               choose_experts_shape(rows)),
           {.logits = in, .experts = experts, .weights = weights, .n_live = live});
  return {experts.read(), weights.read()};
}

// The order of torch.topk, equal ones by number.
std::vector<int32_t> sorted(std::span<const float> logits) {
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int32_t a, int32_t b) { return logits[at(a)] > logits[at(b)]; });
  return order;
}

TEST(ChooseExperts, TakesTheLargestLogitsAndTheirPartsOfTheSoftmax) {
  for (const bool normalised : {false, true})
    for (const auto& [count, chosen] :
         {std::pair<int64_t, int64_t>{1, 1}, {7, 3}, {8, 8}, {64, 8}, {128, 8}, {257, 32}}) {
      constexpr int64_t kRows = 6;
      std::vector<float> logits(at(kRows * count));
      for (size_t i = 0; i < logits.size(); ++i)
        logits[i] = static_cast<float>(std::round(20 * noise(3, i)) / 4);  // ties
      const Choice choice = choose(logits, kRows, count, chosen, normalised, kRows);
      for (int64_t m = 0; m < kRows; ++m) {
        const auto row = row_of(logits, m, count, count);
        const std::vector<int32_t> order = sorted(row);
        double all = 0;
        for (int64_t i = 0; i < (normalised ? chosen : count); ++i)
          all += std::exp(static_cast<double>(row[at(order[at(i)])]));
        for (int64_t j = 0; j < chosen; ++j) {
          ASSERT_EQ(choice.experts[at(m * chosen + j)], order[at(j)])
              << "row " << m << ", choice " << j << " of " << count;
          ASSERT_NEAR(choice.weights[at(m * chosen + j)], std::exp(static_cast<double>(row[at(order[at(j)])])) / all,
                      1e-5);
        }
      }
    }
}

TEST(ChooseExperts, LeavesRowsThatDoNotCountAndNamesExpertsThatThereAreForAnyLogits) {
  std::vector<float> logits(3 * 5, kNaN);
  logits[5] = 1, logits[7] = -kInfinity;
  const Choice choice = choose(logits, 3, 5, 2, true, 2);
  EXPECT_EQ(choice.experts, (std::vector<int32_t>{0, 1, 0, 1, -1, -1}));
  EXPECT_TRUE(std::isnan(choice.weights[4]) && std::isnan(choice.weights[5]));
}

TEST(GroupByExpert, OrdersPairsAndCutsThemIntoJobs) {
  for (const auto& [rows, live] : {std::pair<int64_t, int64_t>{3, 3}, {8, 5}, {64, 64}, {300, 299}})
    for (const int64_t job_rows : {16, 32}) {
      const ExpertsCase c(rows, live, 9, 4, 1, 1);
      const Guarded<int32_t> experts("experts", c.of_rows), n_live("n_live", std::vector{c.n_live});
      ExpertTileShape shape{c.shape()};
      const Guarded<int32_t> pairs("pairs", at(shape.pairs())), n_jobs("n_jobs", 1);
      const Guarded<ExpertJob> jobs("jobs", at(shape.experts + shape.pairs() / job_rows));
      run_node(machine().kernels.kernel<GroupByExpert>({"group_by_expert",
                                                        {{"kExperts", c.experts},
                                                         {"kChosen", c.chosen},
                                                         {"kJobRows", job_rows},
                                                         {"kThreads", int64_t{shape.group_threads()}}}},
                                                       shape.group_launch()),
               {.experts = experts, .n_live = n_live, .pairs = pairs, .jobs = jobs, .n_jobs = n_jobs});
      std::vector<int32_t> expected(at(live * c.chosen));
      std::iota(expected.begin(), expected.end(), 0);
      std::ranges::stable_sort(expected, {}, [&](int32_t pair) { return c.of_rows[at(pair)]; });
      std::vector<int32_t> found = pairs.read();
      for (size_t i = expected.size(); i < found.size(); ++i) ASSERT_EQ(found[i], -1);
      found.resize(expected.size());
      ASSERT_EQ(found, expected);
      int64_t first = 0;
      const std::vector<ExpertJob> all = jobs.read();
      for (int32_t i = 0; i < n_jobs.read()[0]; ++i) {
        const ExpertJob& job = all.at(at(i));
        ASSERT_EQ(job.first, first);
        ASSERT_GT(job.count, 0);
        ASSERT_LE(job.count, job_rows);
        for (int64_t p = first; p < first + job.count; ++p) ASSERT_EQ(c.of_rows[at(expected[at(p)])], job.expert);
        const bool goes_on = i > 0 && all[at(i - 1)].expert == job.expert;
        ASSERT_TRUE(!goes_on || all[at(i - 1)].count == job_rows);
        first += job.count;
      }
      ASSERT_EQ(first, live * c.chosen);
    }
}

}  // namespace
}  // namespace nodewright::test::choose_experts_test
