// The product in tiles whose sums cross the devices, against its shards in tiles on one device, added in the order of
// the ranks: the same bits, in the residual, in the rows times the next gain, and for a norm.
#include <bit>

#include "kernels_src/product/tiles/tile_shape.h"
#include "kernels_src/projection/project_exchange.h"
#include "tests/graph/team/product_shards.h"
#include "tests/kernels/numbers.h"

namespace nodewright {
namespace {

constexpr int64_t kTileCols = 256, kTileOutputs = 131;

struct TileCase {
  int64_t rows;
  int64_t splits = 0;  // of rows that are held; 0: they are streamed
  bool adds = true, gained = false;
  float scale = 1;

  TileShape shape() const {
    TileShape shape{rows, kTileCols, kTileCols, kTileOutputs};
    shape.held = splits > 0;
    shape.tuning.splits = splits;
    shape.keeps_sums = true;
    return shape;
  }
  int64_t blocks() const { return launch().grid[0]; }
  int64_t ring() const { return shape().ring(4, 64 << 10); }
  LaunchShape launch() const { return shape().launch_shape(4, ring()); }  // SMs, as the CPU driver has
  KernelRequest request(const char* kernel, size_t ranks) const {
    return {kernel, constants_of(shape().constants(ring()),
                                 {{"kBias", 1},
                                  {"kScale", scale == 1 ? 0 : int64_t{std::bit_cast<uint32_t>(scale)}},
                                  {"kRanks", static_cast<int64_t>(ranks)},
                                  {"kAdds", adds ? 1 : 0},
                                  {"kLeavesGained", gained ? 1 : 0}})};
  }
  std::string name() const { return std::to_string(rows) + " rows, " + std::to_string(splits) + " splits"; }
};

const TileCase kTileCases[] = {
    {.rows = 4, .scale = 0.22f},
    {.rows = 8, .gained = true},
    {.rows = 8, .adds = false},
    {.rows = 16, .gained = true, .scale = 0.22f},
    {.rows = 24, .splits = 1, .gained = true},
    {.rows = 32, .splits = 2, .gained = true},
    {.rows = 32, .splits = 4, .adds = false},
};

// What one rank has, at the end.
struct TileResult {
  std::vector<float> residual, squares;
  std::vector<bf16> gained;
};

// Two exchanges, each of which adds the same sums.
std::vector<TileResult> exchanged_tiles(OpenedTeam& opened, const TileCase& of) {
  Shards shards(opened, {of.rows, kTileCols, kTileOutputs}, false);
  const auto packets = static_cast<uint64_t>(of.rows * kTileOutputs);
  ExchangeMemory memory(*opened.team, "sums", {.packets = packets, .most = 2});
  std::vector<DeviceArray<bf16>> gain, gained;
  std::vector<DeviceArray<float>> squares;
  for (auto& device : opened.devices) {
    const std::string at = std::to_string(device->properties().ordinal);
    gain.emplace_back(*device, "gain" + at, kTileOutputs);
    gained.emplace_back(*device, "gained" + at, packets);
    squares.emplace_back(*device, "squares" + at, of.blocks() * ((of.rows + 7) / 8 * 8));
    gain.back().write(random_bf16(50, kTileOutputs));
  }
  const auto describe_rank = [&](GraphBuilder& g, TeamRank& rank) {
    const size_t r = rank.index();
    shards.declare(g, r);
    g.declare(shards.residual[r], {.live_in = true, .live_out = true});
    g.declare(gain[r], {.live_in = true}, "weight");
    g.declare(gained[r], {.live_out = true});
    g.declare(squares[r], {.live_out = true});
    const auto kernel =
        opened.kernels[r]->kernel<ProjectExchange>(of.request("tile_project_exchange", rank.size()), of.launch());
    for (const char* name : {"out", "down"}) {
      ProjectExchange args{.from = {shards.x[r], kTileCols},
                           .w = {shards.weight[r].weight(), shards.bias[r].weight(), kTileOutputs},
                           .to = {.stride = shards.stride()},
                           .n_live = shards.live[r],
                           .exchange = rank.exchange(packets)};
      if (of.adds)
        args.to.residual = shards.residual[r];
      else
        args.to.sum = shards.residual[r];
      if (of.gained) args.to.next = {gain[r].weight(), gained[r], squares[r]};
      g.launch(name, kernel, args);
    }
  };
  TeamGraph graph(memory, plan_team(memory, "products", describe_rank));
  graph.launch(*opened.streams);
  opened.streams->synchronize();
  std::vector<TileResult> results;
  for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
    const Stream& stream = opened.streams->rank(rank);
    results.push_back({shards.residual[rank].read(stream), {}, {}});
    if (of.gained)
      results.back().squares = squares[rank].read(stream), results.back().gained = gained[rank].read(stream);
  }
  return results;
}

std::vector<float> tiles_on_one_device(OpenedTeam& opened, const TileCase& of) {
  Shards shards(opened, {of.rows, kTileCols, kTileOutputs}, true);
  const std::vector<std::vector<float>> parts = parts_on_one_device(
      opened, shards, opened.kernels[0]->kernel<Project>(of.request("tile_project", 1), of.launch()));
  std::vector<float> result = shards.initial();
  for (int64_t m = 0; m < shards.live_rows(); ++m)
    for (int64_t n = 0; n < kTileOutputs; ++n) {
      const float sum = sum_of(parts, static_cast<size_t>(m * kTileOutputs + n), of.scale);
      float& to = result[static_cast<size_t>(m * shards.stride() + n)];
      to = of.adds ? to + sum + sum : sum;
    }
  return result;
}

// The rows of `residual` times the gain, to the bit; and their squares, to what 131 additions in fp32 may lose.
void expect_gained(const TileCase& of, const std::vector<float>& residual, const TileResult& result) {
  const std::vector<bf16> gain = random_bf16(50, kTileOutputs);
  const size_t tokens = static_cast<size_t>((of.rows + 7) / 8 * 8), outputs = kTileOutputs;
  for (size_t m = 0; m < tokens; ++m) {
    double expected = 0, squares = 0;
    for (size_t n = 0; n < outputs && static_cast<int64_t>(m) < of.rows - 1; ++n) {
      const float x = residual[m * (outputs + 5) + n];
      expected += static_cast<double>(x) * x;
      ASSERT_EQ(test::to_bf16(x * test::value_of(gain[n])).bits, result.gained[m * outputs + n].bits) << m << ", " << n;
    }
    for (size_t block = 0; block < static_cast<size_t>(of.blocks()); ++block)
      squares += result.squares[block * tokens + m];
    ASSERT_NEAR(expected, squares, expected * 131 * 0x1p-24) << "row " << m;
  }
}

void compare_tiles(OpenedTeam& opened, const TileCase& of) {
  const std::vector<float> expected = tiles_on_one_device(opened, of);
  const std::vector<TileResult> results = exchanged_tiles(opened, of);
  for (size_t rank = 0; rank < results.size(); ++rank) {
    SCOPED_TRACE(of.name() + ", rank " + std::to_string(rank) + " of " + std::to_string(results.size()));
    ASSERT_EQ(expected, results[rank].residual);
    ASSERT_EQ(results[0].squares, results[rank].squares);
    if (of.gained) expect_gained(of, expected, results[rank]);
  }
}

TEST(TileExchangeSweepOnCpuDriver, HasTheBitsOfItsShardsOnOneDevice) {
  for (const int ranks : {2, 4})
    for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::reverse, CpuSchedule::seeded}) {
      CpuDriverOptions options;
      options.schedule = schedule;
      options.check_accesses = ranks == 2 && schedule == CpuSchedule::seeded;
      OpenedTeam opened(ranks, options);
      for (const TileCase& each : kTileCases) compare_tiles(opened, each);
    }
}

TEST(TwoDevicesTileExchange, HasTheBitsOfItsShardsOnOneDevice) {
  OpenedTeam opened;
  for (const TileCase& each : kTileCases) compare_tiles(opened, each);
}

}  // namespace
}  // namespace nodewright
