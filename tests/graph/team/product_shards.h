// What the ranks of a team have of one product, of random values: each its columns of x and of the weight. And the sum
// of their parts, added on the host.
#pragma once

#include <bit>
#include <string>
#include <vector>

#include "kernels_src/projection/project.h"
#include "tests/graph/team/team_fixture.h"

namespace nodewright {

inline float random_value(uint64_t seed, uint64_t i) {
  uint64_t h = (i + 1) * 0x9e3779b97f4a7c15ull ^ seed * 0xbf58476d1ce4e5b9ull;
  h = (h ^ h >> 29) * 0x94d049bb133111ebull;
  return static_cast<float>(static_cast<int32_t>(h >> 32)) * 0x1p-31f;
}
inline std::vector<bf16> random_bf16(uint64_t seed, int64_t count) {
  std::vector<bf16> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        {static_cast<uint16_t>(std::bit_cast<uint32_t>(random_value(seed, static_cast<uint64_t>(i))) >> 16)});
  return values;
}

struct ProductSizes {
  int64_t rows, cols, outputs;  // cols: of a rank
};

// What each rank holds; or, with `one_device`, rank 0's device all of it.
struct Shards {
  Shards(OpenedTeam& opened, const ProductSizes& of, bool one_device) : sizes(of) {
    for (size_t rank = 0; rank < opened.devices.size(); ++rank) {
      Device& device = *opened.devices[one_device ? 0 : rank];
      const std::string at = std::to_string(rank) + (one_device ? "of1" : "");
      x.emplace_back(device, "x" + at, sizes.rows * sizes.cols);
      weight.emplace_back(device, "weight" + at, sizes.outputs * sizes.cols);
      bias.emplace_back(device, "bias" + at, sizes.outputs);
      residual.emplace_back(device, "residual" + at, sizes.rows * stride());
      live.emplace_back(device, "live" + at, 1);
      x.back().write(random_bf16(10 + rank, sizes.rows * sizes.cols));
      weight.back().write(random_bf16(20 + rank, sizes.outputs * sizes.cols));
      bias.back().write(random_bf16(30 + rank, sizes.outputs));
      residual.back().write(initial());
      live.back().write(std::vector{static_cast<int32_t>(live_rows())});
    }
  }
  void declare(GraphBuilder& g, size_t rank) const {
    g.declare(x[rank], {.live_in = true});
    g.declare(live[rank], {.live_in = true});
    g.declare(weight[rank], {.live_in = true}, "weight");
    g.declare(bias[rank], {.live_in = true}, "weight");
  }
  int64_t stride() const { return sizes.outputs + 5; }  // elements between two rows of the residual
  int64_t live_rows() const { return sizes.rows == 1 ? 1 : sizes.rows - 1; }
  std::vector<float> initial() const {  // the residual
    std::vector<float> values;
    for (int64_t i = 0; i < sizes.rows * stride(); ++i) values.push_back(random_value(40, static_cast<uint64_t>(i)));
    return values;
  }

  ProductSizes sizes;
  std::vector<DeviceArray<bf16>> x, weight, bias;
  std::vector<DeviceArray<float>> residual;
  std::vector<DeviceArray<int32_t>> live;
};

// [rows, outputs] of every rank, as nodes of one ordinary graph on rank 0's device. `shards`: with one_device.
inline std::vector<std::vector<float>> parts_on_one_device(OpenedTeam& opened, const Shards& shards,
                                                           const Kernel<Project>& kernel) {
  Device& device = *opened.devices[0];
  GraphBuilder g(device, "shards");
  std::vector<DeviceArray<float>> sums;
  sums.reserve(opened.devices.size());
  for (size_t r = 0; r < opened.devices.size(); ++r) {
    sums.emplace_back(device, "sums" + std::to_string(r), shards.sizes.rows * shards.sizes.outputs);
    shards.declare(g, r);
    g.launch("shard" + std::to_string(r), kernel,
             {.from = {shards.x[r], shards.sizes.cols},
              .w = {shards.weight[r].weight(), shards.bias[r].weight(), shards.sizes.outputs},
              .to = {sums[r], shards.sizes.outputs},
              .n_live = shards.live[r]});
  }
  ExplicitGraph graph(std::move(g).finish());
  const Stream stream(device, "shards");
  graph.launch(stream);
  std::vector<std::vector<float>> parts;
  for (const DeviceArray<float>& sum : sums) parts.push_back(sum.read(stream));
  return parts;
}

// The sum of element `i` over all ranks' parts, each times `scale`, in rank order, rounded after each operation.
inline float sum_of(const std::vector<std::vector<float>>& parts, size_t i, float scale) {
  volatile float sum = 0;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    volatile const float part = parts[rank][i] * scale;
    sum = rank == 0 ? part : sum + part;
  }
  return sum;
}

}  // namespace nodewright
