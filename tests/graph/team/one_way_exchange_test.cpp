// Exchanges whose values go one way or not at all: a rank that has all tokens of a step, a step that chooses nothing.
// They hold every rank up all the same, or one could be two exchanges ahead and write what the other has not read.
#include "kernels_src/exchange/embed_exchange.h"
#include "kernels_src/exchange/gather_logits.h"
#include "tests/graph/team/team_fixture.h"

namespace nodewright {
namespace {

constexpr int64_t kVocab = 8, kStride = 8;
constexpr int kLaunches = 4;

// What a step has beside its sums. Zero: token 0, which rank 0 has, and no row that chooses.
struct OneWay {
  explicit OneWay(OpenedTeam& team) : opened(team) {
    for (auto& device : team.devices) {
      const std::string at = "@" + std::to_string(device->properties().ordinal);
      numbers.emplace_back(*device, "numbers" + at, 4);
      one.emplace_back(*device, "one" + at, 4);
      embedding.emplace_back(*device, "embedding" + at, kVocab * kStride);
      row.emplace_back(*device, "row" + at, kStride);
      logits.emplace_back(*device, "logits" + at, kStride);
      one.back().write(std::vector<int32_t>(4, 1));
      numbers.back().write(std::vector<int32_t>(4));
      embedding.back().write(std::vector<bf16>(kVocab * kStride));
      row.back().write(std::vector<float>(kStride));
    }
  }

  void embed(GraphBuilder& g, TeamRank& rank) {
    const size_t r = rank.index();
    const KernelRequest request{"embed_exchange",
                                {{"kRanks", rank.size()}, {"kScaled", 0}, {"kPositions", 0}, {"kLeavesGained", 0}}};
    g.launch("embed", opened.kernels[r]->kernel<EmbedExchange>(request, embed_exchange_shape(1, 4, false)),
             {.embed = {.in = {.tokens = numbers[r].view().subview(0, 1),
                               .sequences = numbers[r].view().subview(1, 1),
                               .last_token = numbers[r].view().subview(2, 1),
                               .n_live = one[r].view().subview(0, 1),
                               .vocab = kVocab},
                        .embedding = embedding[r].weight(),
                        .to = {.x = row[r], .stride = kStride}},
              .exchange = rank.exchange(1 + kStride)});
  }
  void gather(GraphBuilder& g, TeamRank& rank) {
    const size_t r = rank.index();
    g.launch("gather",
             opened.kernels[r]->kernel<GatherLogits>({"gather_logits", {{"kRanks", rank.size()}, {"kBest", 0}}},
                                                     gather_logits_shape(kStride, 4)),
             {.part = row[r],
              .logits = logits[r],
              .n_live = numbers[r].view().subview(0, 1),
              .vocab = kVocab,
              .most = kVocab / static_cast<int64_t>(rank.size()),
              .part_stride = kStride,
              .logits_stride = kStride,
              .rows = 1,
              .exchange = rank.exchange(kStride)});
  }
  void sum(GraphBuilder& g, TeamRank& rank) {
    const size_t r = rank.index();
    g.launch("sum", opened.all_reduce(r),
             {.x = opened.x[r], .y = opened.y[r], .exchange = rank.exchange(OpenedTeam::kValues)});
  }

  // Two exchanges a launch, one launch after the other: throws Error where a rank waits for ever.
  template <class First, class Second>
  void run(First first, Second second) {
    opened.write_inputs();
    TeamGraph graph(*opened.memory, plan_team(*opened.memory, "one_way", [&](GraphBuilder& g, TeamRank& rank) {
      const size_t r = rank.index();
      g.declare(opened.x[r], {.live_in = true});
      g.declare(opened.y[r], {.live_out = true});
      for (const auto* buffer : {&numbers[r], &one[r]}) g.declare(*buffer, {.live_in = true});
      g.declare(row[r], {.live_in = true, .live_out = true});
      g.declare(logits[r], {.live_in = true, .live_out = true});
      g.declare(embedding[r], {.live_in = true}, "weight");
      (this->*first)(g, rank);
      (this->*second)(g, rank);
    }));
    for (int launch = 0; launch < kLaunches; ++launch) graph.launch(*opened.streams);
    opened.streams->synchronize();
    for (size_t r = 0; r < opened.devices.size(); ++r)
      EXPECT_EQ(opened.y[r].read(opened.streams->rank(r)), opened.expected(1)) << "rank " << r;
  }

  OpenedTeam& opened;
  std::vector<DeviceArray<int32_t>> numbers, one;
  std::vector<DeviceArray<bf16>> embedding;
  std::vector<DeviceArray<float>> row, logits;
};

template <class First, class Second>
void expect_held_up(int ranks, First first, Second second) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(std::to_string(ranks) + " ranks, seed " + std::to_string(seed));
    CpuDriverOptions options;
    options.schedule = CpuSchedule::seeded;
    options.seed = seed;
    OpenedTeam opened(ranks, options);
    OneWay(opened).run(first, second);
  }
}

TEST(OneWayExchangeOnCpuDriver, ARankThatHasAllTokensWaitsForTheOthers) {
  for (const int ranks : {2, 4}) expect_held_up(ranks, &OneWay::embed, &OneWay::sum);
}

TEST(OneWayExchangeOnCpuDriver, AStepThatChoosesNothingHoldsItsRanksUp) {
  for (const int ranks : {2, 4}) expect_held_up(ranks, &OneWay::sum, &OneWay::gather);
}

}  // namespace
}  // namespace nodewright
