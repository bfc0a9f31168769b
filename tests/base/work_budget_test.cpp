// Counted work: budgets nest by thread, run out, and are cancelled.
#include "base/work_budget.h"

#include <gtest/gtest.h>

#include <thread>

namespace nodewright {
namespace {

void spend(uint64_t units) {
  for (uint64_t i = 0; i < units; i += 1000) WorkBudget::spend(1000);
}

TEST(WorkBudget, EndsWhatTakesMoreThanItMay) {
  spend(10'000'000);  // nobody's
  WorkBudget budget(3'000'000);
  spend(2'900'000);
  EXPECT_THROW(spend(200'000), WorkExceeded);
  EXPECT_GE(budget.spent(), 3'000'000u);
  EXPECT_LE(budget.spent(), 3'001'000u);
}

TEST(WorkBudget, IsSpentFromAllThatStandAroundIt) {
  WorkBudget outer(5'000'000);
  {
    WorkBudget inner(100'000'000);
    EXPECT_THROW(spend(6'000'000), WorkExceeded);
  }
  EXPECT_THROW(WorkBudget::spend(1'000), WorkExceeded) << "the outer one is spent, whatever the inner one allowed";
}

TEST(WorkBudget, EndsWhatNobodyWantsWithinAMillionUnits) {
  bool is_gone = false;
  WorkBudget budget(UINT64_MAX - 1, [&] { return is_gone; });
  spend(10'000'000);
  is_gone = true;
  const uint64_t before = budget.spent();
  EXPECT_THROW(spend(2'000'000), WorkCancelled);
  EXPECT_LE(budget.spent() - before, 1'001'000u);
}

TEST(WorkBudget, IsThatOfItsThreadAlone) {
  WorkBudget budget(1'000);
  std::thread([] { spend(10'000'000); }).join();
  EXPECT_EQ(budget.spent(), 0u);
}

}  // namespace
}  // namespace nodewright
