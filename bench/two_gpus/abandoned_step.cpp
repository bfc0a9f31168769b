// A step that one rank runs alone, ended by the abort word, and good steps after it in the same process. JSON lines.
//   abandoned_step CUBIN
#include <thread>

#include "bench/two_gpus/small_step.h"

using namespace two_gpus;

namespace {

// Only `rank` is launched, `launches` times; the word is set after 50 ms. Milliseconds from the word to the end.
double abandon(SmallStep& step, int rank, int launches) {
  for (int i = 0; i < launches; ++i) step.launch(rank);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  step.pair.use(rank);
  if (cuStreamQuery(step.pair.stream[rank]) != CUDA_ERROR_NOT_READY)
    std::fprintf(stderr, "the lone rank did not wait\n"), std::exit(1);
  const double from = microseconds();
  *const_cast<volatile unsigned*>(step.pair.abort_word) = 1;
  step.pair.synchronize();
  return (microseconds() - from) * 1e-3;
}

int good_steps(SmallStep& step, int steps) {
  int right = 0;
  for (int i = 0; i < steps; ++i) {
    step.launch(i & 1), step.launch(1 - (i & 1));
    step.pair.synchronize();
    right += !step.pair.aborted() && step.sums_are_right();
  }
  return right;
}

}  // namespace

int main(int, char** argv) {
  const Pair pair(argv[1]);
  SmallStep step(pair);
  for (const int rank : {0, 1})
    for (const int launches : {1, 2}) {
      std::vector<double> ms;
      int right = 0;
      for (int sample = 0; sample < 5; ++sample) {
        ms.push_back(abandon(step, rank, launches));
        step.recover();
        right += good_steps(step, 200);
      }
      std::printf(
          "{\"experiment\": \"abandoned step\", %s, \"rank\": %d, \"launches\": %d, \"ended_after_ms\": %s, "
          "\"right_steps_of_1000\": %d}\n",
          pair.gpu.c_str(), rank, launches, spread(ms).c_str(), right);
      std::fflush(stdout);
    }
  return 0;
}
