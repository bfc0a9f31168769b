// How requests come into the pipeline, end in it, and what they may launch until then.
#include "engine/schedule/pipeline.h"
#include "tests/engine/schedule/pipeline_fixture.h"

namespace nodewright {
namespace {

// Submission and admission

TEST_F(PipelineTest, StartsDrainedAndRunning) {
  EXPECT_EQ(state().mode(), PipelineMode::running);
  EXPECT_TRUE(state().is_drained());
  EXPECT_EQ(state().free_slot(), 0);
  EXPECT_EQ(state().describe(), "running; 0 requests waiting, 0 admitted");
  state().check();
}

TEST_F(PipelineTest, NumbersRequestsInTheOrderOfSubmission) {
  EXPECT_EQ(submit(), 1);
  EXPECT_EQ(submit(), 2);
  EXPECT_EQ(state().waiting(), (std::deque<RequestId>{1, 2}));
}

TEST_F(PipelineTest, RefusesARequestThatCanNeverBeServedAndGivesTheReason) {
  const auto reason = [&](RequestSpec spec) {
    const auto submitted = state().submit(std::move(spec));
    EXPECT_FALSE(submitted.id);
    return submitted.reason;
  };
  EXPECT_EQ(reason({.prompt = {}}), "the prompt is empty");
  EXPECT_EQ(reason({.prompt = {1}, .max_tokens = 0}), "max_tokens is 0, below 1");
  EXPECT_EQ(reason({.prompt = counting(0, 32)}), "a prompt of 32 tokens leaves no output in a context of 32");
  start_over({.pages = 2});
  EXPECT_EQ(reason({.prompt = counting(0, 8), .max_tokens = 2}), "9 tokens need 3 pages, and the cache has 2");
  EXPECT_TRUE(state().submit({.prompt = counting(0, 8), .max_tokens = 1}).id);
  EXPECT_EQ(submit(1), 2);  // a refused request takes no number
}

TEST_F(PipelineTest, RefusesMoreThanMayWait) {
  start_over({.max_waiting = 1});
  submit();
  EXPECT_EQ(state().submit({.prompt = {1}}).reason, "1 requests are waiting, the most that may");
  state().admit();
  submit();
}

TEST_F(PipelineTest, AdmitsTheOldestFirst) {
  submit(), submit();
  EXPECT_EQ(state().why_not_admit(), "");
  EXPECT_TRUE(state().admit());
  state().check();
  EXPECT_EQ(state().admitted(), std::vector<RequestId>{1});
  EXPECT_EQ(state().find(1)->phase(), RequestPhase::prefilling);
  EXPECT_EQ(state().find(2)->phase(), RequestPhase::waiting);
}

TEST_F(PipelineTest, AdmitsNobodyPastTheOneThatDoesNotFit) {
  start_over({.pages = 4});
  submit(8), submit(8), submit(1);
  EXPECT_TRUE(state().admit());
  EXPECT_FALSE(state().admit());
  EXPECT_EQ(state().why_not_admit(), "10 tokens need 3 more pages, and 1 of 4 are free or cached");
  state().check();
}

TEST_F(PipelineTest, ReservesExactlyWhatARequestMayWrite) {
  submit(6, false, 3);  // positions 0 to 7: the last output is never read
  submit(7, false, 3);
  state().admit(), state().admit();
  EXPECT_EQ(state().pool().table(0).size(), 2u);
  EXPECT_EQ(state().pool().table(1).size(), 3u);
}

TEST_F(PipelineTest, CountsZombiesAgainstTheSequences) {
  start_over({.sequences = 1});
  const RequestId a = decoding();
  submit();
  step({a});
  state().cancel(a);
  EXPECT_EQ(state().why_not_admit(), "all 1 sequences are in use");
  EXPECT_FALSE(state().admit());
  commit();
  EXPECT_TRUE(state().admit());
}

// Ends

TEST_F(PipelineTest, EndsAtAStopIdAndKeepsIt) {
  const RequestId a = decoding();
  step({a});
  EXPECT_EQ(commit({kStop}), (std::vector<CommittedToken>{{a, kStop, EndReason::stop_id}}));
  const auto resolutions = state().take_resolutions();
  ASSERT_EQ(resolutions.size(), 1u);
  EXPECT_EQ(resolutions[0].outputs, (std::vector<int32_t>{7, kStop}));
  EXPECT_EQ(state().find(a), nullptr);
  EXPECT_EQ(state().pool().owned_pages(), 0);
  EXPECT_TRUE(state().take_resolutions().empty());
}

TEST_F(PipelineTest, EndsAtAStopString) {
  const RequestId a = decoding();
  step({a});
  state().start_commit();
  state().finish_commit({{RowResult{7, true}}});
  EXPECT_EQ(ends(), (Ends{{a, EndReason::stop_string}}));
}

TEST_F(PipelineTest, AStopIdComesBeforeAStopStringAndBothBeforeTheLength) {
  const RequestId a = decoding(2), b = decoding(2);
  step({a, b});
  state().start_commit();
  state().finish_commit({{RowResult{kStop, true}, RowResult{7, true}}});
  EXPECT_EQ(ends(), (Ends{{a, EndReason::stop_id}, {b, EndReason::stop_string}}));
}

TEST_F(PipelineTest, EndsWithTheFirstTokenWhereOneIsAllOfThem) {
  const RequestId a = decoding(1);
  EXPECT_EQ(ends(), (Ends{{a, EndReason::length}}));
  EXPECT_EQ(state().find(a), nullptr);
}

TEST_F(PipelineTest, FailsARequestWhoseLogitsHoldANaNAndNoOther) {
  const RequestId a = decoding(), b = decoding();
  step({a, b});
  EXPECT_EQ(commit({-1, 5}), (std::vector<CommittedToken>{{b, 5, std::nullopt}}));
  const auto resolutions = state().take_resolutions();
  ASSERT_EQ(resolutions.size(), 1u);
  EXPECT_EQ(resolutions[0].reason, EndReason::failed);
  EXPECT_EQ(resolutions[0].message, "the logits of output 1 hold a NaN");
  EXPECT_EQ(state().mode(), PipelineMode::running);
  step({b});
}

TEST_F(PipelineTest, OffersNoPromptThePagesOfARequestThatFailed) {
  ASSERT_TRUE(state().submit({.prompt = counting(0, 9), .max_tokens = 4}).id);
  state().admit();
  launch(prefill({1}));
  sample();
  commit();
  step({1});
  commit({-1});
  EXPECT_EQ(state().pool().cached_pages(), 0);
}

// Zombies

TEST_F(PipelineTest, ARequestThatEndsWithAStepInFlightIsResolvedAtOnceAndFreedLater) {
  const RequestId a = decoding(), b = decoding();
  step({a, b}), step({a, b});
  commit({kStop, 5});
  EXPECT_EQ(ends(), (Ends{{a, EndReason::stop_id}}));
  EXPECT_EQ(state().find(a)->phase(), RequestPhase::finishing);
  EXPECT_EQ(state().pool().sequences_in_use(), 2);
  EXPECT_EQ(commit({6, 6}), (std::vector<CommittedToken>{{b, 6, std::nullopt}}));
  EXPECT_EQ(state().find(a), nullptr);
  EXPECT_EQ(state().pool().sequences_in_use(), 1);
  EXPECT_EQ(ends(), Ends{});
}

TEST_F(PipelineTest, EndsAtEveryOutputWithTheNextStepInFlight) {
  for (int last = 2; last <= 7; ++last)
    for (int depth = 1; depth <= kSlots; ++depth) {
      start_over({.sequences = 2, .depth = depth});
      const RequestId a = decoding(20), b = decoding(20);
      for (int output = 2; output <= last; ++output) {
        while (state().in_flight() < depth) step({a, b});
        const int32_t token = output == last ? kStop : 7;
        EXPECT_EQ(commit({token, 7}).size(), 2u);
      }
      EXPECT_EQ(state().find(a) != nullptr, depth == kSlots);
      EXPECT_EQ(ends(), (Ends{{a, EndReason::stop_id}}));
      while (!state().is_drained()) EXPECT_EQ(commit({7, 7}).size(), 1u);
      EXPECT_EQ(state().pool().owned_pages(), state().pool().pages_for(state().find(b)->reserved_length()));
    }
}

TEST_F(PipelineTest, AZombieIsInNoFurtherStep) {
  const RequestId a = decoding();
  step({a}), step({a});
  commit({kStop});
  refused([&] { state().launch(decode({a})); }, "request 1 is finishing");
}

TEST_F(PipelineTest, AZombiesStopIdAndNaNCountForNothing) {
  const RequestId a = decoding(), b = decoding();
  step({a, b}), step({a, b});
  commit({kStop, kStop});
  ends();
  EXPECT_TRUE(commit({kStop, -1}).empty());
  EXPECT_EQ(ends(), Ends{});
}

TEST_F(PipelineTest, CancelsInEveryPhase) {
  const RequestId waiting = submit();
  EXPECT_TRUE(state().cancel(waiting));
  const RequestId prefilling = submit();
  state().admit();
  EXPECT_TRUE(state().cancel(prefilling));
  const RequestId decodes = decoding();
  EXPECT_TRUE(state().cancel(decodes));
  const RequestId flying = decoding();
  step({flying});
  EXPECT_TRUE(state().cancel(flying));
  state().check();
  EXPECT_EQ(ends(), (Ends{{waiting, EndReason::cancelled},
                          {prefilling, EndReason::cancelled},
                          {decodes, EndReason::cancelled},
                          {flying, EndReason::cancelled}}));
  EXPECT_FALSE(state().cancel(flying));
  commit();
  EXPECT_FALSE(state().cancel(flying));
  EXPECT_FALSE(state().cancel(55));
  EXPECT_EQ(ends(), Ends{});
  EXPECT_EQ(state().pool().owned_pages(), 0);
}

TEST_F(PipelineTest, CancelsBetweenStartAndFinishOfACommit) {
  const RequestId a = decoding();
  step({a});
  state().start_commit();
  EXPECT_TRUE(state().cancel(a));
  EXPECT_TRUE(finish({7}).empty());
  EXPECT_EQ(state().find(a), nullptr);
}

TEST_F(PipelineTest, CancelsDuringAPrefill) {
  const RequestId a = submit(4, false, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 5, false}}});
  EXPECT_TRUE(state().cancel(a));
  sample();
  commit();
  EXPECT_EQ(state().find(a), nullptr);
  EXPECT_EQ(state().pool().owned_pages(), 0);
}

// Budgets

TEST_F(PipelineTest, LaunchesNoStepBeyondMaxTokens) {
  for (int64_t most = 1; most <= 3; ++most) {
    start_over({});
    const RequestId a = decoding(most);
    for (int64_t launched = 1; launched < most; ++launched) step({a});  // none is committed in between
    refused([&] { state().launch(decode({a})); }, most == 3 ? "2 steps are in flight" : "request 1");
    while (!state().is_drained()) commit();
    const auto resolutions = state().take_resolutions();
    ASSERT_EQ(resolutions.size(), 1u);
    EXPECT_EQ(static_cast<int64_t>(resolutions[0].outputs.size()), most);
    EXPECT_EQ(resolutions[0].reason, EndReason::length);
  }
}

TEST_F(PipelineTest, CountsTokensInFlightAsSpent) {
  const RequestId a = decoding(2), b = decoding(9);
  step({a, b});
  refused([&] { state().launch(decode({a, b})); }, "request 1 is decoding, with 1 of 2 outputs and 1 steps in flight");
  step({b});
}

TEST_F(PipelineTest, EndsWhereTheContextIsFullAtAnyPlaceOfAPage) {
  for (int64_t context = 4; context <= 13; ++context) {
    SCOPED_TRACE(context);
    start_over({.max_context = context});
    const RequestId a = decoding(100);
    while (state().find(a)) {
      if (state().find(a)->can_decode()) step({a});
      if (state().find(a)->in_flight() == kMostInFlight || !state().find(a)->can_decode()) commit();
    }
    const auto resolutions = state().take_resolutions();
    ASSERT_EQ(resolutions.size(), 1u);
    EXPECT_EQ(resolutions[0].reason, EndReason::length);
    EXPECT_EQ(static_cast<int64_t>(resolutions[0].outputs.size()), context - 3);
  }
}

}  // namespace
}  // namespace nodewright
