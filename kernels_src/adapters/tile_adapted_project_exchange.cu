// tile_project_exchange with what each row's adapter adds to the rank's sum before it is sent. Block b: outputs range
// b, all rows; of a cluster a part of them.
#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/product/end/adapted.cuh"
#include "kernels_src/product/tiles/tile_exchanged_rows.cuh"

NODEWRIGHT_KERNEL_OF(tile_adapted_project_exchange, AdaptedProjectExchange, kThreads, kBlocksOfSm) {
  tile_project_and_exchange<Adapted<End, kAdapterRank, kWordsAtOnce>>(args.of, args.adapter);
}
