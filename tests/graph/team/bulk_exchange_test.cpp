// Bulk exchanges: words without epochs, guarded by flags that have one. The same sums on all ranks under every
// schedule; and without the fence between them, words that come late are noticed.
#include <bit>

#include "kernels_src/exchange/exchange_add.h"
#include "runtime/kernels/inline_kernel.h"
#include "tests/graph/team/product_shards.h"

namespace nodewright {
namespace {

NODEWRIGHT_ARGS(BulkCase, {
  In<bf16> x;             // [rows, cols]
  PartialOut<float> sum;  // [rows, cols]
  int64_t cols;
  int64_t live;
  Exchange exchange;
})

// The kernel `name`; `before` is inserted after packets.cuh.
InlineKernel bulk_kernel(const std::string& name, const std::string& before) {
  static const std::string args =
      "}\n#include \"kernels_src/exchange/exchange.h\"\nnamespace nodewright {\n" + std::string(kBulkCaseText);
  return InlineKernel(name, args, "#include \"kernels_src/device/packets.cuh\"\n" + before + R"(
#include "kernels_src/exchange/bulk_sums.cuh"
NODEWRIGHT_KERNEL()" + name + R"(, BulkCase, kExchangeAddThreads) {
  wait_for_inputs();
  exchange_bulk(
      args.exchange, args.cols, args.live, epoch_of(args.exchange),
      [&](int64_t row, int64_t col) { return *reinterpret_cast<const uint4*>(args.x.data + row * args.cols + col); },
      [&](int64_t row, int64_t col, const float(&sums)[8]) {
        for (int i = 0; i < 8; ++i) args.sum.data[row * args.cols + col + i] = sums[i];
      });
}
)");
}
const InlineKernel kFenced = bulk_kernel("bulk_case", "");
const InlineKernel kUnfenced = bulk_kernel("unfenced_bulk_case", R"(
namespace nodewright { NODEWRIGHT_DEVICE void no_fence() {} }
#define fence_peers no_fence
)");

constexpr int64_t kBulkRows = 37, kBulkLive = 35, kBulkCols = 1016;  // 9 chunks, of which the last is not full
constexpr uint64_t kValuesOf = kBulkRows * kBulkCols;

float value_of(bf16 value) { return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16); }

class Bulk {
 public:
  explicit Bulk(OpenedTeam& opened) : opened_(opened) {
    for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
      const std::string at = std::to_string(rank);
      x_.emplace_back(*opened.devices[rank], "x" + at, kValuesOf);
      sum_.emplace_back(*opened.devices[rank], "sum" + at, kValuesOf);
    }
  }

  // How many sums of all ranks are not those of the ranks' values, in their order, in `launches` of new values. `live`:
  // rows of each exchange.
  int64_t wrong_in(int launches, const InlineKernel& source, const char* name,
                   const std::vector<int64_t>& live = {kBulkLive, kBulkLive}) {
    ExchangeMemory memory(*opened_.team, "rows",
                          {.packets = 2, .most = static_cast<uint32_t>(live.size()), .bulk = kValuesOf});
    TeamGraph graph(memory, plan_team(memory, "bulk", [&](GraphBuilder& g, TeamRank& rank) {
                      const size_t r = rank.index();
                      g.declare(x_[r], {.live_in = true});
                      g.declare(sum_[r], {.live_out = true});
                      opened_.kernels[r]->add(source);
                      const KernelRequest request{name, {{"kRanks", static_cast<int64_t>(rank.size())}}};
                      for (size_t i = 0; i < live.size(); ++i)
                        g.launch(
                            "sum" + std::to_string(i),
                            opened_.kernels[r]->kernel<BulkCase>(request, {{4, 1, 1}, {kExchangeAddThreads, 1, 1}, 0}),
                            {.x = x_[r],
                             .sum = sum_[r],
                             .cols = kBulkCols,
                             .live = live[i],
                             .exchange = rank.bulk_exchange(kValuesOf)});
                    }));
    int64_t wrong = 0;
    for (int launch = 0; launch < launches; ++launch) {
      std::vector<std::vector<bf16>> values;
      for (size_t rank = 0; rank < x_.size(); ++rank) {
        values.push_back(random_bf16(rank + 10 * static_cast<uint64_t>(launch) + 1, kValuesOf));
        x_[rank].write(values.back());
      }
      graph.launch(*opened_.streams);
      opened_.streams->synchronize();
      for (size_t rank = 0; rank < x_.size(); ++rank)
        wrong += wrong_of(sum_[rank].read(opened_.streams->rank(rank)), values);
    }
    return wrong;
  }

 private:
  static int64_t wrong_of(const std::vector<float>& sums, const std::vector<std::vector<bf16>>& values) {
    int64_t wrong = 0;
    for (size_t i = 0; i < static_cast<size_t>(kBulkLive * kBulkCols); ++i) {
      float sum = value_of(values[0][i]);
      for (size_t rank = 1; rank < values.size(); ++rank) sum += value_of(values[rank][i]);
      wrong += sums[i] != sum ? 1 : 0;
    }
    return wrong;
  }

  OpenedTeam& opened_;
  std::vector<DeviceArray<bf16>> x_;
  std::vector<DeviceArray<float>> sum_;
};

TEST(BulkExchangeOnCpuDriver, HasTheSumsOfAllRanksUnderEverySchedule) {
  for (const int ranks : {2, 3, 8})
    for (const uint64_t seed : {0, 1, 2, 3}) {
      CpuDriverOptions options;
      if (seed == 1) options.schedule = CpuSchedule::reverse;
      if (seed > 1) options.schedule = CpuSchedule::seeded;
      options.seed = seed;
      options.check_accesses = seed == 2;
      OpenedTeam opened(ranks, options);
      EXPECT_EQ(Bulk(opened).wrong_in(2, kFenced, "bulk_case"), 0) << ranks << " ranks, seed " << seed;
    }
}

// As of a lane that has padding alone: a rank would otherwise be two exchanges ahead, and write where the other reads.
TEST(BulkExchangeOnCpuDriver, HoldsARankUpAlsoWithoutRows) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    CpuDriverOptions options;
    options.schedule = CpuSchedule::seeded;
    options.seed = seed;
    OpenedTeam opened(2, options);
    EXPECT_EQ(Bulk(opened).wrong_in(2, kFenced, "bulk_case", {1, 0, kBulkLive, 0}), 0) << "seed " << seed;
  }
}

TEST(BulkExchangeOnCpuDriver, IsWrongWithoutItsFence) {
  CpuDriverOptions options;
  options.schedule = CpuSchedule::seeded;
  options.seed = 5;
  OpenedTeam opened(2, options);
  EXPECT_GT(Bulk(opened).wrong_in(2, kUnfenced, "unfenced_bulk_case"), 0);
}

TEST(TwoDevicesBulkExchange, HasTheSumsOfBothRanks) {
  OpenedTeam opened;
  EXPECT_EQ(Bulk(opened).wrong_in(50, kFenced, "bulk_case"), 0);
}

}  // namespace
}  // namespace nodewright
