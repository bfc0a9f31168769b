// The life of a request: which phase follows which, what a token ends, and how much it may ever launch.
#include "engine/schedule/request.h"

#include <gtest/gtest.h>

#include "runtime/error.h"

namespace nodewright {
namespace {

Request request_of(int64_t max_tokens = 4, int64_t max_context = 100) {
  return Request(1, {.prompt = {1, 2, 3}, .max_tokens = max_tokens, .stop_ids = {98, 99}}, max_context);
}

Request prefilled(int64_t max_tokens = 4) {
  Request request = request_of(max_tokens);
  request.admit(0, 0);
  request.launch(3, 1);
  request.accept(7, false);
  request.commit();
  return request;
}

TEST(Request, LivesFromWaitingToEnded) {
  Request request = request_of();
  EXPECT_EQ(request.phase(), RequestPhase::waiting);
  EXPECT_EQ(request.sequence(), -1);
  request.admit(5, 1);
  EXPECT_EQ(request.phase(), RequestPhase::prefilling);
  EXPECT_EQ(request.sequence(), 5);
  EXPECT_EQ(request.prompt_left(), 2);
  request.launch(1, 1);
  request.commit();
  EXPECT_EQ(request.phase(), RequestPhase::prefilling);
  request.launch(1, 2);
  EXPECT_EQ(request.accept(7, false), std::nullopt);
  request.commit();
  EXPECT_EQ(request.phase(), RequestPhase::decoding);
  request.launch(1, 3);
  request.launch(1, 4);
  EXPECT_EQ(request.accept(98, false), EndReason::stop_id);
  request.resolve(EndReason::stop_id);
  request.commit();
  EXPECT_EQ(request.phase(), RequestPhase::finishing);
  request.commit();
  EXPECT_EQ(request.phase(), RequestPhase::ended);
  EXPECT_EQ(request.reason(), EndReason::stop_id);
  EXPECT_EQ(request.outputs(), (std::vector<int32_t>{7, 98}));
}

TEST(Request, HasAtMostOneStepInEachSlot) {
  Request request = prefilled(9);
  request.launch(1, 2);
  request.launch(1, 3);
  EXPECT_FALSE(request.can_decode());
  EXPECT_THROW(request.launch(1, 4), Error);
  EXPECT_EQ(request.in_flight(), 2);
  EXPECT_EQ(request.computed(), 5);
}

TEST(Request, CountsOutputsThatAreStillInFlight) {
  Request request = prefilled(9);
  EXPECT_EQ(request.next_output(), 1);
  request.launch(1, 2);
  EXPECT_EQ(request.next_output(), 2);
  request.accept(8, false);
  request.commit();
  EXPECT_EQ(request.next_output(), 2);
}

TEST(Request, MayWriteAllButTheLastOutput) {
  EXPECT_EQ(request_of(1).reserved_length(), 3);
  EXPECT_EQ(request_of(4).reserved_length(), 6);
  EXPECT_EQ(request_of(4, 5).most_outputs(), 2);
  EXPECT_EQ(request_of(4, 5).reserved_length(), 4);
  EXPECT_EQ(request_of(4, 4).most_outputs(), 1);
  EXPECT_THROW(request_of(4, 3), Error);
}

TEST(Request, ReadsPromptAndOutputsAsOne) {
  const Request request = prefilled();
  EXPECT_EQ(request.token_at(0), 1);
  EXPECT_EQ(request.token_at(2), 3);
  EXPECT_EQ(request.token_at(3), 7);
  EXPECT_THROW(static_cast<void>(request.token_at(4)), std::out_of_range);
}

TEST(Request, IsResolvedOnce) {
  Request request = request_of();
  request.resolve(EndReason::cancelled);
  EXPECT_EQ(request.phase(), RequestPhase::ended);
  EXPECT_THROW(request.resolve(EndReason::failed), Error);
  EXPECT_EQ(request.reason(), EndReason::cancelled);
}

TEST(Request, RefusesWhatItsPhaseDoesNotAllow) {
  Request waiting = request_of();
  EXPECT_THROW(waiting.launch(1, 1), Error);
  EXPECT_THROW(waiting.commit(), Error);
  EXPECT_THROW(waiting.revoke(1), Error);
  EXPECT_THROW(waiting.accept(7, false), Error);
  EXPECT_THROW(waiting.admit(0, 3), Error);  // one token of the prompt is always computed
  Request prefilling = request_of();
  prefilling.admit(0, 0);
  EXPECT_THROW(prefilling.admit(0, 0), Error);
  EXPECT_THROW(prefilling.launch(4, 1), Error);
  EXPECT_THROW(prefilling.launch(0, 1), Error);
  prefilling.launch(2, 1);
  EXPECT_THROW(prefilling.accept(7, false), Error);
  prefilling.launch(1, 2);
  EXPECT_THROW(prefilling.launch(1, 3), Error);
  EXPECT_THROW(prefilling.accept(7, false), Error);  // the chunk before the last is committed first
  Request ended = prefilled();
  ended.resolve(EndReason::cancelled);
  EXPECT_THROW(ended.launch(1, 2), Error);
  EXPECT_THROW(ended.accept(7, false), Error);
}

TEST(Request, SaysInAnErrorHowFarItHasCome) {
  Request request = prefilled();
  request.launch(1, 2);
  request.resolve(EndReason::cancelled);
  try {
    request.launch(1, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "cannot launch a row of request '1': it is finishing, cancelled: 3 of 3 prompt tokens and 1 of 4 "
                 "outputs, 1 steps in flight");
  }
}

TEST(Request, HasComputedOfItsDraftsOnlyThoseThatItAccepted) {
  Request request = prefilled(9);  // prompt 3, one output, which is not computed
  request.launch(4, 2);            // and three drafts
  EXPECT_EQ(request.drafted(), 3);
  EXPECT_EQ(request.computed(), 7);
  request.accept(8, false);
  request.accept(9, false);
  request.commit();
  EXPECT_EQ(request.drafted(), 0);
  EXPECT_EQ(request.computed(), 5);
  EXPECT_EQ(request.next_output(), 3);
  request.launch(3, 3);
  request.revoke(3);
  EXPECT_EQ(request.computed(), 5);
  EXPECT_TRUE(request.can_decode());
}

TEST(Request, DraftsNothingBeyondItsBudgetAndNothingBesideAStepInFlight) {
  Request request = prefilled(4);
  EXPECT_EQ(request.most_drafts(), 2);
  EXPECT_THROW(request.launch(4, 2), Error);
  request.launch(1, 2);
  EXPECT_EQ(request.most_drafts(), 0);
  EXPECT_THROW(request.launch(2, 3), Error);
  request.accept(7, false);
  request.commit();
  request.launch(2, 3);
  EXPECT_FALSE(request.can_decode());  // its next position is not known
  EXPECT_EQ(prefilled(2).most_drafts(), 0);
}

TEST(Request, DecodesAsSoonAsItsWholePromptIsLaunched) {
  Request request = request_of();
  request.admit(0, 0);
  request.launch(2, 1);
  EXPECT_EQ(request.choosing(), 0);
  request.launch(1, 2);
  EXPECT_EQ(request.phase(), RequestPhase::decoding);
  EXPECT_EQ(request.choosing(), 1);
  EXPECT_EQ(request.next_output(), 1);
  EXPECT_FALSE(request.can_decode());  // one step in each slot
  request.commit();
  EXPECT_TRUE(request.can_decode());
  request.launch(1, 3);
  EXPECT_EQ(request.next_output(), 2);
  request.accept(7, false);
  request.commit();
  EXPECT_EQ(request.choosing(), 1);
}

TEST(Request, ARevokedChunkIsToBeLaunchedAgain) {
  Request request = request_of();
  request.admit(0, 0);
  request.launch(3, 1);
  request.revoke(3);
  EXPECT_EQ(request.phase(), RequestPhase::prefilling);
  EXPECT_EQ(request.prompt_left(), 3);
  request.launch(3, 1);
}

}  // namespace
}  // namespace nodewright
