// The product whose sums cross the devices, against its shards as nodes of one ordinary graph on one device, added in
// the order of the ranks: the same bits.
#include "kernels_src/projection/project_exchange.h"

#include <bit>

#include "kernels_src/projection/project.h"
#include "kernels_src/projection/project_exchange_shape.h"
#include "tests/graph/team/team_fixture.h"

namespace nodewright {
namespace {

constexpr int64_t kCols = 256, kOutputs = 131, kPadding = 5;
constexpr float kScaleFactor = 0.22f;

float pseudo_random(uint64_t seed, uint64_t i) {
  uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull;
  h = (h ^ h >> 29) * 0x94d049bb133111ebull;
  return static_cast<float>(static_cast<int32_t>(h >> 32)) * 0x1p-31f;
}
std::vector<bf16> random_bf16(uint64_t seed, int64_t count) {
  std::vector<bf16> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        {static_cast<uint16_t>(std::bit_cast<uint32_t>(pseudo_random(seed, static_cast<uint64_t>(i))) >> 16)});
  return values;
}

// What each rank holds, and on rank 0's device all of it once more.
struct Shards {
  Shards(OpenedTeam& opened, int64_t rows, bool one_device) : rows(rows) {
    for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
      Device& device = *opened.devices[one_device ? 0 : rank];
      const std::string at = std::to_string(rank) + (one_device ? "of1" : "");
      x.emplace_back(device, "x" + at, rows * kCols);
      weight.emplace_back(device, "weight" + at, kOutputs * kCols);
      bias.emplace_back(device, "bias" + at, kOutputs);
      residual.emplace_back(device, "residual" + at, rows * stride());
      live.emplace_back(device, "live" + at, 1);
      x.back().write(random_bf16(10 + rank, rows * kCols));
      weight.back().write(random_bf16(20 + rank, kOutputs * kCols));
      bias.back().write(random_bf16(30 + rank, kOutputs));
      residual.back().write(initial());
      live.back().write(std::vector{static_cast<int32_t>(rows == 1 ? 1 : rows - 1)});
    }
  }
  static int64_t stride() { return kOutputs + kPadding; }
  std::vector<float> initial() const {
    std::vector<float> values;
    for (int64_t i = 0; i < rows * stride(); ++i) values.push_back(pseudo_random(40, static_cast<uint64_t>(i)));
    return values;
  }

  int64_t rows;
  std::vector<DeviceArray<bf16>> x, weight, bias;
  std::vector<DeviceArray<float>> residual;
  std::vector<DeviceArray<int32_t>> live;
};

KernelRequest request_of(const char* kernel, const MatvecShape& shape, int64_t ranks, bool scaled) {
  KernelRequest request{.name = kernel, .constants = {}};
  for (const ShapeConstant& constant : shape.constants().of)
    request.constants.push_back({constant.name, constant.value});
  request.constants.push_back({"kBias", 1});
  request.constants.push_back({"kScale", scaled ? int64_t{std::bit_cast<uint32_t>(kScaleFactor)} : 0});
  request.constants.push_back({"kRanks", ranks});
  return request;
}

// As many blocks as the CPU driver has SMs, in one wave.
LaunchShape shape_of(const MatvecShape& shape) {
  LaunchShape launch = shape.launch_shape(2);
  launch.grid[0] = 4 / launch.grid[1];
  return launch;
}

std::vector<std::vector<float>> exchanged(OpenedTeam& opened, const MatvecShape& shape, bool scaled) {
  Shards shards(opened, shape.rows, false);
  ExchangeMemory memory(*opened.team, "sums", {.packets = static_cast<uint64_t>(shape.rows * kOutputs), .most = 2});
  const auto describe_rank = [&](GraphBuilder& g, TeamRank& rank) {
    const size_t r = rank.index();
    g.declare(shards.x[r], {.live_in = true});
    g.declare(shards.residual[r], {.live_in = true, .live_out = true});
    g.declare(shards.live[r], {.live_in = true});
    g.declare(shards.weight[r], {.live_in = true}, "weight");
    g.declare(shards.bias[r], {.live_in = true}, "weight");
    const auto kernel = opened.kernels[r]->kernel<ProjectExchange>(
        request_of("project_exchange", shape, static_cast<int64_t>(rank.size()), scaled), shape_of(shape));
    for (const char* name : {"out", "down"})
      g.launch(name, kernel,
               {.x = shards.x[r],
                .weight = shards.weight[r].weight(),
                .bias = shards.bias[r].weight(),
                .residual = shards.residual[r],
                .n_live = shards.live[r],
                .outputs = kOutputs,
                .x_stride = kCols,
                .residual_stride = Shards::stride(),
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
  Shards shards(opened, shape.rows, true);
  Device& device = *opened.devices[0];
  GraphBuilder g(device, "shards");
  std::vector<DeviceArray<float>> sums;
  sums.reserve(opened.devices.size());
  for (size_t r = 0; r < opened.devices.size(); ++r) {
    sums.emplace_back(device, "sums" + std::to_string(r), shape.rows * kOutputs);
    g.declare(shards.x[r], {.live_in = true});
    g.declare(shards.live[r], {.live_in = true});
    g.declare(shards.weight[r], {.live_in = true}, "weight");
    g.declare(shards.bias[r], {.live_in = true}, "weight");
    const auto kernel = opened.kernels[0]->kernel<Project>(request_of("project", shape, 1, false), shape_of(shape));
    g.launch("shard" + std::to_string(r), kernel,
             {.x = shards.x[r],
              .weight = shards.weight[r].weight(),
              .bias = shards.bias[r].weight(),
              .y = sums[r],
              .n_live = shards.live[r],
              .outputs = kOutputs,
              .x_stride = kCols,
              .y_stride = kOutputs});
  }
  ExplicitGraph graph(std::move(g).finish());
  const Stream stream(device, "shards");
  graph.launch(stream);
  std::vector<std::vector<float>> parts;
  for (const DeviceArray<float>& sum : sums) parts.push_back(sum.read(stream));
  std::vector<float> result = shards.initial();
  const int64_t live = shape.rows == 1 ? 1 : shape.rows - 1;
  for (int64_t i = 0; i < live * kOutputs; ++i) {
    float& to = result[static_cast<size_t>(i / kOutputs * Shards::stride() + i % kOutputs)];
    volatile float sum = 0;  // a rounding an addition
    for (size_t r = 0; r < parts.size(); ++r) {
      volatile const float part =
          scaled ? parts[r][static_cast<size_t>(i)] * kScaleFactor : parts[r][static_cast<size_t>(i)];
      sum = r == 0 ? part : sum + part;
    }
    for (int launch = 0; launch < 2; ++launch) to += sum;
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
