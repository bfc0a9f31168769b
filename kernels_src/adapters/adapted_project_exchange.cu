// project_exchange with what each row's adapter adds to the rank's sum before it is sent. Block (b, t): outputs range
// b, rows t * kTile .. + kTile - 1.
#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/product/end/adapted.cuh"
#include "kernels_src/product/rows/exchanged_rows.cuh"

NODEWRIGHT_KERNEL(adapted_project_exchange, AdaptedProjectExchange, kThreads) {
  project_and_exchange<Adapted<End, kAdapterRank, kWordsAtOnce>>(args.of, args.adapter);
}
