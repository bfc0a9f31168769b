// rounds += 1; again = rounds < most_rounds and value[0] < target. One block, of which thread 0 works.
#include "kernels_src/device/dialect.cuh"
#include "kernels_src/step/repeat_until.h"

NODEWRIGHT_KERNEL(repeat_until, RepeatUntil, kRepeatUntilThreads) {
  release_dependents();
  wait_for_inputs();
  if (threadIdx.x != 0) return;
  const int32_t rounds = args.rounds.data[0] + 1;
  args.rounds.data[0] = rounds;
  set_condition(args.again, rounds < args.most_rounds && args.value.data[0] < args.target ? 1u : 0u);
}
