// Steps of a team in two lanes: the bits of two steps of half as many rows, one lane's padding changes nothing in the
// other, and the plan has a chain of nodes for each lane with the exchanges in turn.
#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "graph/edges/reachability.h"
#include "tests/engine/adapters/adapted_model.h"
#include "tests/engine/adapters/written_adapter.h"
#include "tests/engine/ranks/shared_sizes.h"
#include "tests/engine/ranks/team_decoder.h"
#include "tests/support/scratch_folder.h"

namespace nodewright {
namespace {

using namespace test;

constexpr int64_t kRowsOfStep = 96, kRowsOfHalf = kRowsOfStep / 2;

struct LaneCase {
  const char* golden;
  int ranks = 2;
};

class TeamLanes : public testing::TestWithParam<LaneCase> {
 protected:
  TeamLanes() {
    write_shared_sizes(GetParam().golden, folder_.path(), 0, true);
    loaded_ = std::make_unique<LoadedTeam>(folder_.path(), GetParam().ranks, test_device(), true);
  }
  // One row chooses.
  TeamDecoder decoder(int64_t rows, int64_t lanes) { return TeamDecoder(*loaded_, rows, Numerics::fast, 1, {}, lanes); }

  ScratchFolder folder_;
  std::unique_ptr<LoadedTeam> loaded_;
};

// The same tokens at the same positions: the early lane's, where nobody chooses, and the late lane's.
TEST_P(TeamLanes, HaveTheBitsOfTwoStepsOfHalfAsManyRows) {
  TeamDecoder lanes = decoder(kRowsOfStep, 2), halves = decoder(kRowsOfHalf, 1);
  ASSERT_TRUE(lanes.parts().in_lanes());
  const auto vocab = static_cast<size_t>(loaded_->models[0].config().vocab);
  int64_t first = 0;
  // Whole steps, some padding in the early lane, the late lane alone, whole and with padding.
  for (const int64_t rows : {kRowsOfStep, kRowsOfStep - 11, kRowsOfHalf, kRowsOfHalf - 7, int64_t{1}}) {
    SCOPED_TRACE(std::to_string(rows) + " rows");
    const Tokens tokens = some_tokens(static_cast<size_t>(rows), vocab, static_cast<unsigned>(rows));
    const int64_t early = std::max<int64_t>(0, rows - kRowsOfHalf);
    const int64_t last = lanes.run(tokens, first, true);
    if (early > 0) halves.run(std::span(tokens).first(static_cast<size_t>(early)), first, true, true, false);
    const int64_t expected_last =
        halves.run(std::span(tokens).subspan(static_cast<size_t>(early)), first + early, true);
    first += rows;
    EXPECT_EQ(last, expected_last);
    const std::vector<Logits> found = lanes.logits(last), expected = halves.logits(expected_last);
    for (size_t rank = 0; rank < found.size(); ++rank) {
      EXPECT_TRUE(same_bits(found[rank], expected[rank])) << "rank " << rank;
      EXPECT_EQ(lanes.parts().pages(rank), halves.parts().pages(rank)) << "rank " << rank;
    }
    EXPECT_EQ(lanes.parts().chosen(last), halves.parts().chosen(expected_last));
  }
}

INSTANTIATE_TEST_SUITE_P(TwoDevices, TeamLanes,
                         testing::Values(LaneCase{"llama/odd_sizes"}, LaneCase{"qwen2/biases"}, LaneCase{"gemma2/caps"},
                                         LaneCase{"cohere/parallel"}, LaneCase{"qwen3_moe/every_second"}),
                         [](const auto& info) {
                           std::string name = info.param.golden;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });
INSTANTIATE_TEST_SUITE_P(FourRanksSweepOnCpuDriver, TeamLanes,
                         testing::Values(LaneCase{"llama/odd_sizes", 4}, LaneCase{"qwen3_moe/every_second", 4}),
                         [](const auto& info) {
                           std::string name = info.param.golden;
                           std::ranges::replace(name, '/', '_');
                           return name;
                         });

// The graph of rank 0 that `decoder` runs, and which of its nodes follow which.
struct Followed {
  explicit Followed(TeamDecoder& decoder) : plan(decoder.graph().rank(0).plan()), before(plan.nodes.size()) {
    for (const Edge& edge : plan.edges) before.add(edge.from, edge.to);
  }
  uint32_t id(const std::string& name) const {
    const auto found = std::ranges::find_if(plan.nodes, [&](const PlanNode& node) { return node.name == name; });
    EXPECT_NE(found, plan.nodes.end()) << name;
    return found == plan.nodes.end() ? 0 : found->id;
  }
  bool leads(const std::string& from, const std::string& to) const { return before.ordered(id(from), id(to)); }

  const Plan& plan;
  Reachability before;
};

TEST(TwoDevicesLanes, ExchangeInTurnsAndWaitForNothingElseOfEachOther) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  TeamDecoder decoder(loaded, kRowsOfStep, Numerics::fast, 1, {}, 2);
  const Followed graph(decoder);
  std::vector<std::string> exchanges;
  for (const PlanNode& node : graph.plan.nodes)
    if (node.exchange) exchanges.push_back(node.name);
  EXPECT_EQ(exchanges, (std::vector<std::string>{"embed", "l0.early.out_sum", "l0.late.out_sum", "l0.early.down_sum",
                                                 "l0.late.down_sum", "l1.early.out_sum", "l1.late.out_sum",
                                                 "l1.early.down_sum", "l1.late.down_sum", "late.gather"}));
  // Keys and values of the early lane come first.
  EXPECT_TRUE(graph.leads("l1.early.rope", "l1.late.attend_tiles"));
  // One lane's products beside the other lane's exchange.
  for (const auto& [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"l0.early.out_sum", "l0.late.attend_tiles"},
                                                        {"l0.early.out_sum", "l0.late.out"},
                                                        {"l0.late.out_sum", "l0.early.down"},
                                                        {"l0.early.down_sum", "l0.late.down"},
                                                        {"l0.late.down_sum", "l1.early.out"}})
    EXPECT_FALSE(graph.leads(from, to)) << from << " before " << to;
}

TEST(LanesSweepOnCpuDriver, HaveTheSameBitsUnderEverySchedule) {
  ScratchFolder folder;
  write_shared_sizes("llama/biases", folder.path(), 0, true);
  std::vector<Logits> expected;
  for (const std::string device : {"cpu", "cpu:checked", "cpu:seed=1", "cpu:seed=2", "cpu:seed=3", "cpu:seed=4"}) {
    LoadedTeam loaded(folder.path(), 2, device, true);
    TeamDecoder decoder(loaded, kRowsOfStep, Numerics::fast, 1, {}, 2);
    ASSERT_TRUE(decoder.parts().in_lanes());
    const auto vocab = static_cast<size_t>(loaded.models[0].config().vocab);
    const std::vector<Logits> found =
        agreed(decoder.forced(some_tokens(kRowsOfStep + 60, vocab, 5), some_tokens(2, vocab, 6), true));
    if (expected.empty()) expected = found;
    EXPECT_TRUE(same_bits(found, expected)) << device;
  }
}

// Every third token has an adapter.
TEST(TwoDevicesLanes, HaveTheBitsOfTwoStepsAlsoWithAdapters) {
  ScratchFolder model, adapter;
  write_shared_sizes("llama/biases", model.path(), 0, true);
  write_adapter(adapter.path(), read_model_config(model.path()), 6, 3);
  LoadedTeam loaded(model.path(), 2, test_device(), true);
  const AdapterLimits limits = adapter_limits(2, kGoldenRank);
  TeamDecoder lanes(loaded, kRowsOfStep, Numerics::fast, 1, limits, 2),
      halves(loaded, kRowsOfHalf, Numerics::fast, 1, limits);
  ASSERT_TRUE(lanes.parts().in_lanes());
  for (TeamDecoder* decoder : {&lanes, &halves}) {
    decoder->use_adapter(1, adapter.path());
    decoder->adapter_of([](int32_t position) { return position % 3 == 0 ? 1 : -1; });
  }
  const Tokens tokens = some_tokens(kRowsOfStep - 5, static_cast<size_t>(loaded.models[0].config().vocab), 7);
  constexpr int64_t kEarlyRows = kRowsOfHalf - 5;
  lanes.run(tokens, 0, true);
  halves.run(std::span(tokens).first(kEarlyRows), 0, true, true, false);
  halves.run(std::span(tokens).subspan(kEarlyRows), kEarlyRows, true);
  for (size_t rank = 0; rank < 2; ++rank) {
    EXPECT_TRUE(same_bits(lanes.logits(0)[rank], halves.logits(0)[rank])) << "rank " << rank;
    EXPECT_EQ(lanes.parts().pages(rank), halves.parts().pages(rank)) << "rank " << rank;
  }
}

// As bench engine --overlap 2 has them: the bits of the same step alone, in either chain.
TEST(TwoDevicesChains, HaveTheBitsOfStepsAlone) {
  LoadedTeam loaded(golden_folder("llama/odd_sizes"), 2, test_device());
  const size_t vocab = static_cast<size_t>(loaded.models[0].config().vocab);
  for (const int64_t rows : {2, 8, 17}) {
    const TeamParts first(loaded, rows), second(loaded, rows);
    Team team(loaded.devices);
    const ModelConfig& config = loaded.models[0].config();
    ExchangeMemory memory(team, "exchange",
                          exchange_size_of_chains(config, rows, loaded.devices[0]->properties().sm_count, 2));
    const TeamStream streams(team, "steps");
    TeamGraph graph(memory, plan_team(memory, "chains", [&](GraphBuilder& g, TeamRank& rank) {
                      const size_t r = rank.index();
                      const std::array<const KvCache*, 2> caches = {&first.cache(r), &second.cache(r)};
                      const std::array<DecodeState, 2> states = {first.state(r), second.state(r)};
                      describe_chains(g, rank, loaded.models[r], first.kernels(r), caches, states);
                    }));
    TeamDecoder alone(loaded, rows);
    std::array<Tokens, 2> tokens;
    for (size_t chain = 0; chain < 2; ++chain) {
      tokens[chain] = some_tokens(static_cast<size_t>(rows), vocab, 3 + static_cast<unsigned>(chain));
      tokens[chain].front() = 1, tokens[chain].back() = static_cast<int32_t>(vocab) - 1;  // some of each rank
      (chain == 0 ? first : second).write_step(tokens[chain], 0, true);
    }
    graph.launch(streams);
    streams.synchronize();
    for (size_t chain = 0; chain < 2; ++chain) {
      const std::vector<Logits> expected = alone.step(tokens[chain], 0, true),
                                found = (chain == 0 ? first : second).logits(rows - 1);
      for (size_t rank = 0; rank < 2; ++rank)
        EXPECT_TRUE(same_bits(found[rank], expected[rank])) << rows << " rows, chain " << chain << ", rank " << rank;
    }
  }
}

}  // namespace
}  // namespace nodewright
