// exchange_add with what each row's adapter adds to what the rank has before it is sent; blocks as there.
#include "kernels_src/adapters/adapted_exchange.h"
#include "kernels_src/exchange/exchanged_sums.cuh"
#include "kernels_src/product/end/adapter_delta.cuh"

NODEWRIGHT_KERNEL(adapted_exchange_add, AdaptedExchangeAdd, ::nodewright::kThreadsOfSums) {
  exchange_and_add(args.of, [&](int64_t row, int64_t col, float value) {
    return with_adapter<kAdapterRank, kWordsAtOnce>(args.adapter, row, static_cast<int>(col), 0, 1, value);
  });
}
