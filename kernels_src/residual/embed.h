// x = embedding[token] * scale + position_table[position]: the residual stream's first value. The token comes from the
// host or from the step before.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/residual.h"

namespace nodewright {

struct StepTokens {
  static constexpr bool kIsFlat = true;
  In<int32_t> tokens;      // [rows] token id, or -1: the sequence's last token, which is already on the device
  In<int32_t> sequences;   // [rows] index into last_token
  In<int32_t> last_token;  // [sequences]
  In<int32_t> n_live;      // [1] rows that count
  int64_t vocab;           // rows of the embedding, of all ranks; rank r has those from vocab * r / kRanks on
};

// What becomes of a row of the embedding.
struct EmbeddedOut {
  static constexpr bool kIsFlat = true;
  Optional<In<int32_t>> positions = {};        // [rows], below position_table's rows; empty if kPositions is 0
  Optional<Frozen<bf16>> position_table = {};  // [context, stride] padded alike; empty if kPositions is 0
  PartialOut<float> x;                         // [rows, stride]
  int64_t stride;    // elements of an embedding row: hidden rounded up to 8, padded with zeros
  float scale;       // used if kScaled is 1
  ResidualOut next;  // in one part
};

struct Embed {
  static constexpr bool kIsFlat = true;
  StepTokens in;
  Frozen<bf16> embedding;  // [vocab, stride]; of a rank its part
  EmbeddedOut to;
};

// Constants: kScaled: 1 where the embedding is multiplied; kPositions: 1 where positions are learned; kLeavesGained.
inline constexpr unsigned kEmbedThreads = 256;
constexpr LaunchShape embed_shape(unsigned rows, bool leaves_gained) {
  return {{rows, 1, 1}, {kEmbedThreads, 1, 1}, leaves_gained ? kEmbedThreads / 32 * 4 : 0};
}

}  // namespace nodewright
