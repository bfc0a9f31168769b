// embed where a library has brought the rows of the embedding here that each rank has: a row is taken from the rank
// that has its token.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

// As Embed in all else.
struct GatheredEmbed {
  In<int32_t> tokens;      // [rows] token id, or -1: the sequence's last token, which is already on the device
  In<int32_t> sequences;   // [rows] index into last_token
  In<int32_t> last_token;  // [sequences]
  In<int32_t> n_live;      // [1]
  Optional<In<int32_t>> positions = {};        // [rows], below position_table's rows; empty if kPositions is 0
  In<bf16> gathered;                           // [kRanks, gathered_stride / stride rows, stride]
  Optional<Frozen<bf16>> position_table = {};  // [context, stride] padded alike; empty if kPositions is 0
  PartialOut<float> x;                         // [rows, stride]
  int64_t stride;           // elements of an embedding row: hidden rounded up to 8, padded with zeros
  int64_t gathered_stride;  // elements between the rows of two ranks
  int64_t vocab;            // of all ranks; rank r has the rows from vocab * r / kRanks on
  float scale;              // used if kScaled is 1
  ResidualOut next;         // in one part
};

// Constants: kRanks, and those of Embed: kScaled, kPositions, kLeavesGained.
inline constexpr unsigned kGatheredEmbedThreads = 256;
constexpr LaunchShape gathered_embed_shape(unsigned rows, bool leaves_gained) {
  return {{rows, 1, 1}, {kGatheredEmbedThreads, 1, 1}, leaves_gained ? kGatheredEmbedThreads / 32 * 4 : 0};
}

}  // namespace nodewright
