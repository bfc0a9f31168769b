// x = token_table[token] + position_table[position]: the residual stream's first value where positions are learned.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

// W: bf16 or float.
template <class W>
struct EmbedPositions {
  In<int32_t> tokens;        // [rows] token id, or -1: the sequence's last token, which is already on the device
  In<int32_t> sequences;     // [rows] index into last_token; not read where tokens gives one
  In<int32_t> last_token;    // [sequences]
  In<int32_t> n_live;        // [1] rows that count
  InOut<int32_t> positions;  // [rows]; moves on by `advance`, then is the token's; at `context` it stays, x too
  Frozen<W> token_table;     // [vocab, cols]
  Frozen<W> position_table;  // [context, cols]
  PartialOut<float> x;       // [rows, x_stride]
  int64_t cols;
  int64_t vocab;
  int64_t context;   // positions there are
  int64_t x_stride;  // elements between two rows of x
  int32_t advance;   // 0: positions are those of the tokens; 1: those of the tokens before
};

inline constexpr unsigned kEmbedPositionsThreads = 128;
constexpr LaunchShape embed_positions_shape(unsigned rows) { return {{rows, 1, 1}, {kEmbedPositionsThreads, 1, 1}, 0}; }

}  // namespace nodewright
