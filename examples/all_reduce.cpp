// One sum over several devices: each has a graph, the graphs send each other their values, and every device gets the
// same bits. `all_reduce cpu:devices=4` needs no GPU; `all_reduce cuda 2` takes the first two.
#include <nodewright/nodewright.h>

#include <cstdio>
#include <cstdlib>

using namespace nodewright;

namespace {

constexpr uint64_t kValues = 1000;
constexpr unsigned kBlocks = 4;  // all of them run at once on any device

// What a rank holds: a device, its kernel, and the values.
struct Rank {
  Rank(Driver& driver, int ordinal, int ranks)
      : device(driver, ordinal),
        sum(kernels.kernel<AllReduce>({.name = "all_reduce", .constants = {{"kRanks", ranks}}},
                                      all_reduce_shape(kValues, kBlocks))) {}
  Device device;
  KernelCache kernels{device};
  DeviceArray<float> x{device, "x", kValues}, y{device, "y", kValues}, z{device, "z", kValues};
  Kernel<AllReduce> sum;
};

}  // namespace

int main(int argc, char** argv) {
  const OpenedDevice opened = open_device(argc > 1 ? argv[1] : "cpu:devices=4");
  int count = 0;
  opened.driver->check(opened.driver->cuDeviceGetCount(&count), "cuDeviceGetCount", "count", "devices");
  if (argc > 2) count = std::atoi(argv[2]);
  if (count < 2) {
    std::fprintf(stderr, "all_reduce: needs at least 2 devices; try all_reduce cpu:devices=4\n");
    return 2;
  }

  std::vector<std::unique_ptr<Rank>> ranks;
  std::vector<Device*> devices;
  for (int rank = 0; rank < count; ++rank) {
    ranks.push_back(std::make_unique<Rank>(*opened.driver, rank, count));
    devices.push_back(&ranks.back()->device);
  }
  Team team(devices);
  ExchangeMemory memory(team, "partial", {.packets = kValues, .most = 2});

  // Called once for each rank.
  const auto describe_rank = [&](GraphBuilder& g, TeamRank& rank) {
    Rank& own = *ranks[rank.index()];
    g.fill("ones", own.x, static_cast<float>(rank.index() + 1));
    g.launch("sum", own.sum, {.x = own.x, .y = own.y, .exchange = rank.exchange(kValues)});
    g.launch("again", own.sum, {.x = own.y, .y = own.z, .exchange = rank.exchange(kValues)});
  };
  TeamGraph graph(memory, plan_team(memory, "sums", describe_rank));
  const TeamStream streams(team, "main");
  graph.launch(streams);
  streams.synchronize();

  std::printf("%s", to_text(graph.plan()).c_str());
  const float once = static_cast<float>(count * (count + 1)) / 2, expected = once * static_cast<float>(count);
  bool right = true;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::vector<float> result = ranks[rank]->z.read(streams.rank(rank));
    std::printf("rank %zu: z[0] = %g\n", rank, static_cast<double>(result[0]));
    right = right && result[0] == expected && result[kValues - 1] == expected;
  }
  return right ? 0 : 1;
}
