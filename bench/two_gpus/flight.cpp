// How long a packet flies between two GPUs, and how fast packets stream. One JSON line each.
//   flight CUBIN
#include "bench/two_gpus/pair.h"

using namespace two_gpus;

namespace {

void report_links(const Pair& pair) {
  int rank = 0, access = 0, atomics = 0;
  MUST(cuDeviceGetP2PAttribute(&rank, CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 0, 1));
  MUST(cuDeviceGetP2PAttribute(&access, CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 0, 1));
  MUST(cuDeviceGetP2PAttribute(&atomics, CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0, 1));
  std::printf("{\"experiment\": \"links\", %s, \"performance_rank\": %d, \"access\": %d, \"atomics\": %d}\n",
              pair.gpu.c_str(), rank, access, atomics);
}

void measure_flight(const Pair& pair, CUdeviceptr (&packets)[2]) {
  int rounds = 100000;
  std::vector<double> one_way_ns;
  for (unsigned sample = 0; sample < 12; ++sample) {
    unsigned first_epoch = 1 + sample * rounds;
    const double from = microseconds();
    for (int rank = 0; rank < 2; ++rank) {
      AbortWords abort = pair.abort(rank);
      void* arguments[] = {&packets[1 - rank], &packets[rank], &rank, &rounds, &first_epoch, &abort};
      pair.launch(rank, pair.kernel(rank, "ping_pong"), 1, 1, arguments);
    }
    pair.synchronize();
    if (pair.aborted()) std::fprintf(stderr, "ping_pong gave up: %u\n", pair.aborted()), std::exit(1);
    one_way_ns.push_back((microseconds() - from) * 1e3 / (2.0 * rounds));
  }
  std::printf("{\"experiment\": \"flight\", %s, \"rounds\": %d, \"one_way_with_poll_ns\": %s}\n", pair.gpu.c_str(),
              rounds, spread(one_way_ns).c_str());
}

// Rank 0 alone, or both at once, storing.
void measure_stores(const Pair& pair, CUdeviceptr (&packets)[2], long count, int blocks, bool both) {
  int times = static_cast<int>(std::clamp(1L << 24, count, 256 * count) / count);
  std::vector<double> us, gigabytes_per_s;
  for (unsigned sample = 0; sample < 12; ++sample) {
    const double from = microseconds();
    for (int rank = 0; rank < (both ? 2 : 1); ++rank) {
      unsigned epoch = 1;
      void* arguments[] = {&packets[1 - rank], &count, &times, &epoch};
      pair.launch(rank, pair.kernel(rank, "peer_stores"), blocks, 256, arguments);
    }
    pair.synchronize();
    us.push_back((microseconds() - from) / times);
    gigabytes_per_s.push_back(count * 8 / us.back() / 1e3);
  }
  std::printf(
      "{\"experiment\": \"stores\", %s, \"packets\": %ld, \"blocks\": %d, \"both_ways\": %s, \"times\": %d, "
      "\"us_each\": %s, \"wire_gb_per_s\": %s}\n",
      pair.gpu.c_str(), count, blocks, both ? "true" : "false", times, spread(us).c_str(),
      spread(gigabytes_per_s).c_str());
}

}  // namespace

int main(int, char** argv) {
  const Pair pair(argv[1]);
  report_links(pair);
  CUdeviceptr packets[2] = {pair.memory(0, 64 << 20), pair.memory(1, 64 << 20)};
  measure_flight(pair, packets);
  for (const bool both : {false, true})
    for (const long count : {3072L, 24576L, 98304L, 8L << 20})
      for (const int blocks : {16, 132, 264}) measure_stores(pair, packets, count, blocks, both);
  return 0;
}
