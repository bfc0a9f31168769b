// A team of devices with a chain of all-reduces on each, for the tests of this folder.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "graph/team/team_graph.h"
#include "kernels_src/exchange/all_reduce.h"
#include "runtime/calls/cpu_driver_api.h"
#include "runtime/kernels/kernel_cache.h"
#include "tests/support/two_devices.h"

namespace nodewright {

// A driver, its first devices, and what tests use on each.
struct OpenedTeam {
  // On the CPU driver.
  OpenedTeam(int ranks, CpuDriverOptions options) {
    options.devices = ranks;
    open(Driver::load_cpu(options), ranks);
  }
  // On the device that the tests run on.
  OpenedTeam() { open(test::driver_of_several_devices(), 2); }

  void open(std::unique_ptr<Driver> loaded, int ranks) {
    driver = std::move(loaded);
    std::vector<Device*> pointers;
    for (int rank = 0; rank < ranks; ++rank) {
      devices.push_back(std::make_unique<Device>(*driver, rank));
      pointers.push_back(devices.back().get());
      kernels.push_back(std::make_unique<KernelCache>(*devices.back()));
    }
    team.emplace(pointers);
    memory.emplace(*team, "partial", ExchangeSize{.packets = kValues, .most = 16});
    streams.emplace(*team, "team");
    for (auto& device : devices) {
      const std::string at = "@" + std::to_string(device->properties().ordinal);
      x.emplace_back(*device, "x" + at, kValues);
      y.emplace_back(*device, "y" + at, kValues);
      z.emplace_back(*device, "z" + at, kValues);
    }
  }

  Kernel<AllReduce> all_reduce(size_t rank, unsigned blocks = 2) {
    const KernelRequest request{.name = "all_reduce",
                                .constants = {{"kRanks", static_cast<long long>(devices.size())}}};
    return kernels[rank]->kernel<AllReduce>(request, all_reduce_shape(kValues, blocks));
  }
  // x to y, y to z, z to y and so on.
  DescribeRank chain(int exchanges) {
    return [this, exchanges](GraphBuilder& g, TeamRank& rank) {
      const size_t r = rank.index();
      g.declare(x[r], {.live_in = true});
      g.declare(y[r], {.live_out = true});
      g.declare(z[r], {.live_out = true});
      for (int k = 0; k < exchanges; ++k) {
        const auto layer = g.scope("l" + std::to_string(k));
        const View<float> from = k == 0 ? x[r].view() : k % 2 == 1 ? y[r].view() : z[r].view();
        const View<float> to = k % 2 == 0 ? y[r].view() : z[r].view();
        g.launch("sum", all_reduce(r), {.x = from, .y = to, .exchange = rank.exchange(kValues)});
      }
    };
  }
  // Every rank's x: rank + 1, and a part that depends on the place.
  void write_inputs() {
    for (size_t rank = 0; rank < x.size(); ++rank) {
      std::vector<float> values(kValues);
      for (size_t i = 0; i < kValues; ++i) values[i] = static_cast<float>(rank + 1) + static_cast<float>(i) / 7.0f;
      x[rank].write(values);
    }
  }
  // What a chain of `exchanges` leaves in y or z, in the order of the ranks.
  std::vector<float> expected(int exchanges) const {
    std::vector<float> sums(kValues);
    for (size_t i = 0; i < kValues; ++i) {
      float sum = 0.0f;
      for (size_t rank = 0; rank < x.size(); ++rank) sum += static_cast<float>(rank + 1) + static_cast<float>(i) / 7.0f;
      for (int k = 1; k < exchanges; ++k) {
        const float one = sum;
        for (size_t rank = 1; rank < x.size(); ++rank) sum += one;
      }
      sums[i] = sum;
    }
    return sums;
  }

  static constexpr size_t kValues = 600;
  std::unique_ptr<Driver> driver;
  std::vector<std::unique_ptr<Device>> devices;
  std::vector<std::unique_ptr<KernelCache>> kernels;
  std::optional<Team> team;
  std::optional<ExchangeMemory> memory;
  std::optional<TeamStream> streams;
  std::vector<DeviceArray<float>> x, y, z;
};

}  // namespace nodewright
