// Values of all ranks over sockets: whole, in the order of the ranks, and never waited for where one is gone.
#include "engine/ranks/socket_collectives.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

#include "tests/engine/ranks/linked_ranks.h"

namespace nodewright {
namespace {

using namespace test;

std::vector<uint32_t> values_of(size_t rank, size_t round, size_t count) {
  std::vector<uint32_t> values(count);
  std::iota(values.begin(), values.end(), static_cast<uint32_t>(rank * 1'000'000 + round * 1000));
  return values;
}

TEST(SocketCollectives, GatherTheValuesOfAllInTheirOrder) {
  const auto links = linked_ranks(3);
  on_all_ranks(3, [&](size_t rank) {
    SocketCollectives collectives(*links[rank]);
    EXPECT_EQ(collectives.rank(), rank);
    EXPECT_EQ(collectives.ranks(), 3U);
    for (size_t round = 0; round < 50; ++round) {
      const size_t count = round == 49 ? 1 << 20 : 1 + round * 7;  // the last more than sockets hold
      const std::vector<uint32_t> own = values_of(rank, round, count);
      std::vector<uint32_t> all(3 * count, 0), expected;
      for (size_t of = 0; of < 3; ++of)
        for (const uint32_t value : values_of(of, round, count)) expected.push_back(value);
      collectives.all_gather_on_host(own.data(), all.data(), count * sizeof(uint32_t));
      EXPECT_EQ(all, expected) << "round " << round;
    }
  });
  for (const auto& link : links) EXPECT_EQ(link->lost(), "");
}

TEST(SocketCollectives, ARankThatIsGoneEndsTheWaitOfTheOthers) {
  auto links = linked_ranks(3);
  std::atomic<int> ended = 0;
  links[2].reset();
  on_all_ranks(2, [&](size_t rank) {
    SocketCollectives collectives(*links[rank]);
    links[rank]->when_lost([&](const std::string&) { collectives.give_up(); });
    uint64_t own = rank, all[3] = {};
    for (int i = 0; i < 2; ++i)
      expect_error([&] { collectives.all_gather_on_host(&own, all, sizeof(own)); }, {"was given up"});
    EXPECT_TRUE(collectives.given_up());
    ++ended;
    links[rank]->stop_watching();  // before what it tells is gone
  });
  EXPECT_EQ(ended, 2);
}

TEST(SocketCollectives, GivingUpEndsAWaitFromAnotherThread) {
  const auto links = linked_ranks(2);
  SocketCollectives collectives(*links[1]);
  uint64_t own = 1, all[2] = {};
  std::thread waits(
      [&] { expect_error([&] { collectives.all_gather_on_host(&own, all, sizeof(own)); }, {"was given up"}); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  collectives.give_up();
  collectives.give_up();
  waits.join();
}

TEST(SocketCollectives, PlansThatDifferAreFound) {
  const auto links = linked_ranks(2);
  on_all_ranks(2, [&](size_t rank) {
    SocketCollectives collectives(*links[rank]);
    std::vector<std::byte> own(64), all(128);
    expect_error([&] { collectives.all_gather_on_host(own.data(), all.data(), rank == 0 ? 64 : 32); },
                 {"was given up"});
  });
  expect_words(links[0]->lost(), {"rank 1 at 127.0.0.1:", "has 32 bytes", "has 64: their plans differ"});
  SocketCollectives collectives(*links[0]);
  expect_error([&] { collectives.all_gather(nullptr, 0, 0, 4); }, {"over sockets", "--device cpu"});
}

}  // namespace
}  // namespace nodewright
