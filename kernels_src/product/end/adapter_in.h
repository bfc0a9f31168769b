// The argument block of kernels that add a row's LoRA adapter to a product: h = A x, which shrink has computed, and B.
#pragma once

#include "kernels_src/args.h"

namespace nodewright {

struct AdapterIn {
  In<float> h;           // [rows, parts, kAdapterRank] A x times the adapter's scale, by shrink
  Frozen<bf16> b;        // [outputs, kAdapterRank] of slot 0; slot i begins i * slot_elements after slot 0
  Settled<int32_t> ids;  // [rows] slot of the row's adapter; -1: none, and h is not read
  int64_t slot_elements;
};

// The arguments of a kernel that adds adapters to what the kernel of Args does.
template <class Args>
struct WithAdapter {
  Args of;
  AdapterIn adapter;
};

}  // namespace nodewright
