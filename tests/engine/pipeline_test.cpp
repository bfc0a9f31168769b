// Each transition of the pipeline where it is allowed, and refused, with the state unchanged, where it is not. What
// combinations of them do is the matter of pipeline_model_test.cpp.
#include "engine/pipeline.h"

#include "tests/engine/pipeline_fixture.h"

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

// Launch

TEST_F(PipelineTest, LaunchTakesASlotAndCountsItsRows) {
  const RequestId a = decoding(), b = decoding();
  const InFlightStep& step = launch({a, b});
  EXPECT_EQ(step.number, 3u);
  EXPECT_EQ(state().in_flight(), 1);
  EXPECT_EQ(state().find(a)->in_flight(), 1);
  EXPECT_EQ(state().find(b)->computed(), 4);
  EXPECT_NE(state().free_slot(), step.slot);
}

TEST_F(PipelineTest, AlternatesBetweenTheSlots) {
  const RequestId a = decoding();
  int last = -1;
  for (int i = 0; i < 4; ++i) {
    const int slot = launch({a}).slot;
    EXPECT_NE(slot, last);
    last = slot;
    sample();
    commit();
  }
}

TEST_F(PipelineTest, RefusesASecondForward) {
  const RequestId a = decoding();
  launch({a});
  refused([&] { state().launch(decode({a})); }, "the forward of step 2 is not sampled");
}

TEST_F(PipelineTest, RefusesAThirdStepInFlight) {
  const RequestId a = decoding();
  step({a}), step({a});
  EXPECT_EQ(state().free_slot(), std::nullopt);
  refused([&] { state().launch(decode({a})); }, "2 steps are in flight, as many as may be");
}

TEST_F(PipelineTest, WithoutPipeliningRefusesASecondStep) {
  start_over({.depth = 1});
  const RequestId a = decoding();
  step({a});
  refused([&] { state().launch(decode({a})); }, "1 steps are in flight, as many as may be");
  commit();
  step({a});
}

TEST_F(PipelineTest, RefusesAStepWithoutRows) {
  refused([&] { state().launch({}); }, "the step has no rows");
}

TEST_F(PipelineTest, RefusesARequestTwiceInAStep) {
  const RequestId a = decoding(), b = decoding();
  refused([&] { state().launch(decode({a, b, a})); }, "request 1 has two rows");
}

TEST_F(PipelineTest, RefusesARowThatBeginsElsewhere) {
  const RequestId a = decoding();
  StepPlan stale = decode({a});
  step({a});
  refused([&] { state().launch(stale); }, "the row of request 1 begins at 3, and it has computed 4");
}

TEST_F(PipelineTest, RefusesARowThatChoosesAnotherOutput) {
  const RequestId a = decoding();
  StepPlan plan = decode({a});
  plan.rows[0].output = 0;
  refused([&] { state().launch(plan); }, "the row of request 1 chooses output 0, and 1 comes next");
}

TEST_F(PipelineTest, RefusesMoreTokensThanTheBucketHas) {
  const RequestId a = decoding(), b = decoding();
  StepPlan plan = decode({a, b});
  plan.bucket = 1;
  refused([&] { state().launch(plan); }, "2 tokens in a bucket of 1");
  plan.bucket = 2;
  launch(plan);
}

TEST_F(PipelineTest, RefusesRowsOfRequestsThatDoNotDecode) {
  const RequestId waiting = submit();
  refused([&] { state().launch(decode({waiting})); }, "request 1 is waiting");
  refused([&] { state().launch(decode({55})); }, "there is no request 55");
  state().admit();
  refused([&] { state().launch(decode({waiting})); }, "request 1 is not prefilled");
}

TEST_F(PipelineTest, RefusesSeveralTokensOfADecodingRow) {
  StepPlan plan = decode({decoding()});
  plan.rows[0].tokens = 2;
  refused([&] { state().launch(plan); }, "request 1 decodes one token a step");
  plan.rows[0] = {1, 3, 1, false, 1};
  refused([&] { state().launch(plan); }, "request 1 decodes one token a step");
}

TEST_F(PipelineTest, HandsThePagesToCopyToTheNextLaunch) {
  ASSERT_TRUE(state().submit({.prompt = counting(0, 8), .max_tokens = 1}).id);
  ASSERT_TRUE(state().submit({.prompt = counting(0, 8), .max_tokens = 1}).id);
  state().admit();
  EXPECT_TRUE(launch(prefill({1})).copies.empty());
  sample();
  commit();
  state().admit();
  EXPECT_EQ(state().find(2)->computed(), 7);
  EXPECT_EQ(launch(prefill({2})).copies.size(), 1u);
  sample();
  commit();
}

// Prefill

TEST_F(PipelineTest, PrefillsInChunksAndChoosesATokenAtTheLast) {
  const RequestId a = submit(4, false, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 5, false}}});
  sample();
  EXPECT_TRUE(commit().empty());
  EXPECT_EQ(state().find(a)->phase(), RequestPhase::prefilling);
  EXPECT_EQ(state().find(a)->prompt_left(), 2);
  launch({.kind = StepKind::prefill, .rows = {{a, 5, 2, true}}});
  sample();
  EXPECT_EQ(commit({42}), (std::vector<CommittedToken>{{a, 42, std::nullopt}}));
  EXPECT_EQ(state().find(a)->phase(), RequestPhase::decoding);
}

TEST_F(PipelineTest, RefusesAChunkThatIsTooLongOrSampledTooSoon) {
  const RequestId a = submit(4, false, 7);
  state().admit();
  const auto chunk = [&](int64_t tokens, bool samples) {
    state().launch({.kind = StepKind::prefill, .rows = {{a, 0, tokens, samples}}});
  };
  refused([&] { chunk(8, true); }, "8 tokens of request 1, sampled, and 7 of its prompt are left");
  refused([&] { chunk(5, true); }, "5 tokens of request 1, sampled");
  refused([&] { chunk(7, false); }, "7 tokens of request 1, not sampled");
  refused([&] { chunk(0, false); }, "0 tokens of request 1");
}

TEST_F(PipelineTest, PrefillWaitsUntilThePipelineIsDrained) {  // I5
  const RequestId a = decoding(), b = submit();
  state().admit();
  step({a});
  refused([&] { state().launch(prefill({b})); }, "a prefill needs a drained pipeline");
  state().start_commit();
  refused([&] { state().launch(prefill({b})); }, "a prefill needs a drained pipeline");
  finish({7});
  launch(prefill({b}));
}

TEST_F(PipelineTest, NothingIsLaunchedBesideAPrefill) {  // I5
  const RequestId a = decoding(), b = submit();
  state().admit();
  launch(prefill({b}));
  sample();
  refused([&] { state().launch(decode({a})); }, "step 2 is a prefill");
  state().start_commit();
  refused([&] { state().launch(decode({a})); }, "step 2 is a prefill");
  finish({7});
  launch({a, b});
}

TEST_F(PipelineTest, APrefillMayTakeDecodingRowsAlong) {
  const RequestId a = decoding(), b = submit();
  state().admit();
  launch(prefill({b, a}));
  sample();
  EXPECT_EQ(commit({1, 2}).size(), 2u);
  EXPECT_EQ(state().find(a)->outputs().size(), 2u);
}

TEST_F(PipelineTest, RefusesAPrefillWithoutAPrompt) {
  const RequestId a = decoding();
  refused([&] { state().launch(prefill({a})); }, "a prefill without a prompt");
}

TEST_F(PipelineTest, RefusesASecondChunkBeforeTheFirstIsCommitted) {
  const RequestId a = submit(4, false, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 5, false}}});
  sample();
  refused([&] { state().launch({.kind = StepKind::prefill, .rows = {{a, 5, 2, true}}}); }, "drained");
}

// Sampling

TEST_F(PipelineTest, SamplesAnUnconstrainedForwardAtOnce) {
  const RequestId a = decoding();
  step({a});
  launch({a});
  EXPECT_EQ(state().masks_needed(), std::vector<MaskKey>{});
  sample();
  EXPECT_EQ(state().sampled().size(), 2u);
}

TEST_F(PipelineTest, RefusesToSampleNothing) {
  refused([&] { state().sample(); }, "no forward is in flight");
  refused([&] { static_cast<void>(state().masks_needed()); }, "no forward is in flight");
}

TEST_F(PipelineTest, AConstrainedForwardIsSampledOnlyAfterTheTokenBeforeIsCommitted) {
  const RequestId a = decoding(8, true), b = decoding();
  step({a, b});
  launch({a, b});
  EXPECT_EQ(state().masks_needed(), std::nullopt);
  refused([&] { state().sample({{MaskKey{a, 2}}}); }, "a constrained row's token before this one is not committed");
  state().start_commit();
  refused([&] { state().sample({{MaskKey{a, 2}}}); }, "a constrained row's token before this one is not committed");
  finish({7, 7});
  EXPECT_EQ(state().masks_needed(), (std::vector<MaskKey>{{a, 2}}));
  sample();
}

TEST_F(PipelineTest, RefusesTheMaskOfTheTokenBefore) {
  const RequestId a = decoding(8, true);
  step({a});
  const std::vector<MaskKey> of_the_first = {{a, 1}};
  commit();
  launch({a});
  refused([&] { state().sample(of_the_first); }, "the mask of request 1 is for output 1, and 2 comes next");
}

TEST_F(PipelineTest, RefusesToSampleAConstrainedRowWithoutItsMask) {
  const RequestId a = decoding(8, true), b = decoding(8, true);
  launch({a, b});
  refused([&] { state().sample(); }, "request 1 has no mask");
  refused([&] { state().sample({{MaskKey{a, 1}}}); }, "request 2 has no mask");
  state().sample({{MaskKey{b, 1}, MaskKey{a, 1}}});
}

TEST_F(PipelineTest, TheFirstTokenOfAConstrainedRequestNeedsAMaskToo) {
  submit(8, true);
  state().admit();
  launch(prefill({1}));
  refused([&] { state().sample(); }, "request 1 has no mask");
  EXPECT_EQ(state().masks_needed(), (std::vector<MaskKey>{{1, 0}}));
}

TEST_F(PipelineTest, AChunkThatChoosesNothingNeedsNoMask) {
  const RequestId a = submit(4, true, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 5, false}}});
  EXPECT_EQ(state().masks_needed(), std::vector<MaskKey>{});
}

TEST_F(PipelineTest, AZombieNeedsNoMask) {
  const RequestId a = decoding(8, true), b = decoding();
  step({a, b});
  launch({a, b});
  commit({kStop, 7});
  EXPECT_EQ(state().masks_needed(), std::vector<MaskKey>{});
  state().sample({{MaskKey{a, 2}}});  // one that was made before is not looked at
  state().check();
}

TEST_F(PipelineTest, TheCopyOfAStepWaitsForNothingThatWasSubmittedLater) {  // I3
  const RequestId a = decoding();
  step({a});
  launch({a});
  EXPECT_LT(state().sampled().front().forward, state().sampled().front().sampling);
  EXPECT_LT(state().sampled().front().sampling, state().forward()->forward);
}

// Commit

TEST_F(PipelineTest, CommitsTheOldestFirst) {  // I2
  const RequestId a = decoding();
  step({a}), step({a});
  EXPECT_EQ(state().start_commit().number, 2u);
  finish({1});
  EXPECT_EQ(state().start_commit().number, 3u);
  finish({2});
  EXPECT_EQ(state().find(a)->outputs(), (std::vector<int32_t>{7, 1, 2}));
}

TEST_F(PipelineTest, KeepsTheSlotUntilTheCommitHasFinished) {  // I6
  const RequestId a = decoding();
  step({a}), step({a});
  const int slot = state().start_commit().slot;
  EXPECT_EQ(state().free_slot(), std::nullopt);
  refused([&] { state().launch(decode({a})); }, "2 steps are in flight");
  finish({7});
  EXPECT_EQ(state().free_slot(), slot);
  EXPECT_EQ(launch({a}).slot, slot);
}

TEST_F(PipelineTest, RefusesToCommitWhatIsNotSampled) {
  refused([&] { state().start_commit(); }, "no sampled step is in flight");
  const RequestId a = decoding();
  launch({a});
  refused([&] { state().start_commit(); }, "no sampled step is in flight");
}

TEST_F(PipelineTest, RefusesTwoCommitsAtOnce) {
  const RequestId a = decoding();
  step({a}), step({a});
  state().start_commit();
  refused([&] { state().start_commit(); }, "that of step 2 has not finished");
}

TEST_F(PipelineTest, RefusesToFinishACommitThatWasNotStarted) {
  const RequestId a = decoding();
  step({a});
  refused([&] { finish({7}); }, "none was started");
}

TEST_F(PipelineTest, RefusesAnotherNumberOfResultsThanRows) {
  const RequestId a = decoding();
  step({a});
  state().start_commit();
  refused([&] { finish({}); }, "0 results for 1 rows");
  refused([&] { finish({7, 7}); }, "2 results for 1 rows");
  finish({7});
}

TEST_F(PipelineTest, LaunchesIntoTheOtherSlotDuringACommit) {
  const RequestId a = decoding();
  step({a});
  state().start_commit();
  launch({a});
  EXPECT_EQ(state().find(a)->in_flight(), 2);
  finish({7});
  EXPECT_EQ(state().find(a)->in_flight(), 1);
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

// Revoke

TEST_F(PipelineTest, ARevokedLaunchLeavesNothingBehind) {
  const RequestId a = decoding(), b = decoding();
  step({a, b});
  const int slot = launch({a, b}).slot;
  state().revoke();
  state().check();
  EXPECT_EQ(state().find(a)->in_flight(), 1);
  EXPECT_EQ(state().find(a)->computed(), 4);
  EXPECT_EQ(state().free_slot(), slot);
  EXPECT_EQ(launch({a}).slot, slot);
}

TEST_F(PipelineTest, ARevokedLaunchKeepsItsCopiesForTheNext) {
  ASSERT_TRUE(state().submit({.prompt = counting(0, 8), .max_tokens = 1}).id);
  ASSERT_TRUE(state().submit({.prompt = counting(0, 8), .max_tokens = 1}).id);
  state().admit();
  launch(prefill({1}));
  sample();
  commit();
  state().admit();
  const std::vector<PageCopy> copies = launch(prefill({2})).copies;
  state().revoke();
  EXPECT_EQ(launch(prefill({2})).copies, copies);
}

TEST_F(PipelineTest, RefusesToRevokeASampledStep) {
  refused([&] { state().revoke(); }, "no forward is in flight");
  const RequestId a = decoding();
  step({a});
  refused([&] { state().revoke(); }, "no forward is in flight");
}

TEST_F(PipelineTest, ARequestCancelledBeforeARevokeEndsWithIt) {
  const RequestId a = decoding();
  launch({a});
  state().cancel(a);
  state().revoke();
  state().check();
  EXPECT_EQ(state().find(a), nullptr);
  EXPECT_EQ(state().pool().owned_pages(), 0);
}

// Pause and resume

TEST_F(PipelineTest, PausesAtOnceWhenDrained) {
  state().pause();
  EXPECT_EQ(state().mode(), PipelineMode::paused);
  state().resume(PipelineState::Rebuilt::nothing);
  EXPECT_EQ(state().mode(), PipelineMode::running);
}

TEST_F(PipelineTest, PausesWhenTheLastStepIsCommitted) {
  const RequestId a = decoding();
  step({a});
  launch({a});
  state().pause();
  EXPECT_EQ(state().mode(), PipelineMode::pausing);
  state().check();
  sample();
  commit();
  EXPECT_EQ(state().mode(), PipelineMode::pausing);
  commit();
  EXPECT_EQ(state().mode(), PipelineMode::paused);
}

TEST_F(PipelineTest, PausesWithAConstrainedForwardInFlight) {
  const RequestId a = decoding(8, true);
  step({a});
  launch({a});
  state().pause();
  refused([&] { state().sample({{MaskKey{a, 2}}}); }, "a constrained row's token before this one is not committed");
  commit();  // before it is sampled: the mask depends on it
  sample();
  commit();
  EXPECT_EQ(state().mode(), PipelineMode::paused);
}

TEST_F(PipelineTest, ARevokedLaunchMayBeTheLastBeforeAPause) {
  const RequestId a = decoding();
  launch({a});
  state().pause();
  state().revoke();
  state().check();
  EXPECT_EQ(state().mode(), PipelineMode::paused);
}

TEST_F(PipelineTest, LaunchesAndAdmitsNothingWhilePaused) {
  const RequestId a = decoding();
  submit();
  state().pause();
  refused([&] { state().launch(decode({a})); }, "the pipeline is paused");
  EXPECT_FALSE(state().admit());
  EXPECT_EQ(state().why_not_admit(), "the pipeline is paused");
  submit();  // is accepted, and waits
  EXPECT_TRUE(state().cancel(a));
  state().check();
}

TEST_F(PipelineTest, ResumesBeforeThePauseIsReached) {
  const RequestId a = decoding();
  step({a});
  state().pause();
  refused([&] { state().launch(decode({a})); }, "the pipeline is pausing");
  state().resume(PipelineState::Rebuilt::nothing);
  step({a});
}

TEST_F(PipelineTest, RefusesToResumeOnRebuiltGraphsWhileStepsAreInFlight) {
  const RequestId a = decoding();
  step({a});
  state().pause();
  refused([&] { state().resume(PipelineState::Rebuilt::graphs); }, "steps in flight would meet what was rebuilt");
  refused([&] { state().resume(PipelineState::Rebuilt::weights); }, "steps in flight would meet what was rebuilt");
  commit();
  state().resume(PipelineState::Rebuilt::graphs);
  step({a});
}

TEST_F(PipelineTest, RefusesToPauseTwiceAndToResumeWhatRuns) {
  refused([&] { state().resume(PipelineState::Rebuilt::nothing); }, "it is not paused");
  state().pause();
  refused([&] { state().pause(); }, "it is not running");
}

TEST_F(PipelineTest, NewWeightsEmptyThePrefixCacheAndNewGraphsDoNot) {
  for (const auto rebuilt : {PipelineState::Rebuilt::graphs, PipelineState::Rebuilt::weights}) {
    start_over({});
    const RequestId a = decoding(1, false, 9);
    EXPECT_EQ(state().find(a), nullptr);
    EXPECT_EQ(state().pool().cached_pages(), 2);
    state().pause();
    state().resume(rebuilt);
    EXPECT_EQ(state().pool().cached_pages(), rebuilt == PipelineState::Rebuilt::weights ? 0 : 2);
    state().check();
  }
}

TEST_F(PipelineTest, AThousandPausesLeaveNothingBehind) {
  const RequestId a = decoding(30);
  for (int i = 0; i < 1000; ++i) {
    state().pause();
    state().resume(i % 2 ? PipelineState::Rebuilt::graphs : PipelineState::Rebuilt::weights);
    launch({a});
    state().revoke();
  }
  state().cancel(a);
  state().check();
  EXPECT_EQ(state().pool().free_pages(), state().pool().options().pages);
}

// Failure

TEST_F(PipelineTest, AFatalErrorResolvesEveryRequestOnce) {
  const RequestId zombie = decoding(), flying = decoding(), idle = decoding();
  const RequestId prefilling = submit(), waiting = submit();
  state().admit();
  step({zombie, flying});
  launch({zombie, flying});
  commit({kStop, 7});
  EXPECT_EQ(ends(), (Ends{{zombie, EndReason::stop_id}}));
  state().fail("error 700");
  state().check();
  std::vector<Resolution> resolutions = state().take_resolutions();
  ASSERT_EQ(resolutions.size(), 4u);
  std::vector<RequestId> ids;
  for (const Resolution& resolution : resolutions) {
    EXPECT_EQ(resolution.reason, EndReason::failed);
    EXPECT_EQ(resolution.message, "error 700");
    ids.push_back(resolution.request);
  }
  EXPECT_EQ(ids, (std::vector<RequestId>{flying, idle, prefilling, waiting}));
  EXPECT_EQ(state().pool().free_pages(), state().pool().options().pages);
  EXPECT_EQ(state().pool().sequences_in_use(), 0);
  EXPECT_TRUE(state().is_drained());
}

TEST_F(PipelineTest, FailsInTheMiddleOfACommit) {
  const RequestId a = decoding();
  step({a}), step({a});
  state().start_commit();
  state().fail("error 719");
  state().check();
  EXPECT_EQ(ends(), (Ends{{a, EndReason::failed}}));
  refused([&] { finish({7}); }, "none was started");
}

TEST_F(PipelineTest, IsFailedForGood) {
  const RequestId a = decoding();
  state().fail("error 700");
  state().fail("error 1");
  EXPECT_EQ(state().take_resolutions().size(), 1u);
  EXPECT_EQ(state().submit({.prompt = {1}}).reason, "the engine has failed: error 700");
  EXPECT_FALSE(state().admit());
  EXPECT_FALSE(state().cancel(a));
  refused([&] { state().launch(decode({a})); }, "the pipeline is failed");
  refused([&] { state().pause(); }, "it is not running");
  refused([&] { state().resume(PipelineState::Rebuilt::nothing); }, "it is not paused");
}

TEST_F(PipelineTest, AFailureDuringAPauseEndsIt) {
  const RequestId a = decoding();
  step({a});
  state().pause();
  state().fail("error 700");
  state().check();
  EXPECT_EQ(state().mode(), PipelineMode::failed);
}

TEST_F(PipelineTest, RefusesADepthThatItHasNoSlotsFor) {
  EXPECT_THROW(start_over({.depth = 0}), Error);
  EXPECT_THROW(start_over({.depth = 3}), Error);
}

}  // namespace
}  // namespace nodewright
