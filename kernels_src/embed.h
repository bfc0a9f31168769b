// x = embedding[token]: the residual stream's first value. The token comes from the host or from the step before.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct Embed {
  In<int32_t> tokens;      // [rows] token id, or -1: the sequence's last token, which is already on the device
  In<int32_t> sequences;   // [rows] index into last_token
  In<int32_t> last_token;  // [sequences]
  In<int32_t> n_live;      // [1]
  Frozen<bf16> embedding;  // [vocab, stride]
  Out<float> x;            // [rows, stride]
  int64_t stride;          // elements of an embedding row: hidden rounded up to 8, padded with zeros
  int64_t vocab;           // rows of the embedding
};

inline constexpr unsigned kEmbedThreads = 256;
constexpr LaunchShape embed_shape(unsigned rows) { return {{rows, 1, 1}, {kEmbedThreads, 1, 1}, 0}; }

}  // namespace nodewright
