// Teams that run: the same bits on all ranks under every schedule, numbers that start anew, and launches that fail.
#include "graph/team/team_graph.h"

#include "runtime/calls/interposer.h"
#include "tests/graph/team/team_fixture.h"

namespace nodewright {
namespace {

std::vector<CpuDriverOptions> schedules(int seeds) {
  std::vector<CpuDriverOptions> all(2);
  all[1].schedule = CpuSchedule::reverse;
  for (int seed = 1; seed <= seeds; ++seed) {
    all.emplace_back().schedule = CpuSchedule::seeded;
    all.back().seed = static_cast<uint64_t>(seed) * 7919;
  }
  return all;
}

void expect_sums(OpenedTeam& opened, int exchanges) {
  const std::vector<float> expected = opened.expected(exchanges);
  for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
    const DeviceArray<float>& last = exchanges % 2 == 1 ? opened.y[rank] : opened.z[rank];
    ASSERT_EQ(expected, last.read(opened.streams->rank(rank))) << "rank " << rank;
  }
}

TEST(TeamGraphOnCpuDriver, EveryRankGetsTheSameSumUnderEverySchedule) {
  for (const int ranks : {2, 3, 4, 8})
    for (CpuDriverOptions options : schedules(ranks == 8 ? 2 : 5)) {
      options.check_accesses = options.seed % 2 == 0;
      OpenedTeam opened(ranks, options);
      opened.write_inputs();
      TeamGraph graph(*opened.memory, plan_team(*opened.memory, "chain", opened.chain(6)));
      for (int launch = 0; launch < 3; ++launch) graph.launch(*opened.streams);
      opened.streams->synchronize();
      expect_sums(opened, 6);
    }
}

TEST(TwoDevicesTeam, SumsOnWhateverDevicesThereAre) {
  OpenedTeam opened;
  opened.write_inputs();
  TeamGraph graph(*opened.memory, plan_team(*opened.memory, "chain", opened.chain(6)));
  for (int launch = 0; launch < 100; ++launch) graph.launch(*opened.streams);
  opened.streams->synchronize();
  expect_sums(opened, 6);
}

TEST(TeamGraphOnCpuDriver, NumbersOfLaunchesStartAnew) {
  OpenedTeam opened(2, {});
  opened.write_inputs();
  TeamGraph graph(*opened.memory, plan_team(*opened.memory, "chain", opened.chain(2)));
  const uint32_t last = 0xffffffffu / 16 - 1;
  opened.memory->set_next(last - 1);
  for (int launch = 0; launch < 5; ++launch) {
    graph.launch(*opened.streams);
    opened.streams->synchronize();
    expect_sums(opened, 2);
  }
  EXPECT_EQ(opened.memory->next_launch(*opened.streams), 4u) << "two of the five had the last numbers";
}

// The graph of rank 1 cannot be launched: rank 0 has been, and ends.
TEST(TeamGraphOnCpuDriver, AFailedLaunchEndsTheOthersAndCanBeFollowedByGoodOnes) {
  OpenedTeam opened(4, {});
  Interposer interposer(*opened.driver);
  opened.write_inputs();
  TeamGraph graph(*opened.memory, plan_team(*opened.memory, "chain", opened.chain(4)));
  const uint64_t before = interposer.calls();
  graph.launch(*opened.streams);
  const uint64_t calls = interposer.calls() - before;
  opened.streams->synchronize();
  ASSERT_GE(calls, 8u) << "a number and a graph for each of four ranks";
  int failures = 0;  // no error comes of a call that makes the context current that was current before
  for (uint64_t n = 0; n < calls; ++n) {
    interposer.fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
    bool failed = false;
    try {
      graph.launch(*opened.streams);
    } catch (const Error&) {
      failed = true;
    }
    interposer.fail_none();
    EXPECT_EQ(failed, opened.memory->given_up()) << "call " << n;
    if (failed) {
      ++failures;
      EXPECT_THROW(graph.launch(*opened.streams), Error) << "given up";
      for (size_t rank = 0; rank < 4; ++rank) EXPECT_TRUE(opened.streams->rank(rank).done()) << "call " << n;
      opened.memory->recover();
    }
    graph.launch(*opened.streams);
    opened.streams->synchronize();
    expect_sums(opened, 4);
  }
  EXPECT_GE(failures, 8);
}

// Every driver call between the devices and the first launch.
TEST(TeamGraphOnCpuDriver, EachDriverCallOfAStartMayFailAndLeavesNothingBehind) {
  OpenedTeam opened(2, {});
  Interposer interposer(*opened.driver);
  const auto start = [&] {
    Team team({opened.devices[0].get(), opened.devices[1].get()});
    ExchangeMemory memory(team, "other", {.packets = OpenedTeam::kValues, .most = 4});
    TeamGraph graph(memory, plan_team(memory, "start", opened.chain(2)));
  };
  start();  // kernels are loaded, and peers have access
  const auto live = [&] {
    return interposer.live_count(HandleKind::device_memory) + interposer.live_count(HandleKind::host_memory) +
           interposer.live_count(HandleKind::stream) + interposer.live_count(HandleKind::graph) +
           interposer.live_count(HandleKind::graph_exec);
  };
  const uint64_t before = live(), from = interposer.calls();
  start();
  const uint64_t calls = interposer.calls() - from;
  ASSERT_EQ(live(), before);
  int failures = 0;
  for (uint64_t n = 0; n < calls; ++n) {
    interposer.fail_call(n, CUDA_ERROR_OUT_OF_MEMORY);
    try {
      start();
    } catch (const Error&) {
      ++failures;
    }
    interposer.fail_none();
    EXPECT_EQ(live(), before) << "call " << n << " of " << calls;
  }
  EXPECT_GE(failures, 30) << "of " << calls << " calls; those of destructors have no errors";
  start();
}

TEST(TeamGraphOnCpuDriver, AGraphOfAnotherTeamsSizeIsRefused) {
  OpenedTeam opened(2, {});
  TeamPlan plan = plan_team(*opened.memory, "chain", opened.chain(2));
  plan.ranks.pop_back();
  EXPECT_THROW(TeamGraph(*opened.memory, std::move(plan)), Error);
}

TEST(TeamGraphOnCpuDriver, OneRankAloneIsADeadlockThatNamesItsNode) {
  OpenedTeam opened(2, {});
  opened.write_inputs();
  TeamGraph graph(*opened.memory, plan_team(*opened.memory, "chain", opened.chain(2)));
  const uint32_t number = 1;
  write_view<uint32_t>(*opened.devices[0], opened.memory->launch_number(0), std::span(&number, 1), "number");
  graph.rank(0).launch(opened.streams->rank(0));
  try {
    opened.streams->rank(0).synchronize();
    FAIL() << "it ended";
  } catch (const Error& error) {
    const std::string text = error.what();
    for (const char* part : {"deadlock between devices: device 0, node 'l0.sum', kernel all_reduce: 2 of 2 blocks wait",
                             "at byte 4800 of buffer 'partial@0' of device 0", "no packet is on its way"})
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  }
}

}  // namespace
}  // namespace nodewright
