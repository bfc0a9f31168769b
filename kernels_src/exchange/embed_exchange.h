// embed where each rank of a team has the rows of a part of the vocabulary: the rank that has a token's row sends it to
// all others.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/embed.h"

namespace nodewright {

// Takes part in one exchange of 1 + rows * stride values. As Embed in all else.
struct EmbedExchange {
  Embed embed;
  Exchange exchange;  // packet 0: in every direction; 1 + m * stride + n: row m, column n
};

// Constants: kRanks, and those of Embed: kScaled, kPositions, kLeavesGained.
inline constexpr unsigned kEmbedExchangeThreads = 256;
// A block a row, or several rows, so that all run at once.
constexpr LaunchShape embed_exchange_shape(unsigned rows, unsigned sm_count, bool leaves_gained) {
  const unsigned most = 2 * sm_count;
  return {{rows < most ? rows : most, 1, 1},
          {kEmbedExchangeThreads, 1, 1},
          leaves_gained ? kEmbedExchangeThreads / 32 * 4 : 0};
}

}  // namespace nodewright
