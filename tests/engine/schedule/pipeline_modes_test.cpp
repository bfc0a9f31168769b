// A launch that is taken back, pauses, and the loss of the device.
#include "engine/schedule/pipeline.h"
#include "tests/engine/schedule/pipeline_fixture.h"

namespace nodewright {
namespace {

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
