// Selecting changes nothing, gives the same answer twice, and always a reason.
#include "engine/schedule/scheduler.h"

#include "tests/engine/schedule/pipeline_fixture.h"

namespace nodewright {
namespace {

using Action = Selection::Action;

class SchedulerTest : public PipelineTest {
 protected:
  SchedulerTest() : PipelineTest({.pages = 400, .sequences = 40}) {}

  // Asks twice, and looks whether that left a trace.
  Selection next() {
    const std::string before = state().describe();
    const Selection first = select_next(state(), options_);
    const Selection second = select_next(state(), options_);
    EXPECT_EQ(first.action, second.action);
    EXPECT_EQ(first.step, second.step);
    EXPECT_EQ(first.reason, second.reason);
    EXPECT_FALSE(first.reason.empty());
    EXPECT_EQ(state().describe(), before);
    state().check();
    return first;
  }

  std::vector<RequestId> rows_of(const StepPlan& plan) {
    std::vector<RequestId> ids;
    for (const RowPlan& row : plan.rows) ids.push_back(row.request);
    return ids;
  }

  // So many requests with their first output.
  void decode_with(int requests, int64_t max_tokens = 8) {
    for (int i = 0; i < requests; ++i) decoding(max_tokens);
  }

  SchedulerOptions options_{BucketSet({1, 2, 4, 8, 32}), BucketSet({4, 16})};
};

TEST_F(SchedulerTest, IsIdleWithoutRequests) {
  const Selection selection = next();
  EXPECT_EQ(selection.action, Action::idle);
  EXPECT_EQ(selection.reason, "none of 0 admitted requests can decode");
}

TEST_F(SchedulerTest, AdmitsBeforeAnythingElse) {
  decode_with(1);
  launch({1});
  submit();
  EXPECT_EQ(next().action, Action::admit);
}

TEST_F(SchedulerTest, PadsToTheSmallestBucketThatHoldsTheRows) {
  decode_with(5);
  const Selection selection = next();
  EXPECT_EQ(selection.action, Action::launch);
  EXPECT_EQ(selection.step.bucket, 8);
  EXPECT_EQ(selection.reason, "3 of 8 rows of bucket 8 are padding");
  EXPECT_EQ(rows_of(selection.step), (std::vector<RequestId>{1, 2, 3, 4, 5}));
}

TEST_F(SchedulerTest, WalksFromEightToFiveToFourToThirtyThree) {
  decode_with(8);
  EXPECT_EQ(next().step.bucket, 8);
  for (RequestId id : {2, 4, 6}) state().cancel(id);
  EXPECT_EQ(next().step.bucket, 8);
  state().cancel(8);
  EXPECT_EQ(next().step.bucket, 4);
  decode_with(29);
  const Selection past = next();
  EXPECT_EQ(past.step.bucket, 32);
  EXPECT_EQ(past.step.rows.size(), 32u);
  EXPECT_EQ(past.reason, "33 rows are ready, and the largest bucket has 32");
  options_.allow_eager = true;
  const Selection eager = next();
  EXPECT_EQ(eager.step.bucket, 0);
  EXPECT_EQ(eager.step.rows.size(), 33u);
  EXPECT_EQ(eager.reason, "33 rows, and the largest of 5 buckets has 32");
}

TEST_F(SchedulerTest, GivesRowsThatWereLeftOutTheNextStep) {
  options_.decode_buckets = BucketSet({2});
  decode_with(3);
  std::vector<std::vector<RequestId>> steps;
  for (int i = 0; i < 3; ++i) {
    const Selection selection = next();
    steps.push_back(rows_of(selection.step));
    launch(selection.step);
    sample();
    commit();
  }
  EXPECT_EQ(steps, (std::vector<std::vector<RequestId>>{{1, 2}, {3, 1}, {2, 1}}));
}

TEST_F(SchedulerTest, LaunchesTheNextStepBeforeTheLastIsCommitted) {
  decode_with(1);
  for (const Action expected : {Action::launch, Action::sample, Action::launch, Action::sample, Action::start_commit}) {
    const Selection selection = next();
    ASSERT_EQ(selection.action, expected);
    if (expected == Action::launch) launch(selection.step);
    if (expected == Action::sample) sample();
  }
}

TEST_F(SchedulerTest, LaunchesAConstrainedForwardAndCommitsBeforeItIsSampled) {
  const RequestId a = decoding(8, true);
  step({a});
  EXPECT_EQ(next().action, Action::launch);
  launch(next().step);
  EXPECT_EQ(next().action, Action::start_commit);
  EXPECT_EQ(next().reason, "a mask depends on the token before");
  commit();
  EXPECT_EQ(next().action, Action::sample);
}

TEST_F(SchedulerTest, SelectsNothingDuringACommit) {
  decode_with(1);
  step({1});
  state().start_commit();
  EXPECT_EQ(next().action, Action::idle);
  EXPECT_EQ(next().reason, "the commit of step 2 has not finished");
}

TEST_F(SchedulerTest, TakesEveryDecodingRowAndFillsTheBudgetWithPromptsBesideAStepInFlight) {
  options_.step_tokens = 8;
  decode_with(2, 20);
  step({1, 2});
  submit(8, false, 3);
  submit(8, false, 5);
  submit(8, false, 7);
  for (int i = 0; i < 3; ++i) state().admit();
  const Selection first = next();
  EXPECT_EQ(first.step.kind, StepKind::prefill);
  EXPECT_EQ(first.step.bucket, 16);
  EXPECT_EQ(first.step.rows,
            (std::vector<RowPlan>{{1, 4, 1, true, 2}, {2, 4, 1, true, 2}, {3, 0, 3, true, 0}, {4, 0, 3, false, 0}}));
  launch(first.step);
  sample();
  commit();
  // The chunk and the decoding rows before it are in flight, and so is the prompt whose token nobody has read.
  EXPECT_EQ(next().step.rows,
            (std::vector<RowPlan>{
                {1, 5, 1, true, 3}, {2, 5, 1, true, 3}, {3, 3, 1, true, 1}, {4, 3, 2, true, 0}, {5, 0, 3, false, 0}}));
}

TEST_F(SchedulerTest, GivesAPromptATokenWhereDecodingRowsTakeTheBudget) {
  options_.step_tokens = 3;
  decode_with(4);
  submit(8, false, 5);
  state().admit();
  EXPECT_EQ(next().step.rows,
            (std::vector<RowPlan>{
                {1, 3, 1, true, 1}, {2, 3, 1, true, 1}, {3, 3, 1, true, 1}, {4, 3, 1, true, 1}, {5, 0, 1, false, 0}}));
}

TEST_F(SchedulerTest, KeepsTwoChunksOfOnePromptInFlight) {
  options_.step_tokens = 8;
  submit(8, false, 20);
  state().admit();
  int64_t first = 0;
  for (const Action expected : {Action::launch, Action::sample, Action::launch, Action::sample, Action::start_commit,
                                Action::launch, Action::sample, Action::start_commit, Action::launch}) {
    const Selection selection = next();
    ASSERT_EQ(selection.action, expected);
    if (expected == Action::launch) {
      EXPECT_EQ(selection.step.rows.at(0).first, first);
      first += selection.step.rows.at(0).tokens;
      launch(selection.step);
    }
    if (expected == Action::sample) sample();
    if (expected == Action::start_commit) commit();
  }
  EXPECT_EQ(first, 21);  // the last one decodes, after a prompt of which a chunk is not committed
}

TEST_F(SchedulerTest, DrainsForAPromptAndThenPacksItApart) {
  start_over({.pages = 400, .sequences = 40, .schedule = Schedule::drained});
  options_.schedule = Schedule::drained;
  decode_with(2);
  step({1, 2});
  step({1, 2});
  submit(8, false, 3);
  submit(8, false, 5);
  state().admit(), state().admit();
  EXPECT_EQ(next().action, Action::start_commit);
  EXPECT_EQ(next().reason, "2 steps are in flight, as many as may be");
  commit();
  EXPECT_EQ(next().action, Action::start_commit);
  EXPECT_EQ(next().reason, "a prefill needs a drained pipeline");
  commit();
  const Selection selection = next();
  EXPECT_EQ(selection.step.kind, StepKind::prefill);
  EXPECT_EQ(selection.step.bucket, 16);
  EXPECT_EQ(selection.step.rows, (std::vector<RowPlan>{{3, 0, 3, true, 0}, {4, 0, 5, true, 0}}));
}

TEST_F(SchedulerTest, SharesWhatTheRowsLeaveOfTheLargestBucketAmongDrafts) {
  options_.decode_buckets = BucketSet({4, 8});
  options_.drafts = [](const Request&) { return std::vector<int32_t>{1, 2, 3}; };
  decode_with(4);
  decoding(3);  // after this output and one draft it ends
  const Selection selection = next();
  EXPECT_EQ(selection.step.bucket, 8);
  std::vector<size_t> drafts;
  for (const RowPlan& row : selection.step.rows) drafts.push_back(row.drafts.size());
  EXPECT_EQ(drafts, (std::vector<size_t>{3, 0, 0, 0, 0}));
  for (RequestId id : {2, 3, 4}) state().cancel(id);
  EXPECT_EQ(next().step.rows, (std::vector<RowPlan>{{1, 3, 4, true, 1, {1, 2, 3}}, {5, 3, 2, true, 1, {1}}}));
  launch(next().step);
  sample();
  EXPECT_EQ(next().action, Action::start_commit);  // no row before its last token is known
}

TEST_F(SchedulerTest, KeepsTwoStepsInFlightForRowsWithoutDraftsWhereTheyAreMore) {
  options_.drafts = [](const Request& request) { return std::vector<int32_t>(request.id() == 1 ? 1 : 0, 7); };
  decode_with(4, 20);
  EXPECT_EQ(next().step.rows.at(0).drafts.size(), 1u);
  launch(next().step);
  sample();
  EXPECT_EQ(rows_of(next().step), (std::vector<RequestId>{2, 3, 4}));  // after it
  for (RequestId id : {2, 3, 4}) state().cancel(id);
  EXPECT_EQ(next().action, Action::start_commit);
}

TEST_F(SchedulerTest, WaitsWithARowWhoseTokensSuggestDraftsUntilItsTokenIsKnown) {
  bool repeats = false;
  options_.drafts = [&repeats](const Request&) { return std::vector<int32_t>(repeats ? 2 : 0, 7); };
  decode_with(1, 20);
  step({1});
  EXPECT_EQ(rows_of(next().step), std::vector<RequestId>{1});
  repeats = true;
  EXPECT_EQ(next().action, Action::start_commit);
  EXPECT_EQ(next().reason, "drafts of 1 requests depend on what is in flight");
  commit();
  EXPECT_EQ(next().step.rows.at(0).drafts.size(), 2u);
}

TEST_F(SchedulerTest, DraftsNeitherConstrainedRequestsNorBesidePrompts) {
  options_.drafts = [](const Request&) { return std::vector<int32_t>{1}; };
  decoding(8, true);
  EXPECT_EQ(next().step.rows, (std::vector<RowPlan>{{1, 3, 1, true, 1}}));
  state().cancel(1);
  decoding();
  submit();
  state().admit();
  EXPECT_EQ(next().step.rows, (std::vector<RowPlan>{{2, 3, 1, true, 1}, {3, 0, 3, true, 0}}));
}

TEST_F(SchedulerTest, TakesNoPageForDraftsThatTheRowDoesNotNeed) {
  state() = PipelineState(KvPool({.pages = 8, .page_tokens = kTestPageTokens, .sequences = 2}),
                          {.max_context = 32, .reserve = Reserve::prompt});
  options_.drafts = [](const Request&) { return std::vector<int32_t>(9, 7); };
  const RequestId id = decoding(20, false, 2);  // one page, of which the third position comes next
  EXPECT_EQ(next().step.rows.at(0).drafts.size(), 1u);
  launch({id});
  sample();
  commit();
  launch({id});
  sample();
  commit();
  EXPECT_EQ(next().step.rows.at(0).first, 4);
  EXPECT_EQ(next().step.rows.at(0).drafts.size(), 3u);  // the row itself needs the second page
}

TEST_F(SchedulerTest, LeavesDecodingRowsOutWherePromptsRunApart) {
  options_.schedule = Schedule::drained;
  decode_with(2);
  submit();
  state().admit();
  EXPECT_EQ(rows_of(next().step), std::vector<RequestId>{3});
}

TEST_F(SchedulerTest, CutsALongPromptIntoChunks) {
  submit(8, false, 20);
  submit(8, false, 3);
  state().admit(), state().admit();
  Selection selection = next();
  EXPECT_EQ(selection.step.rows, (std::vector<RowPlan>{{1, 0, 13, false, 0}, {2, 0, 3, true, 0}})) << "the short one";
  launch(selection.step);
  sample();
  commit();
  selection = next();
  EXPECT_EQ(selection.step.rows, (std::vector<RowPlan>{{2, 3, 1, true, 1}, {1, 13, 7, true, 0}}));
}

// Log probabilities of its tokens take no rows that choose.
TEST_F(SchedulerTest, CutsAScoredPromptAsAnyOther) {
  options_.most_sampled = 3;
  decode_with(2);
  ASSERT_TRUE(state().submit({.prompt = counting(900, 9), .max_tokens = 8, .scores_prompt = true}).id);
  while (next().action == Action::admit) state().admit();
  const Selection selection = next();
  ASSERT_EQ(selection.action, Action::launch);
  EXPECT_EQ(selection.step.rows[2], (RowPlan{3, 0, 9, true, 0}));
  EXPECT_EQ(selection.step.chosen(), 3);
}

TEST_F(SchedulerTest, LeavesOutRowsWhoseBudgetIsInFlight) {
  decoding(2);
  decoding(8);
  step({1, 2});
  EXPECT_EQ(rows_of(next().step), std::vector<RequestId>{2});
}

TEST_F(SchedulerTest, BringsAPauseToItsEnd) {
  decode_with(1);
  step({1});
  launch({1});
  state().pause();
  EXPECT_EQ(next().action, Action::sample);
  sample();
  EXPECT_EQ(next().action, Action::start_commit);
  commit();
  commit();
  EXPECT_EQ(next().action, Action::idle);
  EXPECT_EQ(next().reason, "the pipeline is paused");
}

// The pages that a window promises hold a chunk, however large the bucket is.
// Each page of a waiting prompt once, however often it is asked.
TEST(SchedulerWithAQueue, HashesTheFirstWaitingPromptOnce) {
  static int64_t hashed;
  hashed = 0;
  const auto hash = [](uint64_t parent, std::span<const int32_t> tokens) {
    ++hashed;
    return chained_page_hash(parent, tokens);
  };
  PipelineState state(KvPool({.pages = 64, .page_tokens = kTestPageTokens, .sequences = 1, .hash = hash}),
                      {.max_context = 128});
  const SchedulerOptions options{BucketSet({1}), BucketSet({64})};
  state.submit({.prompt = counting(0, 40), .max_tokens = 8});
  state.admit();
  state.launch(select_next(state, options).step);
  state.sample();
  state.start_commit();
  state.finish_commit(std::vector<RowResult>{{.token = 7}});  // its pages are on offer
  state.submit({.prompt = counting(0, 40), .max_tokens = 8});
  hashed = 0;
  for (int i = 0; i < 50; ++i) EXPECT_EQ(select_next(state, options).action, Action::launch);
  EXPECT_EQ(hashed, 40 / kTestPageTokens);
}

TEST(SchedulerWithAWindow, TakesNoMoreOfAPromptAtOnceThanThePoolExpects) {
  PipelineState state(KvPool({.pages = 64, .page_tokens = 4, .sequences = 2, .window = 8, .chunk = 5}),
                      {.max_context = 64});
  for (int32_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(state.submit({.prompt = counting(100 * i, 12)}).id);
    ASSERT_TRUE(state.admit());
  }
  const Selection selection = select_next(state, {BucketSet({2}), BucketSet({16})});
  ASSERT_EQ(selection.action, Action::launch);
  ASSERT_EQ(selection.step.rows.size(), 2u);
  for (const RowPlan& row : selection.step.rows) EXPECT_EQ(row.tokens, 5);
}

}  // namespace
}  // namespace nodewright
