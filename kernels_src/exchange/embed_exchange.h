// embed where each rank of a team has the rows of a part of the vocabulary: the rank that has a token's row sends it to
// all others.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/exchange/exchange.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// Takes part in one exchange of 1 + rows * stride values. As Embed in all else.
struct EmbedExchange {
  In<int32_t> tokens;      // [rows] token id, or -1: the sequence's last token, which is already on the device
  In<int32_t> sequences;   // [rows] index into last_token
  In<int32_t> last_token;  // [sequences]
  In<int32_t> n_live;      // [1]
  Optional<In<int32_t>> positions = {};        // [rows], below position_table's rows; empty if kPositions is 0
  Frozen<bf16> embedding;                      // [of this rank, stride]
  Optional<Frozen<bf16>> position_table = {};  // [context, stride] padded alike; empty if kPositions is 0
  PartialOut<float> x;                         // [rows, stride]
  int64_t stride;     // elements of an embedding row: hidden rounded up to 8, padded with zeros
  int64_t vocab;      // of all ranks; rank r has the rows from vocab * r / kRanks on
  float scale;        // used if kScaled is 1
  ResidualOut next;   // in one part
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
