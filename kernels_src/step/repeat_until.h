// The end of a loop's body: counts the round and lets a WHILE node go on until a value has come near enough or the
// rounds are used up.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct RepeatUntil {
  In<float> value;        // the first element is looked at
  InOut<int32_t> rounds;  // [1] done so far
  Condition again;        // of the loop
  float target;           // a value of at least this ends the loop
  int32_t most_rounds;
};

inline constexpr unsigned kRepeatUntilThreads = 32;
constexpr LaunchShape repeat_until_shape() { return launch_shape_1d(1, kRepeatUntilThreads); }

}  // namespace nodewright
