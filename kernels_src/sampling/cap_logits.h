// Logits of a library's product, capped in place: cap * tanh(logit / cap). The step's own kernels cap as they store.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct CapLogits {
  InOut<float> logits;  // [rows, stride], rows 16-byte aligned; the last ends at vocab
  In<int32_t> n_live;   // [1]
  int64_t vocab;
  int64_t stride;
};

// Constant: kCap, the bits of a float.
inline constexpr unsigned kCapLogitsThreads = 256;
constexpr LaunchShape cap_logits_shape(unsigned rows, int64_t vocab) {
  constexpr int64_t kOfBlock = 4 * kCapLogitsThreads;
  return {{static_cast<unsigned>((vocab + kOfBlock - 1) / kOfBlock), rows, 1}, {kCapLogitsThreads, 1, 1}, 0};
}

}  // namespace nodewright
