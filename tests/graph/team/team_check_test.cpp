// Plans of a team and their dump; and each rule of the team check broken once.
#include "graph/team/team_check.h"

#include "graph/dump/graph_dump.h"
#include "runtime/kernels/foreign_kernel.h"
#include "tests/graph/team/team_fixture.h"

namespace nodewright {
namespace {

class TeamCheckOnCpuDriver : public testing::Test {
 protected:
  // Plans that are not checked.
  TeamPlan unchecked(const DescribeRank& describe, EdgePolicy policy = EdgePolicy::programmatic) {
    TeamPlan plan = plan_team(*opened_.memory, "chain", opened_.chain(2));
    for (size_t index = 0; index < 2; ++index) {
      TeamRank rank(*opened_.memory, index);
      GraphBuilder g(rank.device(), "planted@" + std::to_string(index));
      for (size_t other = 0; other < 2; ++other)
        g.declare(opened_.memory->packet_range(other), {.live_in = true, .peer = other != index});
      for (const NamedRange& word : opened_.memory->word_ranges(index)) g.declare(word, {.live_in = true});
      describe(g, rank);
      plan.ranks[index] = std::move(g).finish(policy);
    }
    return plan;
  }
  NodeId add(GraphBuilder& g, TeamRank& rank, const std::string& name, const Exchange& exchange, bool back = false) {
    const size_t r = rank.index();
    return g.launch(
        name, opened_.all_reduce(r),
        {.x = (back ? opened_.y : opened_.x)[r], .y = (back ? opened_.z : opened_.y)[r], .exchange = exchange});
  }
  void declare(GraphBuilder& g, const TeamRank& rank) {
    g.declare(opened_.x[rank.index()], {.live_in = true});
    g.declare(opened_.y[rank.index()], {.live_in = true, .live_out = true});
    g.declare(opened_.z[rank.index()], {.live_in = true, .live_out = true});
  }
  void expect(const TeamPlan& plan, TeamRule rule, size_t rank, const std::string& node, const std::string& words) {
    const std::vector<TeamProblem> problems = team_problems(plan);
    for (const TeamProblem& p : problems)
      if (p.rule == rule && p.rank == rank && p.node == node && p.detail.find(words) != std::string::npos) return;
    ADD_FAILURE() << to_string(rule) << " of '" << node << "': " << words << " is not among " << problems.size()
                  << (problems.empty() ? "" : ", the first: " + problems[0].detail);
  }

  OpenedTeam opened_{2, {}};
};

TEST_F(TeamCheckOnCpuDriver, ADumpShowsWhatIsExchangedBetweenRanks) {
  const TeamPlan plan = plan_team(*opened_.memory, "chain", opened_.chain(2));
  ASSERT_EQ(plan.exchanges.size(), 4u);
  EXPECT_EQ(describe(plan, plan.exchanges[0]), "l0.sum@0 => l0.sum@1 (exchange 0, partial@1[0,4800))");
  EXPECT_EQ(describe(plan, plan.exchanges[3]), "l1.sum@1 => l1.sum@0 (exchange 1, partial@0[14400,19200))");
  const std::string text = to_text(plan);
  EXPECT_EQ(text.substr(0, text.find("plan chain@0")),
            "team chain: 2 ranks, 2 exchanges, 19200 B sent\n"
            "  l0.sum@0 => l0.sum@1 (exchange 0, partial@1[0,4800))\n"
            "  l0.sum@1 => l0.sum@0 (exchange 0, partial@0[4800,9600))\n"
            "  l1.sum@0 => l1.sum@1 (exchange 1, partial@1[9600,14400))\n"
            "  l1.sum@1 => l1.sum@0 (exchange 1, partial@0[14400,19200))\n");
  EXPECT_NE(text.find(">>exchange.to1=partial@1[0,4800)"), std::string::npos) << text;
  EXPECT_NE(text.find("<<exchange.from1=partial@0[4800,9600)"), std::string::npos) << text;
  EXPECT_EQ(text.find("chain@1"), std::string::npos);
  EXPECT_NE(to_text(plan, true).find("plan chain@1"), std::string::npos);
  const std::string page = to_html(plan, 1);
  EXPECT_NE(page.find("2 exchanges, 19200 B sent"), std::string::npos);
  EXPECT_NE(page.find(R"("access":"out","peer":"out")"), std::string::npos);
  EXPECT_NE(
      to_json(plan).find(R"("exchanges":[{"number":0,"from":[0,"l0.sum"],"to":[1,"l0.sum"],"buffer":"partial@1")"),
      std::string::npos);
}

TEST_F(TeamCheckOnCpuDriver, GoodPlansHaveNoProblems) {
  for (const EdgePolicy policy : {EdgePolicy::serial, EdgePolicy::full, EdgePolicy::programmatic})
    EXPECT_TRUE(team_problems(plan_team(*opened_.memory, "chain", opened_.chain(6), policy)).empty());
}

TEST_F(TeamCheckOnCpuDriver, AnErrorNamesNodeRankAndRule) {
  try {
    plan_team(*opened_.memory, "odd", opened_.chain(3));
    FAIL() << "it is a team";
  } catch (const Error& error) {
    const std::string text = error.what();
    EXPECT_NE(
        text.find("node 'l2.sum' of rank 0 breaks the rule 'an even number of exchanges a launch': it is the last "
                  "of 3 exchanges"),
        std::string::npos)
        << text;
  }
}

TEST_F(TeamCheckOnCpuDriver, SwappedOrderIsFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    const Exchange first = rank.exchange(600), second = rank.exchange(600);
    const bool swapped = rank.index() == 1;
    add(g, rank, swapped ? "b" : "a", swapped ? second : first);
    add(g, rank, swapped ? "a" : "b", swapped ? first : second, true);
  });
  expect(plan, TeamRule::same_order, 1, "b", "it takes part in exchange 1, and 0 is the next");
}

TEST_F(TeamCheckOnCpuDriver, OtherNodesOnAnotherRankAreFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    add(g, rank, rank.index() == 1 ? "down" : "out", rank.exchange(600));
    add(g, rank, "next", rank.exchange(600), true);
  });
  expect(plan, TeamRule::same_order, 1, "down", "it is exchange 0, and on rank 0 'out' is exchange 0");
}

TEST_F(TeamCheckOnCpuDriver, AMissingExchangeIsFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    const Exchange first = rank.exchange(600), second = rank.exchange(600);
    add(g, rank, "a", first);
    if (rank.index() == 0) add(g, rank, "b", second, true);
  });
  expect(plan, TeamRule::same_order, 1, "b", "rank 0 has it, and this rank has not");
  expect(plan, TeamRule::meets_one, 0, "b", "which 0 nodes of other ranks take");
  expect(plan, TeamRule::even_count, 1, "a", "it is the last of 1 exchanges");
}

TEST_F(TeamCheckOnCpuDriver, OtherSizesAreFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    add(g, rank, "a", rank.exchange(rank.index() == 0 ? 600 : 500));
    add(g, rank, "b", rank.exchange(600), true);
  });
  expect(plan, TeamRule::meets_one, 0, "a",
         "field 'exchange.to1' sends partial@1[0,4800) in exchange 0, which 0 nodes");
  expect(plan, TeamRule::meets_one, 1, "a", "field 'exchange.from0' takes partial@1[0,4000) in exchange 0, which 0");
}

TEST_F(TeamCheckOnCpuDriver, OneSlotIsFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    const Exchange first = rank.exchange(600);
    Exchange second = first;
    second.number = {1};
    add(g, rank, "a", first);
    add(g, rank, "b", second, true);
  });
  expect(plan, TeamRule::two_slots, 1, "b", "exchange 1 takes partial@1[0,4800), and exchange 0 before it takes");
}

// The word in which kernels note an abort orders all exchanges of a plan: the edge is taken out.
TEST_F(TeamCheckOnCpuDriver, ExchangesWithoutAnOrderAreFound) {
  TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    const size_t r = rank.index();
    add(g, rank, "a", rank.exchange(600));
    g.launch("b", opened_.all_reduce(r), {.x = opened_.x[r], .y = opened_.z[r], .exchange = rank.exchange(600)});
  });
  EXPECT_TRUE(team_problems(plan).empty());
  plan.ranks[0].edges.clear();
  expect(plan, TeamRule::ordered, 0, "b", "no edges lead to it, in exchange 1, from 'a', in exchange 0");
}

TEST_F(TeamCheckOnCpuDriver, TwoWavesAreFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    const size_t r = rank.index();
    Kernel<AllReduce> kernel = opened_.all_reduce(r);
    kernel.shape.grid[0] = 17;  // the device has four SMs, with four blocks each
    add(g, rank, "a", rank.exchange(600));
    g.launch("b", kernel, {.x = opened_.y[r], .y = opened_.z[r], .exchange = rank.exchange(600)});
  });
  expect(plan, TeamRule::one_wave, 1, "b", "it has 17 blocks, and 16 fit on 4 SMs");
}

TEST_F(TeamCheckOnCpuDriver, ClustersThatDoNotFitAreFound) {
  const auto of_clusters = [&](unsigned blocks) {
    return [this, blocks](GraphBuilder& g, TeamRank& rank) {
      declare(g, rank);
      const size_t r = rank.index();
      Kernel<AllReduce> kernel = opened_.all_reduce(r);
      kernel.shape.grid[0] = blocks;
      kernel.shape.cluster[0] = 2;
      add(g, rank, "a", rank.exchange(600));
      g.launch("b", kernel, {.x = opened_.y[r], .y = opened_.z[r], .exchange = rank.exchange(600)});
    };
  };
  EXPECT_TRUE(team_problems(unchecked(of_clusters(16))).empty());
  expect(unchecked(of_clusters(18)), TeamRule::one_wave, 1, "b", "it has 9 clusters of 2 blocks, and 8 fit on 4 SMs");
}

TEST_F(TeamCheckOnCpuDriver, MemoryOfAnotherRankIsFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    add(g, rank, "a", rank.exchange(600));
    add(g, rank, "b", rank.exchange(600), true);
    if (rank.index() == 1) g.declare(opened_.z[0], {.live_out = true, .peer = true});
    g.fill("clear", opened_.z[0].view(), 0.0f);
  });
  expect(plan, TeamRule::apart, 0, "b", "field 'y' (out) and 'clear' of rank 1 (field 'to': out) share z@0[0,2400)");
}

TEST_F(TeamCheckOnCpuDriver, AKernelThatMayNotWaitIsFound) {
  TeamPlan plan = plan_team(*opened_.memory, "chain", opened_.chain(2));
  plan.ranks[1].nodes[1].waits_for_inputs = false;
  expect(plan, TeamRule::waits, 1, "l1.sum", "kernel 'all_reduce' has a path without a wait");
}

TEST_F(TeamCheckOnCpuDriver, AnExchangeInAChildIsFound) {
  const TeamPlan plan = unchecked([&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    GraphBuilder inner(rank.device(), "inner");
    for (size_t other = 0; other < 2; ++other)
      inner.declare(opened_.memory->packet_range(other), {.live_in = true, .peer = other != rank.index()});
    for (const NamedRange& word : opened_.memory->word_ranges(rank.index())) inner.declare(word, {.live_in = true});
    declare(inner, rank);
    add(inner, rank, "a", rank.exchange(600));
    g.child("child", std::move(inner).finish());
  });
  expect(plan, TeamRule::top_level, 0, "a", "it stands in 'inner'");
}

// Its stand-in is never run: one of the host cannot wait for another device.
TEST_F(TeamCheckOnCpuDriver, AForeignKernelMaySendAndTake) {
  const auto nothing = [](const float*, Packet*, const Packet*) {};
  std::vector<ForeignKernel> kernels;
  for (auto& device : opened_.devices) kernels.push_back(load_kernel(*device, {}, "theirs", nothing));
  const auto add_foreign = [&](GraphBuilder& g, const TeamRank& rank, const std::string& name, uint32_t number,
                               std::optional<uint32_t> said) {
    const size_t own = rank.index(), other = 1 - own;
    g.launch(name, kernels[own], launch_shape_1d(1, 32), {.waits_for_inputs = true, .exchange = said},
             updates<"x">(opened_.x[own]), sends<"to">(opened_.memory->packets(other, own, number, 600)),
             takes<"from">(opened_.memory->packets(own, other, number, 600)));
  };
  const TeamPlan plan = plan_team(*opened_.memory, "foreign", [&](GraphBuilder& g, TeamRank& rank) {
    declare(g, rank);
    for (uint32_t number : {0, 1}) add_foreign(g, rank, "theirs" + std::to_string(number), number, number);
  });
  ASSERT_EQ(plan.exchanges.size(), 4u);
  EXPECT_EQ(describe(plan, plan.exchanges[2]), "theirs1@0 => theirs1@1 (exchange 1, partial@1[9600,14400))");
  EXPECT_NE(to_text(plan).find(">>to=partial@1[0,4800) <<from=partial@0[4800,9600)"), std::string::npos)
      << to_text(plan);
  try {
    plan_team(*opened_.memory, "foreign", [&](GraphBuilder& g, TeamRank& rank) {
      declare(g, rank);
      add_foreign(g, rank, "theirs", 0, std::nullopt);
    });
    FAIL() << "it names no exchange";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("argument 'to' is memory of packets"), std::string::npos) << error.what();
  }
}

TEST_F(TeamCheckOnCpuDriver, ExchangesThatTheMemoryHasNoRoomForAreRefused) {
  TeamRank rank(*opened_.memory, 0);
  EXPECT_THROW(rank.exchange(601), Error);
  EXPECT_THROW(rank.exchange(0), Error);
  for (int i = 0; i < 16; ++i) rank.exchange(1);
  EXPECT_THROW(rank.exchange(1), Error);
  EXPECT_THROW(ExchangeMemory(*opened_.team, "odd", {.packets = 1, .most = 3}), Error);
  EXPECT_THROW(Team({opened_.devices[0].get()}), Error);
  EXPECT_THROW(Team({opened_.devices[0].get(), opened_.devices[0].get()}), Error);
}

TEST_F(TeamCheckOnCpuDriver, PatchesOfAnExchangesNumberAreRefused) {
  TeamGraph graph(*opened_.memory, plan_team(*opened_.memory, "chain", opened_.chain(2)));
  Exchange other{};
  const Node<AllReduce> node{NodeId{0, graph.rank(0).plan().id}};
  EXPECT_THROW(graph.rank(0).patch(node, &AllReduce::exchange, other), Error);
}

}  // namespace
}  // namespace nodewright
