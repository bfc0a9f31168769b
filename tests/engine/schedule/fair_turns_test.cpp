// Clients and calls share an engine: counted in requests that run and in steps, never in seconds.
#include "engine/schedule/fair_turns.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "engine/schedule/scheduler.h"

namespace nodewright {
namespace {

constexpr int64_t kRows = 8;

SchedulerOptions options() { return {.decode_buckets = BucketSet({kRows}), .prefill_buckets = BucketSet({64})}; }

// A pipeline of eight rows with as many pages as they need, driven by the scheduler without a device.
class FairEngine {
 public:
  explicit FairEngine(Reserve reserve = Reserve::prompt)
      : pipeline_(KvPool({.pages = 1000, .page_tokens = 16, .sequences = kRows}),
                  {.max_context = 1024, .reserve = reserve}) {}

  // Adds a call of `outputs` outputs and returns the id of the first.
  RequestId submit(int outputs, uint64_t client = 0, int64_t max_tokens = 500) {
    return submit_prompts(std::vector<std::vector<int32_t>>(static_cast<size_t>(outputs), {1, 2, 3}), client,
                          max_tokens);
  }
  RequestId submit_prompts(const std::vector<std::vector<int32_t>>& prompts, uint64_t client, int64_t max_tokens) {
    RequestId first = 0;
    for (const std::vector<int32_t>& prompt : prompts) {
      RequestSpec spec{.prompt = prompt, .max_tokens = max_tokens, .call = first, .client = client};
      const RequestId id = pipeline_.submit(std::move(spec)).id.value();
      if (first == 0) first = id;
    }
    return first;
  }
  // Until a step has been committed.
  void step() {
    for (const uint64_t before = steps_; steps_ == before;) {
      const Selection next = select_next(pipeline_, options());
      switch (next.action) {
        case Selection::Action::admit:
          ASSERT_TRUE(pipeline_.admit());
          break;
        case Selection::Action::preempt:
          pipeline_.preempt();
          break;
        case Selection::Action::launch:
          pipeline_.launch(next.step);
          pipeline_.sample();
          break;
        case Selection::Action::sample:
          pipeline_.sample();
          break;
        case Selection::Action::start_commit: {
          const size_t rows = pipeline_.start_commit().plan.rows.size();
          const std::vector<RowResult> results(rows, {.token = 5});
          for (const CommittedToken& token : pipeline_.finish_commit(results)) ++tokens_[token.request];
          ++steps_;
          break;
        }
        case Selection::Action::idle:
          FAIL() << next.reason;
      }
    }
    pipeline_.check();
  }
  // Steps until the request has its first token.
  int steps_until_token(RequestId id) {
    int steps = 0;
    for (; tokens_[id] == 0 && steps < 100; ++steps) step();
    return steps;
  }
  int64_t running(RequestId first, RequestId last) const {
    return std::ranges::count_if(pipeline_.admitted(), [&](RequestId id) { return id >= first && id <= last; });
  }
  PipelineState& pipeline() { return pipeline_; }
  int64_t tokens(RequestId id) { return tokens_[id]; }

 private:
  PipelineState pipeline_;
  std::map<RequestId, int64_t> tokens_;
  uint64_t steps_ = 0;
};

TEST(FairTurns, ACallOfThousandsOfOutputsKeepsNobodyWaitingForMoreThanAFewSteps) {
  FairEngine engine;
  const RequestId large = engine.submit(3968);
  for (int i = 0; i < 20; ++i) engine.step();
  EXPECT_EQ(engine.running(large, large + 3967), kRows);
  const int64_t before = engine.tokens(large);
  const RequestId small = engine.submit(1, 0, 1);
  EXPECT_LE(engine.steps_until_token(small), 4);
  for (int i = 0; i < 20; ++i) engine.step();
  EXPECT_GT(engine.tokens(large), before + 10) << "the large call goes on";
  EXPECT_EQ(engine.running(large, large + 3967), kRows);
}

TEST(FairTurns, LateCallsGetOneRowEachAndTakeTheOthersInTurn) {
  FairEngine engine;
  const RequestId first = engine.submit(100), second = engine.submit(100), third = engine.submit(100, 0, 3);
  for (int i = 0; i < 30; ++i) engine.step();
  EXPECT_EQ(engine.running(first, first + 99), 3);
  EXPECT_EQ(engine.running(second, second + 99), 3);
  EXPECT_EQ(engine.running(third, third + 99), 2);
  EXPECT_GT(engine.tokens(third), 0);
}

TEST(FairTurns, AClientOfManyCallsLeavesRowsToAnother) {
  FairEngine engine;
  std::vector<RequestId> crowd;
  for (int i = 0; i < 40; ++i) crowd.push_back(engine.submit(1, 1));
  for (int i = 0; i < 10; ++i) engine.step();
  const RequestId other = engine.submit(20, 2);
  EXPECT_LE(engine.steps_until_token(other), 4);
  EXPECT_EQ(engine.running(crowd.front(), crowd.back()), kRows - 1) << "one gave way, and no more than one";
  EXPECT_EQ(engine.pipeline().preemptions(), 1);
}

TEST(FairTurns, CallsOfOneOutputEachComeInTheirOrderAndNoneGivesWay) {
  FairEngine engine;
  std::vector<RequestId> all;
  for (int i = 0; i < 40; ++i) all.push_back(engine.submit(1, 0, 20));
  for (int i = 0; i < 60; ++i) engine.step();
  EXPECT_EQ(engine.pipeline().preemptions(), 0);
  for (size_t i = 1; i < all.size(); ++i) EXPECT_GE(engine.tokens(all[i - 1]), engine.tokens(all[i]));
}

// Prompts that have nothing in common, each of which fills three steps.
std::vector<std::vector<int32_t>> long_prompts(int count, int32_t salt) {
  std::vector<std::vector<int32_t>> prompts;
  for (int32_t i = 0; i < count; ++i) prompts.emplace_back(180, salt + i);
  return prompts;
}

TEST(PromptTurns, ACallOfManyPromptsKeepsAnotherWaitingForOneOfThem) {
  FairEngine engine;
  engine.submit_prompts(long_prompts(kRows - 1, 1000), 0, 500);
  engine.step();
  const RequestId other = engine.submit_prompts(long_prompts(1, 2000), 0, 1);
  EXPECT_LE(engine.steps_until_token(other), 13) << "before most of the others, which take 20";
}

TEST(PromptTurns, AShortPromptWaitsForNoLongOne) {
  FairEngine engine;
  engine.submit_prompts({std::vector<int32_t>(900, 7), std::vector<int32_t>(900, 8)}, 0, 5);
  engine.step();
  const RequestId small = engine.submit(1, 0, 1);
  EXPECT_LE(engine.steps_until_token(small), 3) << "the long ones take 30 steps";
  for (int i = 0; i < 30; ++i) engine.step();
  EXPECT_GT(engine.tokens(1), 0);
}

TEST(PromptTurns, AClientOfManyCallsKeepsAnotherWaitingForOneOfThem) {
  FairEngine engine;
  for (int32_t i = 0; i < kRows - 1; ++i) engine.submit_prompts(long_prompts(1, 1000 + i), 1, 500);
  engine.step();
  const RequestId other = engine.submit_prompts(long_prompts(1, 2000), 2, 1);
  EXPECT_LE(engine.steps_until_token(other), 13);
}

TEST(PromptTurns, CallsAfterEachOtherKeepTheirOrder) {
  FairEngine engine;
  std::vector<RequestId> calls;
  for (int32_t i = 0; i < kRows; ++i) calls.push_back(engine.submit_prompts(long_prompts(1, 1000 + i), 0, 500));
  for (int i = 0; i < 40; ++i) engine.step();
  for (size_t i = 1; i < calls.size(); ++i) EXPECT_GT(engine.tokens(calls[i - 1]), engine.tokens(calls[i]));
}

TEST(FairTurns, WherePagesAreReservedForAllNobodyGivesWayButTheNextRowIsAnothers) {
  FairEngine engine(Reserve::all);
  const RequestId large = engine.submit(100, 0, 10);
  for (int i = 0; i < 5; ++i) engine.step();
  const RequestId small = engine.submit(1, 0, 1);
  EXPECT_LE(engine.steps_until_token(small), 12) << "before the 92 others of the large call";
  EXPECT_EQ(engine.pipeline().preemptions(), 0);
  EXPECT_GT(engine.tokens(large), 0);
}

}  // namespace
}  // namespace nodewright
