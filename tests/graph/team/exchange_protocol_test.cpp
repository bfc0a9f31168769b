// All that can happen in six exchanges of 2 to 4 ranks ends, with the right values; and each fault that the team check
// or the packets keep out is found by the same search.
#include <gtest/gtest.h>

#include "tests/graph/team/exchange_model.h"

namespace nodewright::test {
namespace {

using End = SearchResult::End;

SearchResult search(const ExchangeModel& model) {
  SearchResult result = ExchangeSearch(model).run();
  testing::Test::RecordProperty("states", static_cast<int>(result.states));
  return result;
}

// `states`: a search that misses some, or a model that allows more, has another number.
void expect_ends(const ExchangeModel& model, size_t states) {
  const SearchResult result = search(model);
  EXPECT_EQ(result.end, End::all_end) << result.what;
  EXPECT_EQ(result.states, states);
}

TEST(ExchangeProtocol, TwoRanksEnd) { expect_ends({.ranks = 2}, 181); }
TEST(ExchangeProtocol, TwoRanksOfTwoBlocksEnd) { expect_ends({.ranks = 2, .blocks = 2}, 3841); }
TEST(ExchangeProtocol, ThreeRanksEnd) { expect_ends({.ranks = 3}, 28017); }
TEST(ExchangeProtocol, FourRanksEnd) { expect_ends({.ranks = 4, .steps_at_once = true}, 516865); }

// Epochs 2^32 - 3, 2^32 - 2, 2^32 - 1, 0, 1, 2: they are compared for equality alone. What was there before is of the
// exchanges before; but a packet that was never written must hold none of them.
TEST(ExchangeProtocol, EpochsMayPassTheLastNumber) {
  for (const int ranks : {2, 3})
    expect_ends({.ranks = ranks, .first_epoch = 0xfffffffdu, .stale_epoch = 0xfffffff0u}, ranks == 2 ? 181 : 28017);
}
TEST(ExchangeProtocol, AClearedPacketIsTakenForEpoch0) {
  const SearchResult result = search({.first_epoch = 0xfffffffdu, .stale_epoch = 1});
  EXPECT_EQ(result.end, End::all_end) << "both slots have been written by then";
  const SearchResult fresh = search({.first_epoch = 0xffffffffu, .stale_epoch = 0});
  EXPECT_EQ(fresh.end, End::wrong_value) << "so numbers start anew, with cleared packets, before they pass the last";
}

TEST(ExchangeProtocol, OneSlotIsFound) {
  for (const int ranks : {2, 3}) EXPECT_NE(search({.ranks = ranks, .slots = 1}).end, End::all_end);
}
TEST(ExchangeProtocol, AFlagBesideTheDataIsFound) {
  const SearchResult result = search({.flag_apart = true});
  EXPECT_EQ(result.end, End::wrong_value);
  EXPECT_EQ(result.what.find("rank "), 0u) << result.what;
}
TEST(ExchangeProtocol, ASwappedOrderIsFound) {
  EXPECT_EQ(search({.swapped_on_rank_1 = true}).end, End::deadlock);
  EXPECT_EQ(search({.ranks = 3, .swapped_on_rank_1 = true}).end, End::deadlock);
}
TEST(ExchangeProtocol, TwoWavesAreFound) {
  EXPECT_EQ(search({.blocks = 2, .room = 1}).end, End::deadlock);
  EXPECT_EQ(search({.blocks = 2, .room = 2}).end, End::all_end);
}
TEST(ExchangeProtocol, AnExchangeThatGoesOneWayIsFound) {
  for (const int ranks : {2, 3})
    EXPECT_NE(search({.ranks = ranks, .exchanges_a_launch = 2, .one_way = true}).end, End::all_end);
}
TEST(ExchangeProtocol, AnOddCountIsFound) {
  EXPECT_NE(search({.exchanges_a_launch = 3}).end, End::all_end);
  EXPECT_NE(search({.exchanges_a_launch = 1}).end, End::all_end);
  EXPECT_EQ(search({.exchanges_a_launch = 2}).end, End::all_end);
}

}  // namespace
}  // namespace nodewright::test
