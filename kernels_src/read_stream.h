// Reads memory and does nothing with it: the read bandwidth every decode figure is quoted against.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct ReadStream {
  Frozen<uint32_t> data;     // a multiple of 4 words a thread and turn; the rest is not read
  PartialOut<uint32_t> sum;  // [1] written only if the sum hits a value it practically never has
};

inline constexpr unsigned kReadStreamThreads = 1024;
constexpr LaunchShape read_stream_shape(unsigned sm_count) {
  return {{16 * sm_count, 1, 1}, {kReadStreamThreads, 1, 1}, 0};
}

}  // namespace nodewright
