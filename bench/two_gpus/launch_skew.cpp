// When cuGraphLaunch blocks while the peer has not been launched, and how far apart two ranks start. JSON lines.
//   launch_skew CUBIN
#include <atomic>
#include <thread>

#include "bench/two_gpus/small_step.h"

using namespace two_gpus;

namespace {

// Rank 0 runs `ahead` launches ahead of rank 1, which then follows.
void launch_ahead(SmallStep& step, int ahead) {
  std::vector<double> us;
  int blocked_at = -1;
  for (int i = 0; i < ahead; ++i) {
    us.push_back(step.launch(0));
    if (us.back() > 1000 && blocked_at < 0) blocked_at = i;
  }
  const unsigned aborted = step.pair.aborted();
  for (int i = 0; i < ahead; ++i) step.launch(1);
  step.pair.synchronize();
  std::printf(
      "{\"experiment\": \"launch ahead\", %s, \"ahead\": %d, \"blocked_at\": %d, \"gave_up\": %u, \"launch_us\": %s}\n",
      step.pair.gpu.c_str(), ahead, blocked_at, aborted, spread(us).c_str());
  std::fflush(stdout);
  step.recover();
}

// `steps` launches of the pair by one thread or by one a GPU that meet before each, at most 32 in flight.
void measure_skew(SmallStep& step, int threads, int steps) {
  std::vector<double> launched[2], skew_us;
  std::vector<std::thread> workers;
  std::atomic<int> met = 0;
  step.recover();
  for (auto& each : launched) each.resize(steps);
  const auto launch = [&](int d, int i) {
    if (i % 32 == 31) step.pair.use(d), MUST(cuStreamSynchronize(step.pair.stream[d]));
    launched[d][i] = (step.launch(d), microseconds());
  };
  const double from = microseconds();
  if (threads == 1)
    for (int i = 0; i < steps; ++i) launch(0, i), launch(1, i);
  for (int d = 0; d < 2 && threads == 2; ++d)
    workers.emplace_back([&, d] {
      for (int i = 0; i < steps; ++i) {
        for (met.fetch_add(1); met.load() < 2 * (i + 1);) {
        }
        launch(d, i);
      }
    });
  for (auto& each : workers) each.join();
  step.pair.synchronize();
  const double us_a_step = (microseconds() - from) / steps;
  for (int i = 0; i < steps; ++i) skew_us.push_back(std::abs(launched[1][i] - launched[0][i]));
  const std::vector<double> first[2] = {step.first_waits_us(0, steps), step.first_waits_us(1, steps)};
  std::printf(
      "{\"experiment\": \"skew\", %s, \"threads\": %d, \"steps\": %d, \"us_a_step\": %.3f, \"host_skew_us\": %s, "
      "\"first_exchange_us_rank_0\": %s, \"first_exchange_us_rank_1\": %s, \"gave_up\": %u}\n",
      step.pair.gpu.c_str(), threads, steps, us_a_step, spread(skew_us).c_str(), spread(first[0]).c_str(),
      spread(first[1]).c_str(), step.pair.aborted());
  std::fflush(stdout);
}

}  // namespace

int main(int, char** argv) {
  const Pair pair(argv[1]);
  SmallStep step(pair);
  for (const int ahead : {1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1000, 1100, 2000}) launch_ahead(step, ahead);
  for (const int threads : {1, 2, 1, 2}) measure_skew(step, threads, 100000);
  return 0;
}
