// Queries and keys normed over the heads of all ranks: against doubles on the host, and the same bits under every
// schedule.
#include "kernels_src/exchange/norm_heads_exchange.h"

#include <cmath>

#include "kernels_src/residual/norm.h"
#include "tests/graph/team/product_shards.h"
#include "tests/kernels/numbers.h"

namespace nodewright {
namespace {

constexpr float kNormEps = 1e-5f;

struct NormedHeads {
  int64_t rows = 1;
  int64_t heads = 3, kv_heads = 1, head_dim = 20;  // of a rank
  Norm norm = Norm::rms;
  bool apart = false;  // queries in one exchange and keys in another; else both in one, and once more

  int64_t live() const { return rows == 1 ? 1 : rows - 1; }
  int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
  // A strip's first element in a row, and its length.
  int64_t first_of(int64_t strip) const { return strip == 0 ? 0 : heads * head_dim; }
  int64_t width_of(int64_t strip) const { return (strip == 0 ? heads : kv_heads) * head_dim; }
};

class HeadsOfRanks {
 public:
  HeadsOfRanks(OpenedTeam& opened, const NormedHeads& of) : opened_(opened), of_(of) {
    for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
      Device& device = *opened.devices[rank];
      const std::string at = std::to_string(rank);
      qkv_.emplace_back(device, "qkv" + at, of.rows * of.stride()).write(values(rank));
      live_.emplace_back(device, "live" + at, 1).write(std::vector{static_cast<int32_t>(of.live())});
      for (int64_t strip : {0, 1})
        gains_.emplace_back(device, "gain" + at + (strip == 0 ? "q" : "k"), of.width_of(strip))
            .write(gain(rank, strip));
    }
  }

  // What each rank has in the end.
  std::vector<std::vector<float>> normed() {
    const auto packets = static_cast<uint64_t>(2 * of_.rows);
    ExchangeMemory memory(*opened_.team, "squares", {.packets = packets, .most = 2});
    TeamGraph graph(memory, plan_team(memory, "norms", [&](GraphBuilder& g, TeamRank& rank) {
                      const size_t r = rank.index();
                      g.declare(qkv_[r], {.live_in = true, .live_out = true});
                      g.declare(live_[r], {.live_in = true});
                      for (const size_t strip : {0, 1}) g.declare(gains_[2 * r + strip], {.live_in = true}, "weight");
                      launch(g, rank, of_.apart ? "queries" : "once", 0);
                      launch(g, rank, of_.apart ? "keys" : "again", of_.apart ? 1 : 0);
                    }));
    graph.launch(*opened_.streams);
    opened_.streams->synchronize();
    std::vector<std::vector<float>> results;
    for (size_t rank = 0; rank < qkv_.size(); ++rank) results.push_back(qkv_[rank].read(opened_.streams->rank(rank)));
    return results;
  }

  // The same on the host.
  std::vector<std::vector<double>> expected() const {
    std::vector<std::vector<double>> of_ranks;
    for (size_t rank = 0; rank < qkv_.size(); ++rank) {
      const std::vector<float> own = values(rank);
      of_ranks.emplace_back(own.begin(), own.end());
    }
    for (int times = of_.apart ? 1 : 2; times > 0; --times)
      for (int64_t row = 0; row < of_.live(); ++row)
        for (const int64_t strip : {0, 1}) norm_on_host(of_ranks, row * of_.stride() + of_.first_of(strip), strip);
    return of_ranks;
  }
  std::vector<float> values(size_t rank) const {
    std::vector<float> all;
    for (int64_t i = 0; i < of_.rows * of_.stride(); ++i)
      all.push_back(random_value(80 + rank, static_cast<uint64_t>(i)) * static_cast<float>(rank + 1));
    return all;
  }

 private:
  std::vector<bf16> gain(size_t rank, int64_t strip) const {
    return random_bf16(90 + 2 * rank + static_cast<uint64_t>(strip), of_.width_of(strip));
  }

  void launch(GraphBuilder& g, TeamRank& rank, const char* name, int64_t first) {
    const size_t r = rank.index();
    const KernelRequest request{"norm_heads_exchange",
                                {{"kRanks", static_cast<int64_t>(rank.size())},
                                 {"kHeads", of_.heads},
                                 {"kKvHeads", of_.kv_heads},
                                 {"kHeadDim", of_.head_dim},
                                 {"kNorm", static_cast<int64_t>(of_.norm)}}};
    const unsigned strips = of_.apart ? 1 : 2;
    g.launch(name,
             opened_.kernels[r]->kernel<NormHeadsExchange>(
                 request, norm_heads_exchange_shape(static_cast<unsigned>(of_.rows), strips, 4)),
             {.qkv = qkv_[r],
              .q_gain = gains_[2 * r].weight(),
              .k_gain = gains_[2 * r + 1].weight(),
              .n_live = live_[r],
              .stride = of_.stride(),
              .first_strip = first,
              .eps = kNormEps,
              .exchange = rank.exchange(static_cast<uint64_t>(of_.rows) * strips)});
  }

  void norm_on_host(std::vector<std::vector<double>>& of_ranks, int64_t first, int64_t strip) const {
    const int64_t width = of_.width_of(strip);
    double squares = 0;
    for (const std::vector<double>& own : of_ranks)
      for (int64_t i = first; i < first + width; ++i)
        squares += own[static_cast<size_t>(i)] * own[static_cast<size_t>(i)];
    const double mean = squares / static_cast<double>(width * static_cast<int64_t>(of_ranks.size()));
    const double offset = of_.norm == Norm::rms_one_plus ? 1 : 0;
    for (size_t rank = 0; rank < of_ranks.size(); ++rank) {
      const std::vector<bf16> gains = gain(rank, strip);
      for (int64_t i = 0; i < width; ++i)
        of_ranks[rank][static_cast<size_t>(first + i)] *=
            (offset + test::value_of(gains[static_cast<size_t>(i)])) / std::sqrt(mean + static_cast<double>(kNormEps));
    }
  }

  OpenedTeam& opened_;
  const NormedHeads& of_;
  std::vector<DeviceArray<float>> qkv_;
  std::vector<DeviceArray<int32_t>> live_;
  std::vector<DeviceArray<bf16>> gains_;  // by rank: of queries, of keys
};

// One row, and more rows than blocks: 4 of two strips, 8 of one.
const NormedHeads kNormedHeads[] = {{.rows = 1},
                                    {.rows = 1, .heads = 2, .kv_heads = 2, .head_dim = 128, .apart = true},
                                    {.rows = 23, .norm = Norm::rms_one_plus},
                                    {.rows = 23, .heads = 8, .kv_heads = 4, .head_dim = 64},
                                    {.rows = 18, .apart = true}};

// Returns what the ranks have, for comparison of bits.
std::vector<std::vector<float>> expect_normed(OpenedTeam& opened, const NormedHeads& of) {
  SCOPED_TRACE(testing::Message() << opened.devices.size() << " ranks, " << of.rows << " rows of " << of.heads
                                  << " and " << of.kv_heads << " heads of " << of.head_dim);
  HeadsOfRanks heads(opened, of);
  std::vector<std::vector<float>> found = heads.normed();
  const std::vector<std::vector<double>> expected = heads.expected();
  for (size_t rank = 0; rank < found.size(); ++rank) {
    const std::vector<float> before = heads.values(rank);
    for (size_t i = 0; i < found[rank].size(); ++i) {
      const auto row = static_cast<int64_t>(i) / of.stride(), at = static_cast<int64_t>(i) % of.stride();
      const bool changes = row < of.live() && at < of.first_of(1) + of.width_of(1);
      if (!changes) {
        EXPECT_EQ(found[rank][i], before[i]) << "rank " << rank << ", element " << i;
      }
      // Sums of some hundred squares, a root and three roundings, twice.
      EXPECT_NEAR(found[rank][i], expected[rank][i], 0x1p-20 * std::abs(expected[rank][i])) << rank << ", " << i;
      if (testing::Test::HasFailure()) return found;
    }
  }
  return found;
}

TEST(NormHeadsExchangeSweepOnCpuDriver, NormsOverAllRanksWithTheSameBitsUnderEverySchedule) {
  for (const int ranks : {2, 4, 8}) {
    std::vector<std::vector<std::vector<float>>> first;
    for (const uint64_t seed : {0, 1, 2, 3, 4}) {
      CpuDriverOptions options;
      if (seed == 1) options.schedule = CpuSchedule::reverse;
      if (seed > 1) options.schedule = CpuSchedule::seeded;
      options.seed = seed;
      options.check_accesses = seed == 2;
      OpenedTeam opened(ranks, options);
      size_t at = 0;
      for (const NormedHeads& each : kNormedHeads) {
        std::vector<std::vector<float>> found = expect_normed(opened, each);
        if (seed == 0)
          first.push_back(std::move(found));
        else
          EXPECT_EQ(found, first[at++]) << ranks << " ranks, seed " << seed;
      }
    }
  }
}

TEST(TwoDevicesNormHeadsExchange, NormsOverBothRanks) {
  OpenedTeam opened;
  for (const NormedHeads& each : kNormedHeads) expect_normed(opened, each);
}

}  // namespace
}  // namespace nodewright
