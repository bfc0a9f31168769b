// What an adapter adds to a projection, as a kernel reads it that adds it in its epilogue.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct AdapterIn {
  In<float> h;           // [rows, parts, kRank] what shrink has left, scaled
  Frozen<bf16> b;        // [outputs, kRank] of slot 0; those of slot i lie i * slot_elements behind
  Settled<int32_t> ids;  // [rows] slot of the row's adapter; -1: none, and h is not read
  int64_t slot_elements;
};

}  // namespace nodewright
