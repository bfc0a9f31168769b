// Which norm stands before a projection, as the constant kNorm. All arithmetic is fp32.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

enum class Norm : uint8_t {
  rms,           // x / rms(x) * gain
  rms_one_plus,  // x / rms(x) * (1 + gain)
  layer,         // (x - mean(x)) / deviation(x) * gain + shift
  none,          // x
};

}  // namespace nodewright
