// The product whose sums cross the devices, against its shards as nodes of one ordinary graph on one device, added in
// the order of the ranks: the same bits.
#include "kernels_src/projection/project_exchange.h"

#include <bit>

#include "kernels_src/projection/project_exchange_shape.h"
#include "tests/graph/team/product_shards.h"

namespace nodewright {
namespace {

constexpr int64_t kCols = 256, kOutputs = 131;
constexpr float kScaleFactor = 0.22f;

KernelRequest request_of(const char* kernel, const MatvecShape& shape, int64_t ranks, bool scaled) {
  KernelRequest request{.name = kernel, .constants = {}};
  for (const ShapeConstant& constant : shape.constants().of)
    request.constants.push_back({constant.name, constant.value});
  request.constants.push_back({"kBias", 1});
  request.constants.push_back({"kScale", scaled ? int64_t{std::bit_cast<uint32_t>(kScaleFactor)} : 0});
  request.constants.push_back({"kRanks", ranks});
  request.constants.push_back({"kAdds", 1});
  return request;
}

ProductSizes sizes_of(const MatvecShape& shape) { return {shape.rows, shape.cols, shape.outputs}; }

// As many blocks as the CPU driver has SMs, in one wave.
LaunchShape shape_of(const MatvecShape& shape) {
  LaunchShape launch = shape.launch_shape(2);
  launch.grid[0] = 4 / launch.grid[1];
  return launch;
}

std::vector<std::vector<float>> exchanged(OpenedTeam& opened, const MatvecShape& shape, bool scaled) {
  Shards shards(opened, sizes_of(shape), false);
  ExchangeMemory memory(*opened.team, "sums", {.packets = static_cast<uint64_t>(shape.rows * kOutputs), .most = 2});
  const auto describe_rank = [&](GraphBuilder& g, TeamRank& rank) {
    const size_t r = rank.index();
    shards.declare(g, r);
    g.declare(shards.residual[r], {.live_in = true, .live_out = true});
    const auto kernel = opened.kernels[r]->kernel<ProjectExchange>(
        request_of("project_exchange", shape, static_cast<int64_t>(rank.size()), scaled), shape_of(shape));
    for (const char* name : {"out", "down"})
      g.launch(name, kernel,
               {.from = {shards.x[r], kCols},
                .w = {shards.weight[r].weight(), shards.bias[r].weight(), kOutputs},
                .to = {.residual = shards.residual[r], .stride = shards.stride()},
                .n_live = shards.live[r],
                .exchange = rank.exchange(static_cast<uint64_t>(shape.rows * kOutputs))});
  };
  TeamGraph graph(memory, plan_team(memory, "products", describe_rank));
  graph.launch(*opened.streams);
  opened.streams->synchronize();
  std::vector<std::vector<float>> results;
  for (size_t rank = 0; rank < opened.devices.size(); ++rank)
    results.push_back(shards.residual[rank].read(opened.streams->rank(rank)));
  return results;
}

// The same twice over: both products add the same sums.
std::vector<float> on_one_device(OpenedTeam& opened, const MatvecShape& shape, bool scaled) {
  Shards shards(opened, sizes_of(shape), true);
  const std::vector<std::vector<float>> parts = parts_on_one_device(
      opened, shards, opened.kernels[0]->kernel<Project>(request_of("project", shape, 1, false), shape_of(shape)));
  std::vector<float> result = shards.initial();
  for (int64_t m = 0; m < shards.live_rows(); ++m)
    for (int64_t n = 0; n < kOutputs; ++n) {
      const float sum = sum_of(parts, static_cast<size_t>(m * kOutputs + n), scaled ? kScaleFactor : 1);
      for (int launch = 0; launch < 2; ++launch) result[static_cast<size_t>(m * shards.stride() + n)] += sum;
    }
  return result;
}

void compare(OpenedTeam& opened, int64_t rows, bool scaled) {
  const MatvecShape shape = project_exchange_shape({rows, kCols, kCols, kOutputs, 1});
  const std::vector<float> expected = on_one_device(opened, shape, scaled);
  const std::vector<std::vector<float>> results = exchanged(opened, shape, scaled);
  for (size_t rank = 0; rank < results.size(); ++rank)
    ASSERT_EQ(expected, results[rank]) << rows << " rows, rank " << rank << " of " << results.size();
}

TEST(ProjectExchangeOnCpuDriver, HasTheBitsOfItsShardsOnOneDevice) {
  for (const int ranks : {2, 4})
    for (const CpuSchedule schedule : {CpuSchedule::forward, CpuSchedule::reverse, CpuSchedule::seeded}) {
      CpuDriverOptions options;
      options.schedule = schedule;
      options.check_accesses = ranks == 2 && schedule == CpuSchedule::seeded;
      OpenedTeam opened(ranks, options);
      compare(opened, 1, false);
      compare(opened, 16, true);
    }
}

TEST(TwoDevicesProjectExchange, HasTheBitsOfItsShardsOnOneDevice) {
  OpenedTeam opened;
  compare(opened, 1, false);
  compare(opened, 16, true);
}

}  // namespace
}  // namespace nodewright
