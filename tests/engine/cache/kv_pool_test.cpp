// Pages are reserved whole or not at all, shared by content, copied before they are written, evicted leaf first, and
// reusable only when the last launch that may write them has completed.
#include "engine/cache/kv_pool.h"

#include <gtest/gtest.h>

#include "runtime/error.h"
#include "tests/engine/counting_tokens.h"

namespace nodewright {
namespace {

using Tokens = std::vector<int32_t>;

constexpr int64_t kTokens = 4;  // a page

KvPool pool_of(int64_t pages, int32_t sequences = 8, bool prefix_cache = true) {
  return KvPool({.pages = pages, .page_tokens = kTokens, .sequences = sequences, .prefix_cache = prefix_cache});
}

// Opens, and says that the whole prompt has been computed.
int32_t filled(KvPool& pool, const Tokens& prompt, int64_t length) {
  const KvPool::Opened opened = pool.open(prompt, length).value();
  pool.append(opened.sequence, std::span(prompt).subspan(static_cast<size_t>(pool.known(opened.sequence))));
  pool.check();
  return opened.sequence;
}

void leave_cached(KvPool& pool, const Tokens& prompt) {
  pool.close(filled(pool, prompt, static_cast<int64_t>(prompt.size())));
  pool.check();
}

TEST(KvPool, ReservesTheWholeLengthWhenItOpens) {
  KvPool pool = pool_of(5);
  const auto opened = pool.open(counting(0, 3), 2 * kTokens + 1);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->start, 0);
  EXPECT_TRUE(opened->copies.empty());
  EXPECT_EQ(pool.table(opened->sequence).size(), 3u);
  EXPECT_EQ(pool.owned_pages(), 3);
  EXPECT_EQ(pool.free_pages(), 2);
  pool.check();
}

TEST(KvPool, TakesNothingWhenTheLastPageOfALengthIsMissing) {
  KvPool pool = pool_of(2);
  EXPECT_EQ(pool.open(counting(0, 3), 2 * kTokens + 1), std::nullopt);
  EXPECT_EQ(pool.why_not_open(counting(0, 3), 9), "9 tokens need 3 more pages, and 2 of 2 are free or cached");
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_EQ(pool.sequences_in_use(), 0);
  EXPECT_EQ(pool.why_not_open(counting(0, 3), 8), "");
  EXPECT_TRUE(pool.open(counting(0, 3), 8));
  pool.check();
}

TEST(KvPool, GrowsByWholePagesOrNotAtAll) {
  KvPool pool = pool_of(3);
  const int32_t sequence = filled(pool, counting(0, 3), 4);
  EXPECT_TRUE(pool.reserve(sequence, 3, 4).value().empty());
  EXPECT_EQ(pool.table(sequence).size(), 1u);
  EXPECT_TRUE(pool.reserve(sequence, 4, 5));
  EXPECT_EQ(pool.table(sequence).size(), 2u);
  EXPECT_EQ(pool.reserve(sequence, 5, 13), std::nullopt);
  EXPECT_EQ(pool.table(sequence).size(), 2u);
  EXPECT_TRUE(pool.reserve(sequence, 5, 12));
  EXPECT_EQ(pool.free_pages(), 0);
  pool.check();
}

TEST(KvPool, OpensNoMoreSequencesThanItHas) {
  KvPool pool = pool_of(9, 2);
  ASSERT_EQ(pool.open(counting(0, 1), 1)->sequence, 0);
  ASSERT_EQ(pool.open(counting(9, 1), 1)->sequence, 1);
  EXPECT_EQ(pool.why_not_open(counting(0, 1), 1), "all 2 sequences are in use");
  EXPECT_EQ(pool.open(counting(0, 1), 1), std::nullopt);
  pool.close(0);
  EXPECT_EQ(pool.open(counting(0, 1), 1)->sequence, 0);
}

TEST(KvPool, FindsTheFullPagesThatAPromptBeginsWith) {
  KvPool pool = pool_of(8);
  const int32_t first = filled(pool, counting(0, 2 * kTokens + 2), 12);
  const auto second = pool.open(counting(0, 2 * kTokens + 3), 12);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->start, 2 * kTokens);
  EXPECT_TRUE(second->copies.empty());
  EXPECT_EQ(pool.table(second->sequence)[0], pool.table(first)[0]);
  EXPECT_EQ(pool.table(second->sequence)[1], pool.table(first)[1]);
  EXPECT_NE(pool.table(second->sequence)[2], pool.table(first)[2]);
  EXPECT_EQ(pool.owners(pool.table(first)[0]), 2);
  EXPECT_EQ(pool.stats().found_tokens, 2 * kTokens);
  pool.check();
}

TEST(KvPool, SharesNoPageWhoseTokensWereNotAppended) {
  KvPool pool = pool_of(8);
  const auto computing = pool.open(counting(0, 9), 9);
  ASSERT_TRUE(computing);
  EXPECT_EQ(pool.open(counting(0, 9), 9)->start, 0);
  pool.check();
}

TEST(KvPool, SharesWhatWasGeneratedToo) {
  KvPool pool = pool_of(8);
  const int32_t talk = filled(pool, counting(0, 3), 9);
  pool.append(talk, counting(3, 5));
  pool.close(talk);
  EXPECT_EQ(pool.open(counting(0, 12), 12)->start, 8);
}

TEST(KvPool, TellsEqualPagesApartByWhatIsBeforeThem) {
  KvPool pool = pool_of(12);
  Tokens left = counting(0, 8), right = counting(100, 8);
  std::copy(left.begin() + 4, left.end(), right.begin() + 4);  // the second pages are equal
  left.push_back(0), right.push_back(0);
  filled(pool, left, 9);
  EXPECT_EQ(pool.open(right, 9)->start, 0);
  Tokens swapped(left.begin() + 4, left.end());
  EXPECT_EQ(pool.open(swapped, 5)->start, 0);  // a page in the middle is no beginning
  pool.check();
}

TEST(KvPool, NeverTakesAnEqualHashForEqualTokens) {
  KvPool pool(
      {.pages = 24, .page_tokens = kTokens, .sequences = 8, .hash = [](uint64_t, auto) { return uint64_t{7}; }});
  const int32_t first = filled(pool, counting(0, 9), 9);
  EXPECT_EQ(pool.open(counting(50, 9), 9)->start, 0);
  Tokens other_beginning = counting(0, 9);
  other_beginning[0] = 77;  // its second page equals the first sequence's second page
  EXPECT_EQ(pool.open(other_beginning, 9)->start, 0);
  Tokens other_end = counting(0, 9);
  other_end[5] = 77;
  EXPECT_EQ(pool.open(other_end, 9)->start, kTokens);
  const auto same = pool.open(counting(0, 9), 9);
  EXPECT_EQ(same->start, 2 * kTokens);
  EXPECT_EQ(pool.table(same->sequence)[1], pool.table(first)[1]);
  pool.check();
}

TEST(KvPool, FollowsABeginningToItsOwnContinuationWhenHashesCollide) {
  KvPool pool(
      {.pages = 24, .page_tokens = kTokens, .sequences = 8, .hash = [](uint64_t, auto) { return uint64_t{7}; }});
  Tokens left = counting(0, 9), right = counting(100, 9);
  std::copy(left.begin() + 4, left.end(), right.begin() + 4);
  const int32_t first = filled(pool, left, 9), second = filled(pool, right, 9);
  EXPECT_NE(pool.table(first)[1], pool.table(second)[1]);
  EXPECT_EQ(pool.table(pool.open(left, 9)->sequence)[1], pool.table(first)[1]);
  EXPECT_EQ(pool.table(pool.open(right, 9)->sequence)[1], pool.table(second)[1]);
  pool.check();
}

TEST(KvPool, CopiesTheLastPageOfAPromptThatItHoldsWhole) {
  KvPool pool = pool_of(8);
  const int32_t first = filled(pool, counting(0, 8), 12);
  const Tokens before(pool.table(first).begin(), pool.table(first).end());
  const auto second = pool.open(counting(0, 8), 12);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->start, 7);  // one token is left to compute
  const auto table = pool.table(second->sequence);
  EXPECT_EQ(table[0], before[0]);
  EXPECT_NE(table[1], before[1]);
  EXPECT_EQ(second->copies, (std::vector<PageCopy>{{before[1], table[1]}}));
  EXPECT_EQ(pool.owners(table[1]), 1);
  EXPECT_EQ(Tokens(pool.table(first).begin(), pool.table(first).end()), before);
  EXPECT_EQ(pool.known(second->sequence), 7);
  pool.check();
}

TEST(KvPool, ComputesTheLastPageAnewWhereNoPageIsLeftForACopy) {
  KvPool pool = pool_of(2);
  leave_cached(pool, counting(0, 8));
  EXPECT_EQ(pool.cached_pages(), 2);
  const auto again = pool.open(counting(0, 8), 8);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->start, 4);
  EXPECT_TRUE(again->copies.empty());
  EXPECT_EQ(pool.owned_pages(), 2);
  pool.check();
}

TEST(KvPool, TakesTheEqualPageWhenTwoComputeTheSame) {
  KvPool pool = pool_of(8);
  const Tokens prompt = counting(0, 9);
  const int32_t a = pool.open(prompt, 12)->sequence, b = pool.open(prompt, 12)->sequence;
  EXPECT_EQ(pool.owned_pages(), 6);
  pool.append(a, prompt);
  pool.append(b, prompt);
  EXPECT_EQ(pool.owned_pages(), 4);
  EXPECT_EQ(pool.table(a)[1], pool.table(b)[1]);
  EXPECT_NE(pool.table(a)[2], pool.table(b)[2]);
  EXPECT_EQ(pool.stats().merged_pages, 2);
  pool.check();
}

TEST(KvPool, GivesBackAMergedPageOnlyAfterTheLaunchThatReadsIt) {
  KvPool pool = pool_of(8);
  const Tokens prompt = counting(0, 5);
  const int32_t a = pool.open(prompt, 8)->sequence, b = pool.open(prompt, 8)->sequence;
  pool.append(a, prompt);
  pool.launched(1);
  pool.append(b, prompt);
  EXPECT_EQ(pool.free_pages(), 4);
  pool.check();
  pool.completed(1);
  EXPECT_EQ(pool.free_pages(), 5);
  pool.check();
}

TEST(KvPool, KeepsThePagesOfAClosedSequenceUntilItsLaunchCompletes) {
  KvPool pool = pool_of(3, 1);
  const int32_t sequence = filled(pool, counting(0, 6), 12);
  pool.launched(1);
  pool.launched(2);
  pool.close(sequence);
  EXPECT_FALSE(pool.is_open(sequence));
  EXPECT_EQ(pool.owned_pages(), 3);
  EXPECT_EQ(pool.sequences_closing(), 1);
  EXPECT_EQ(pool.open(counting(50, 1), 1), std::nullopt);
  pool.completed(1);
  EXPECT_EQ(pool.owned_pages(), 3);
  pool.check();
  pool.completed(2);
  EXPECT_EQ(pool.free_pages(), 2);
  EXPECT_EQ(pool.cached_pages(), 1);
  EXPECT_EQ(pool.sequences_in_use(), 0);
  pool.check();
}

TEST(KvPool, ClosesAtOnceWhenNothingIsInFlight) {
  KvPool pool = pool_of(3);
  pool.launched(1);
  pool.completed(1);
  pool.close(filled(pool, counting(0, 3), 12));
  EXPECT_EQ(pool.free_pages(), 3);
}

TEST(KvPool, DoesNotWaitForALaunchThatWasRevoked) {
  KvPool pool = pool_of(3);
  const int32_t sequence = filled(pool, counting(0, 3), 12);
  pool.launched(1);
  pool.close(sequence);
  pool.revoked(1);
  EXPECT_EQ(pool.free_pages(), 3);
  pool.check();
  pool.launched(1);  // its number is free again
}

TEST(KvPool, StillWaitsForTheLaunchBeforeARevokedOne) {
  KvPool pool = pool_of(3);
  const int32_t sequence = filled(pool, counting(0, 3), 12);
  pool.launched(1);
  pool.launched(2);
  pool.close(sequence);
  pool.revoked(2);
  EXPECT_EQ(pool.owned_pages(), 3);
  pool.check();
  pool.completed(1);
  EXPECT_EQ(pool.free_pages(), 3);
}

TEST(KvPool, EvictsTheLeastRecentlyUsed) {
  KvPool pool = pool_of(4);
  leave_cached(pool, counting(0, 4));
  leave_cached(pool, counting(10, 4));
  leave_cached(pool, counting(20, 4));
  pool.close(filled(pool, Tokens{0, 1, 2, 3, 4}, 5));
  filled(pool, counting(50, 1), 8);  // the free page, and that of 10
  EXPECT_EQ(pool.stats().evicted_pages, 1);
  EXPECT_EQ(pool.open(counting(0, 4), 4)->start, 3);  // the copy takes the place of 20
  EXPECT_EQ(pool.stats().evicted_pages, 2);
  EXPECT_EQ(pool.cached_pages(), 1);
  pool.check();
}

TEST(KvPool, EvictsLeavesBeforeWhatTheyContinue) {
  KvPool pool = pool_of(4);
  leave_cached(pool, counting(0, 12));
  EXPECT_EQ(pool.cached_pages(), 3);
  pool.open(counting(50, 8), 8);
  EXPECT_EQ(pool.cached_pages(), 2);
  pool.check();
  pool.close(0);
  EXPECT_EQ(pool.open(counting(0, 12), 12)->start, 8);
}

TEST(KvPool, EvictsNoPageThatTheSameSequenceFound) {
  KvPool pool = pool_of(3);
  leave_cached(pool, counting(0, 8));
  Tokens longer = counting(0, 9);
  const auto opened = pool.open(longer, 12);
  ASSERT_TRUE(opened);
  EXPECT_EQ(opened->start, 8);
  EXPECT_EQ(pool.stats().evicted_pages, 0);
  pool.check();
  EXPECT_EQ(pool.open(counting(70, 1), 1), std::nullopt);
}

TEST(KvPool, CountsFoundPagesOutOfWhatIsAvailable) {
  KvPool pool = pool_of(2);
  leave_cached(pool, counting(0, 8));
  EXPECT_EQ(pool.open(counting(0, 9), 12),
            std::nullopt);  // two found, one missing, and only the found could be evicted
  EXPECT_EQ(pool.cached_pages(), 2);
  pool.check();
}

TEST(KvPool, SharesAndKeepsNothingWithThePrefixCacheOff) {
  KvPool pool = pool_of(6, 8, false);
  const int32_t first = filled(pool, counting(0, 8), 12);
  EXPECT_EQ(pool.open(counting(0, 9), 12)->start, 0);
  pool.close(first);
  EXPECT_EQ(pool.free_pages(), 3);
  EXPECT_EQ(pool.cached_pages(), 0);
  pool.check();
}

TEST(KvPool, OffersNothingOfOldWeightsAfterADrop) {
  KvPool pool = pool_of(8);
  leave_cached(pool, counting(0, 8));
  const int32_t running = filled(pool, counting(20, 6), 16);
  pool.drop_cache();
  EXPECT_EQ(pool.cached_pages(), 0);
  EXPECT_EQ(pool.owned_pages(), 4);
  pool.check();
  pool.append(running, counting(26, 8));  // keys of old and new weights: not to be found either
  pool.check();
  EXPECT_EQ(pool.open(counting(0, 9), 9)->start, 0);
  pool.close(running);
  EXPECT_EQ(pool.cached_pages(), 0);
  EXPECT_EQ(pool.open(counting(20, 9), 9)->start, 0);
  pool.check();
}

TEST(KvPool, ForgetsWhatAFailedSequenceHolds) {
  KvPool pool = pool_of(12);
  const int32_t bad = filled(pool, counting(0, 10), 12), reader = filled(pool, counting(0, 14), 16);
  leave_cached(pool, counting(0, 20));
  leave_cached(pool, counting(50, 4));
  pool.close_and_forget(bad);
  pool.check();
  EXPECT_EQ(pool.cached_pages(), 1);  // the unrelated one
  EXPECT_EQ(pool.open(counting(0, 9), 9)->start, 0);
  pool.append(reader, counting(14, 2));  // goes on reading, offers nothing
  pool.check();
  pool.close(reader);
  EXPECT_EQ(pool.cached_pages(), 1);
}

// Neither a call for each page of the chain, nor a look at all pages for each.
TEST(KvPool, ForgetsAChainOfAHundredThousandPages) {
  constexpr int64_t kLong = 100'000;
  KvPool pool({.pages = kLong, .page_tokens = 1, .sequences = 1});
  const Tokens prompt = counting(0, kLong);
  const int32_t sequence = pool.open(prompt, kLong)->sequence;
  pool.append(sequence, prompt);
  pool.close_and_forget(sequence);
  EXPECT_EQ(pool.free_pages(), kLong);
  pool.check();
}

TEST(KvPool, CopiesAPageThatIsOnOfferBeforeItIsWrittenAgain) {
  KvPool pool = pool_of(6);
  const int32_t sequence = filled(pool, counting(0, 10), 12);
  const int32_t offered = pool.table(sequence)[1], last = pool.table(sequence)[2];
  const auto copies = pool.reserve(sequence, 6, 12).value();
  EXPECT_EQ(copies, (std::vector<PageCopy>{{offered, pool.table(sequence)[1]}}));
  EXPECT_EQ(pool.table(sequence)[2], last);  // nobody else reads it
  EXPECT_EQ(pool.known(sequence), 6);
  EXPECT_EQ(pool.state_of(offered), PageState::cached);
  pool.check();
  pool.append(sequence, Tokens{96, 97});
  pool.check();
  Tokens rewritten = counting(0, 9);
  rewritten[6] = 96, rewritten[7] = 97;
  EXPECT_EQ(pool.open(rewritten, 9)->start, 8);
  EXPECT_EQ(pool.open(counting(0, 9), 9)->start, 8);
}

TEST(KvPool, CopiesNoPageThatIsWrittenWhole) {
  KvPool pool = pool_of(6);
  const int32_t sequence = filled(pool, counting(0, 8), 8);
  EXPECT_TRUE(pool.reserve(sequence, 4, 8).value().empty());
  EXPECT_EQ(pool.cached_pages(), 1);
  EXPECT_EQ(pool.owned_pages(), 2);
  pool.check();
}

TEST(KvPool, ForksASequenceWithoutThePrefixCacheAndCopiesThePageOfTheLastToken) {
  KvPool pool = pool_of(9, 3, false);
  const Tokens prompt = counting(0, 7);
  const int32_t first = filled(pool, prompt, 10);  // three pages, of which the second is not full
  EXPECT_EQ(pool.why_not_fork(7, 10), "");
  const auto second = pool.fork(first, prompt, 10);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->start, 6);
  EXPECT_EQ(second->copies, (std::vector<PageCopy>{{pool.table(first)[1], pool.table(second->sequence)[1]}}));
  EXPECT_EQ(pool.table(second->sequence)[0], pool.table(first)[0]);
  EXPECT_EQ(pool.owned_pages(), 5);
  pool.check();
  pool.close(first);
  EXPECT_EQ(pool.owned_pages(), 3);
  pool.append(second->sequence, {{prompt.back(), 50}});
  pool.check();
  pool.close(second->sequence);
  EXPECT_EQ(pool.free_pages(), 9);
  pool.check();
}

TEST(KvPool, OffersWhatAForkGoesOnWith) {
  KvPool pool = pool_of(9, 3);
  const Tokens prompt = counting(0, 8);
  const int32_t first = filled(pool, prompt, 12);
  const auto second = pool.fork(first, prompt, 12);
  ASSERT_TRUE(second);
  EXPECT_EQ(second->copies.size(), 1u);  // of the page that the last token ends
  pool.append(second->sequence, {{prompt.back(), 50, 51, 52, 53}});
  EXPECT_EQ(pool.stats().merged_pages, 1);
  pool.check();
  Tokens longer = prompt;
  longer.insert(longer.end(), {50, 51, 52, 53, 54});
  EXPECT_EQ(pool.open(longer, 13)->start, 12);
  pool.check();
}

TEST(KvPool, ForksNothingWhoseTokensAreNotKnownAndNothingWithoutPages) {
  KvPool pool = pool_of(5, 3, false);
  const Tokens prompt = counting(0, 7);
  const int32_t first = pool.open(prompt, 8)->sequence;
  EXPECT_FALSE(pool.can_fork(first, 7));
  EXPECT_THROW(pool.fork(first, prompt, 8), Error);
  pool.append(first, std::span(prompt).first(6));
  EXPECT_TRUE(pool.can_fork(first, 7));
  EXPECT_EQ(pool.why_not_fork(7, 20), "20 tokens need 4 more pages, and 3 of 5 are free or cached");
  EXPECT_EQ(pool.fork(first, prompt, 20), std::nullopt);
  EXPECT_EQ(pool.why_not_fork(7, 16, 1),
            "16 tokens need 3 more pages and 1 beside them, and 3 of 5 are free or cached");
  EXPECT_TRUE(pool.fork(first, prompt, 16));
  pool.check();
}

TEST(KvPool, RemembersWhatItFoundUntilItIsWithdrawn) {
  int64_t hashed = 0;
  static int64_t* counter;
  counter = &hashed;
  KvPool pool({.pages = 6,
               .page_tokens = kTokens,
               .sequences = 4,
               .hash = [](uint64_t parent, std::span<const int32_t> tokens) {
                 ++*counter;
                 return chained_page_hash(parent, tokens);
               }});
  const Tokens prompt = counting(0, 13);
  leave_cached(pool, counting(0, 8));
  KvPool::Found found;
  EXPECT_EQ(pool.why_not_open(prompt, 13, found), "");
  EXPECT_EQ(found.pages.size(), 2u);
  hashed = 0;
  EXPECT_EQ(pool.why_not_open(prompt, 13, found), "");
  EXPECT_EQ(hashed, 0);
  leave_cached(pool, counting(0, 12));  // one page more
  EXPECT_EQ(pool.why_not_open(prompt, 13, found), "");
  EXPECT_EQ(found.pages.size(), 3u);
  const int32_t other = filled(pool, counting(500, 16), 16);  // takes the last of them
  EXPECT_EQ(pool.why_not_open(prompt, 13, found), "13 tokens need 2 more pages, and 0 of 6 are free or cached");
  EXPECT_EQ(found.pages.size(), 2u);
  pool.close(other);
  EXPECT_EQ(pool.open(prompt, 13, found)->start, 8);
  pool.check();
}

TEST(KvPool, StaysAsItWasWhenAnErrorIsThrown) {
  KvPool pool = pool_of(4, 2);
  const int32_t sequence = filled(pool, counting(0, 3), 8);
  EXPECT_THROW(pool.open({}, 4), Error);
  EXPECT_THROW(pool.open(counting(0, 5), 4), Error);
  EXPECT_THROW(pool.append(sequence, counting(0, 6)), Error);
  EXPECT_THROW(pool.reserve(sequence, 5, 4), Error);
  EXPECT_THROW(pool.reserve(sequence, -1, 4), Error);
  EXPECT_THROW(pool.close(1), Error);
  EXPECT_THROW(pool.close(-1), Error);
  EXPECT_THROW(pool.append(2, counting(0, 1)), Error);
  EXPECT_THROW(pool.launched(0), Error);
  EXPECT_THROW(pool.completed(1), Error);
  EXPECT_THROW(pool.revoked(1), Error);
  EXPECT_THROW(static_cast<void>(pool.state_of(4)), Error);
  EXPECT_EQ(pool.known(sequence), 3);
  EXPECT_EQ(pool.owned_pages(), 2);
  pool.check();
  pool.close(sequence);
  EXPECT_THROW(pool.close(sequence), Error);
  pool.check();
}

TEST(KvPool, RefusesOptionsOutOfRange) {
  EXPECT_THROW(KvPool({.pages = -1, .page_tokens = 4}), Error);
  EXPECT_THROW(KvPool({.pages = 1, .page_tokens = 0}), Error);
  EXPECT_THROW(KvPool({.pages = 1, .page_tokens = 4, .sequences = 0}), Error);
  EXPECT_THROW(KvPool({.pages = int64_t{1} << 31, .page_tokens = 4}), Error);
}

}  // namespace
}  // namespace nodewright
