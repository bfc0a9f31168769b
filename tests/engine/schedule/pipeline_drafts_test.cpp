// Steps that check drafts: how far they are accepted, what ends among them, and what is left of a request that stopped
// waiting for them.
#include "tests/engine/schedule/pipeline_fixture.h"

namespace nodewright {
namespace {

class PipelineDrafts : public PipelineTest {};

using Outputs = std::vector<int32_t>;

TEST_F(PipelineDrafts, AreAcceptedUpToTheFirstThatIsNotChosen) {
  const RequestId id = decoding(20);
  step_with(id, {11, 12, 13});
  const auto accepted = commit_chosen({11, 12, 50, 60});
  EXPECT_EQ(accepted, (std::vector<CommittedToken>{{id, 11, {}}, {id, 12, {}}, {id, 50, {}}}));
  const Request& request = *state().find(id);
  EXPECT_EQ(request.outputs(), (Outputs{7, 11, 12, 50}));
  EXPECT_EQ(request.computed(), 6);  // prompt 3, and 7, 11, 12
  EXPECT_EQ(state().pool().known(request.sequence()), 6);
  EXPECT_EQ(row(id), (RowPlan{id, 6, 1, true, 4}));
}

TEST_F(PipelineDrafts, OfWhichNoneIsRightGiveTheTokenThatAStepWithoutThemGives) {
  const RequestId id = decoding(20);
  step_with(id, {11, 12});
  EXPECT_EQ(commit_chosen({50, 12, 13}).size(), 1u);
  EXPECT_EQ(state().find(id)->computed(), 4);
}

TEST_F(PipelineDrafts, OfWhichAllAreRightGiveOneTokenMore) {
  const RequestId id = decoding(20);
  step_with(id, {11, 12});
  EXPECT_EQ(commit_chosen({11, 12, 13}).size(), 3u);
  EXPECT_EQ(state().find(id)->computed(), 6);
}

TEST_F(PipelineDrafts, EndAtAStopIdAmongThem) {
  const RequestId id = decoding(20);
  step_with(id, {11, kStop, 13});
  const auto accepted = commit_chosen({11, kStop, 13, 14});
  EXPECT_EQ(accepted.size(), 2u);
  EXPECT_EQ(accepted.back().end, EndReason::stop_id);
  EXPECT_EQ(state().take_resolutions().at(0).outputs, (Outputs{7, 11, kStop}));
}

TEST_F(PipelineDrafts, EndAtAStopStringAmongThem) {
  const RequestId id = decoding(20);
  step_with(id, {11, 12});
  state().start_commit();
  const RowResult result{.token = 11, .behind_drafts = {{.token = 12, .completes_stop_string = true}, {.token = 13}}};
  EXPECT_EQ(state().finish_commit({{result}}).size(), 2u);
  EXPECT_EQ(ends(), (Ends{{id, EndReason::stop_string}}));
}

TEST_F(PipelineDrafts, NeverLeadBeyondTheBudget) {
  for (const int64_t max_tokens : {2, 3, 4}) {
    const RequestId id = decoding(max_tokens);
    Outputs drafts(static_cast<size_t>(max_tokens - 1), 7);
    StepPlan plan = decode({id});
    plan.rows[0].tokens += max_tokens - 1;
    plan.rows[0].drafts = drafts;
    refused([&] { state().launch(plan); }, "are the most");
    drafts.pop_back();
    step_with(id, drafts);
    commit_chosen(Outputs(drafts.size() + 1, 7));
    EXPECT_EQ(ends(), (Ends{{id, EndReason::length}}));
  }
}

TEST_F(PipelineDrafts, FailTheRequestAtANaNOnlyWhereItIsAccepted) {
  const RequestId beyond = decoding(20);
  step_with(beyond, {11, 12});
  commit_chosen({50, -1, -1});
  EXPECT_TRUE(ends().empty());
  state().cancel(beyond);
  const RequestId within = decoding(20);
  step_with(within, {11, 12});
  EXPECT_EQ(commit_chosen({11, -1, 13}).size(), 1u);
  EXPECT_EQ(ends(), (Ends{{beyond, EndReason::cancelled}, {within, EndReason::failed}}));
}

TEST_F(PipelineDrafts, MayBeInFlightWhenTheRequestIsCancelledThePipelinePausedOrTheLaunchRevoked) {
  const RequestId id = decoding(20);
  StepPlan plan = decode({id});
  plan.rows[0].tokens = 3, plan.rows[0].drafts = {11, 12};
  launch(plan);
  state().revoke();
  state().check();
  EXPECT_EQ(state().find(id)->computed(), 3);
  launch(plan);
  sample();
  state().pause();
  EXPECT_EQ(commit_chosen({11, 12, 13}).size(), 3u);
  EXPECT_EQ(state().mode(), PipelineMode::paused);
  state().resume(PipelineState::Rebuilt::graphs);
  step_with(id, {14});
  state().cancel(id);
  state().check();
  EXPECT_TRUE(commit_chosen({14, 15}).empty());
  EXPECT_EQ(state().find(id), nullptr);
  EXPECT_EQ(state().pool().owned_pages(), 0);
}

TEST_F(PipelineDrafts, GetThePagesThatTheyMayWrite) {
  state() = PipelineState(KvPool({.pages = 3, .page_tokens = kTestPageTokens, .sequences = 1}),
                          {.max_context = 32, .reserve = Reserve::prompt});
  const RequestId id = decoding(9, false, 3);
  EXPECT_EQ(state().pool().table(state().find(id)->sequence()).size(), 1u);
  step_with(id, Outputs(5, 11));  // positions 3 to 8
  EXPECT_EQ(state().pool().table(state().find(id)->sequence()).size(), 3u);
  commit_chosen(Outputs(6, 12));
  EXPECT_EQ(state().find(id)->computed(), 4);
}

TEST_F(PipelineDrafts, AreRefusedWhereTheyCannotBeChecked) {
  const RequestId constrained = decoding(20, true), id = decoding(20);
  const auto with_draft = [&](RequestId request) {
    StepPlan plan = decode({request});
    plan.rows[0].tokens = 2, plan.rows[0].drafts = {11};
    return plan;
  };
  refused([&] { state().launch(with_draft(constrained)); }, "constrained");
  StepPlan uncounted = with_draft(id);
  uncounted.rows[0].tokens = 1;
  refused([&] { state().launch(uncounted); }, "1 drafts");
  StepPlan small = with_draft(id);
  small.bucket = 1;
  refused([&] { state().launch(small); }, "2 tokens in a bucket of 1");
  step({id});
  refused([&] { state().launch(with_draft(id)); }, "0 are the most");
  commit();
  step_with(id, {11});
  refused([&] { state().launch(decode({id})); }, "decoding");
  state().start_commit();
  refused([&] { state().finish_commit({{RowResult{.token = 11}}}); }, "0 results behind the 1 drafts");
}

}  // namespace
}  // namespace nodewright
