#include "graph/hazards/hazard_tracker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <tuple>

namespace nodewright {
namespace {

// (before, hazard, address, bytes)
using Found = std::tuple<uint32_t, Hazard, uint64_t, uint64_t>;

std::vector<Found> place(HazardTracker& tracker, uint32_t node, std::vector<RangeUse> uses) {
  std::vector<RequiredOrder> required;
  tracker.place(node, uses, required);
  std::vector<Found> orders;
  for (const RequiredOrder& order : required)
    orders.emplace_back(order.before, order.hazard, order.address, order.bytes);
  return orders;
}

TEST(HazardTracker, AReadFollowsTheWriteOfItsBytes) {
  HazardTracker tracker;
  EXPECT_TRUE(place(tracker, 0, {{{100, 50}, Access::out}}).empty());
  EXPECT_EQ(place(tracker, 1, {{{100, 50}, Access::in}}), (std::vector<Found>{{0, Hazard::raw, 100, 50}}));
}

TEST(HazardTracker, AWriteFollowsTheReadersSinceTheLastWriteAndThatWrite) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 10}, Access::out}});
  place(tracker, 1, {{{0, 10}, Access::in}});
  place(tracker, 2, {{{0, 10}, Access::in}});
  EXPECT_EQ(place(tracker, 3, {{{0, 10}, Access::out}}),
            (std::vector<Found>{{0, Hazard::waw, 0, 10}, {1, Hazard::war, 0, 10}, {2, Hazard::war, 0, 10}}));
  EXPECT_EQ(place(tracker, 4, {{{0, 10}, Access::out}}), (std::vector<Found>{{3, Hazard::waw, 0, 10}}))
      << "older readers are behind node 3";
}

TEST(HazardTracker, AReadOfLiveInBytesFollowsNothingAndALaterWriteFollowsIt) {
  HazardTracker tracker;
  EXPECT_TRUE(place(tracker, 0, {{{0, 10}, Access::in}}).empty());
  EXPECT_EQ(place(tracker, 1, {{{5, 10}, Access::out}}), (std::vector<Found>{{0, Hazard::war, 5, 5}}));
}

TEST(HazardTracker, OnlyTheSharedPartOfARangeIsAReason) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 100}, Access::out}});
  place(tracker, 1, {{{40, 20}, Access::out}});
  EXPECT_EQ(place(tracker, 2, {{{30, 20}, Access::in}}),
            (std::vector<Found>{{0, Hazard::raw, 30, 10}, {1, Hazard::raw, 40, 10}}));
  EXPECT_EQ(place(tracker, 3, {{{60, 40}, Access::in}}), (std::vector<Found>{{0, Hazard::raw, 60, 40}}));
}

TEST(HazardTracker, RangesThatTouchWithoutSharingAByteNeedNoOrder) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 10}, Access::out}});
  EXPECT_TRUE(place(tracker, 1, {{{10, 10}, Access::inout}}).empty());
  EXPECT_TRUE(place(tracker, 2, {{{20, 10}, Access::in}}).empty());
}

TEST(HazardTracker, PiecesOfOneReasonAreJoined) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 100}, Access::out}});
  place(tracker, 1, {{{10, 10}, Access::in}});  // splits the segment of node 0
  EXPECT_EQ(place(tracker, 2, {{{0, 100}, Access::in}}), (std::vector<Found>{{0, Hazard::raw, 0, 100}}));
}

TEST(HazardTracker, AnInOutUseIsAReadThenAWrite) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 10}, Access::out}});
  EXPECT_EQ(place(tracker, 1, {{{0, 10}, Access::inout}}), (std::vector<Found>{{0, Hazard::raw, 0, 10}}));
  EXPECT_EQ(place(tracker, 2, {{{0, 10}, Access::in}}), (std::vector<Found>{{1, Hazard::raw, 0, 10}}));
}

TEST(HazardTracker, FrozenUsesAreNotTracked) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 10}, Access::frozen}});
  EXPECT_TRUE(place(tracker, 1, {{{0, 10}, Access::out}}).empty());
}

TEST(HazardTracker, KnowsWhichBytesWereWritten) {
  HazardTracker tracker;
  place(tracker, 0, {{{0, 10}, Access::out}, {{20, 10}, Access::out}, {{12, 4}, Access::in}});
  EXPECT_FALSE(tracker.first_unwritten({0, 10}));
  const auto hole = tracker.first_unwritten({5, 20});
  ASSERT_TRUE(hole);
  EXPECT_EQ(hole->address, 10u);
  EXPECT_TRUE(tracker.first_unwritten({12, 4})) << "read, never written";
  EXPECT_FALSE(tracker.first_written({10, 10}));
  EXPECT_EQ(tracker.first_written({10, 15})->range.address, 20u);
  EXPECT_TRUE(tracker.first_unwritten({0, 10, 1})) << "of another buffer";
}

// Every byte on its own: the definition, too slow for anything but a test. Few bytes, so that ranges meet in every way;
// many, so that a buffer has far more segments than a chunk.
struct RandomUses {
  uint32_t seeds, nodes, addresses, longest;  // bytes of most ranges; one in 64 is as long as a fourth of the addresses
};

class HazardTrackerOnRandomUses : public testing::TestWithParam<RandomUses> {};

TEST_P(HazardTrackerOnRandomUses, AgreesWithABytewiseModel) {
  const auto [seeds, nodes, addresses, longest] = GetParam();
  for (uint32_t seed = 0; seed < seeds; ++seed) {
    std::mt19937 random(seed);
    HazardTracker tracker;
    struct Byte {
      int writer = -1;
      std::set<uint32_t> readers;
    };
    std::map<std::pair<uint32_t, uint64_t>, Byte> memory;  // by buffer and address
    for (uint32_t node = 0; node < nodes; ++node) {
      const uint32_t most = random() % 64 == 0 ? addresses / 4 : longest;
      const ByteRange range{random() % addresses, 1 + random() % most, static_cast<uint32_t>(random() % 2)};
      const RangeUse use{range, static_cast<Access>(1 + random() % 3)};
      const auto first = [&](bool written) {
        uint64_t at = range.address;
        while (at < range.end() && (memory[{range.buffer, at}].writer >= 0) != written) ++at;
        return at;
      };
      const auto unwritten = tracker.first_unwritten(range);
      ASSERT_EQ(unwritten ? unwritten->address : range.end(), first(false)) << "node " << node;
      const auto written = tracker.first_written(range);
      ASSERT_EQ(written ? written->range.address : range.end(), first(true)) << "node " << node;
      std::set<std::tuple<uint32_t, Hazard, uint64_t>> expected, found;
      for (uint64_t at = range.address; at < range.end(); ++at) {
        Byte& byte = memory[{range.buffer, at}];
        const Hazard after_write = use.access == Access::out ? Hazard::waw : Hazard::raw;
        if (byte.writer >= 0) expected.emplace(byte.writer, after_write, at);
        if (use.access == Access::in) {
          byte.readers.insert(node);
          continue;
        }
        for (const uint32_t reader : byte.readers) expected.emplace(reader, Hazard::war, at);
        byte = {static_cast<int>(node), {}};
      }
      std::vector<RequiredOrder> orders;
      tracker.place(node, std::vector<RangeUse>{use}, orders);
      for (const RequiredOrder& order : orders)
        for (uint64_t at = order.address; at < order.address + order.bytes; ++at)
          found.emplace(order.before, order.hazard, at);
      ASSERT_EQ(found, expected) << "node " << node;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sizes, HazardTrackerOnRandomUses,
                         testing::Values(RandomUses{40, 80, 96, 24}, RandomUses{4, 3000, 6000, 8}));

}  // namespace
}  // namespace nodewright
