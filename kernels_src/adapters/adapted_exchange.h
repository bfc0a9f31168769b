// ProjectExchange and ExchangeAdd of rows with adapters. Each rank adds B A_r x_r, of its columns of A, to what it has:
// the sum over the ranks is that of the whole adapter, since B is the same everywhere.
#pragma once

#include "kernels_src/exchange/exchange_add.h"
#include "kernels_src/product/end/adapter_in.h"
#include "kernels_src/projection/project_exchange.h"

namespace nodewright {

// Words of a row of B, 16 bytes each, in flight at once: with 8, at rank 64, the kernels spill 4 to 24 bytes a thread
// beside the registers of the exchange (NVRTC 13.0, tests/graph/team/exchange_kernels_test.cpp).
inline constexpr int kWordsAtOnce = 2;

// Constants: those of the kernel without adapters, and kAdapterRank.
using AdaptedProjectExchange = WithAdapter<ProjectExchange>;
using AdaptedExchangeAdd = WithAdapter<ExchangeAdd>;

}  // namespace nodewright
