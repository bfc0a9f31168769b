// Each transition of a step where it is allowed, and refused, with the state unchanged, where it is not. What
// combinations of them do is the matter of pipeline_model_test.cpp.
#include "engine/schedule/pipeline.h"

#include "tests/engine/schedule/pipeline_fixture.h"

namespace nodewright {
namespace {

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

TEST_F(PipelineTest, DrainedPrefillWaitsUntilThePipelineIsDrained) {  // I5
  start_over({.schedule = Schedule::drained});
  const RequestId a = decoding(), b = submit();
  state().admit();
  step({a});
  refused([&] { state().launch(prefill({b})); }, "a prefill needs a drained pipeline");
  state().start_commit();
  refused([&] { state().launch(prefill({b})); }, "a prefill needs a drained pipeline");
  finish({7});
  launch(prefill({b}));
}

TEST_F(PipelineTest, NothingIsLaunchedBesideADrainedPrefill) {  // I5
  start_over({.schedule = Schedule::drained});
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

TEST_F(PipelineTest, LaunchesAPrefillBesideAStepInFlightAndAStepBesideAPrefill) {
  const RequestId a = decoding(), b = submit();
  state().admit();
  step({a});
  launch(prefill({b, a}));
  EXPECT_EQ(state().in_flight(), 2);
  EXPECT_EQ(state().find(a)->in_flight(), 2);
  sample();
  commit();
  launch({a, b});  // b after its prompt, whose token nobody has read
  EXPECT_EQ(state().find(b)->next_output(), 2);
  sample();
  EXPECT_EQ(commit({4, 5}), (std::vector<CommittedToken>{{b, 4, std::nullopt}, {a, 5, std::nullopt}}));
  EXPECT_EQ(commit({6, 7}), (std::vector<CommittedToken>{{a, 6, std::nullopt}, {b, 7, std::nullopt}}));
}

TEST_F(PipelineTest, LaunchesAChunkBehindTheOneBeforeItAndThenTheFirstDecodeStep) {  // I5
  const RequestId a = submit(4, false, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 3, false}}});
  sample();
  refused([&] { state().launch({.kind = StepKind::prefill, .rows = {{a, 2, 4, false}}}); }, "begins at 2, and it has");
  launch({.kind = StepKind::prefill, .rows = {{a, 3, 4, true}}});
  EXPECT_EQ(state().find(a)->phase(), RequestPhase::decoding);
  sample();
  EXPECT_TRUE(commit().empty());
  EXPECT_EQ(state().pool().known(0), 3);
  launch({a});
  EXPECT_EQ(row(a).output, 2);
  state().revoke();
  state().check();
  EXPECT_EQ(commit({42}), (std::vector<CommittedToken>{{a, 42, std::nullopt}}));
  EXPECT_EQ(state().pool().known(0), 7);
}

TEST_F(PipelineTest, ARevokedLastChunkLeavesThePromptUnfinished) {
  const RequestId a = submit(4, false, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 3, false}}});
  sample();
  launch({.kind = StepKind::prefill, .rows = {{a, 3, 4, true}}});
  state().revoke();
  state().check();
  EXPECT_EQ(state().find(a)->phase(), RequestPhase::prefilling);
  EXPECT_EQ(state().find(a)->prompt_left(), 4);
  commit();
  EXPECT_EQ(state().find(a)->phase(), RequestPhase::prefilling);
}

TEST_F(PipelineTest, AConstrainedFirstChoiceWaitsForNoChunkBeforeIt) {
  const RequestId a = submit(4, true, 7);
  state().admit();
  launch({.kind = StepKind::prefill, .rows = {{a, 0, 3, false}}});
  sample();
  launch({.kind = StepKind::prefill, .rows = {{a, 3, 4, true}}});
  EXPECT_EQ(state().masks_needed(), (std::vector<MaskKey>{{a, 0}}));
}

TEST_F(PipelineTest, DrainedRefusesASecondChunkBeforeTheFirstIsCommitted) {
  start_over({.schedule = Schedule::drained});
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

}  // namespace
}  // namespace nodewright
