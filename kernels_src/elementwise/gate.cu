// The activation of a feed-forward block, on what a library's product has left.
#include "kernels_src/elementwise/gate_row.cuh"

NODEWRIGHT_KERNEL(gate, Gate, kGateThreads) {
  gate_row(args, [](int64_t, int64_t, float(&)[8]) {});
}
