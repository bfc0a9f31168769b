// embed where a library has brought the rows of the embedding here that each rank has: a row is taken from the rank
// that has its token.
#pragma once

#include "kernels_src/args.h"
#include "kernels_src/launch_shape.h"
#include "kernels_src/residual/embed.h"

namespace nodewright {

// As Embed in all else.
struct GatheredEmbed {
  StepTokens in;
  In<bf16> gathered;  // [kRanks, gathered_stride / stride rows, stride]
  EmbeddedOut to;
  int64_t gathered_stride;  // elements between the rows of two ranks
};

// Constants: kRanks, and those of Embed: kScaled, kPositions, kLeavesGained.
inline constexpr unsigned kGatheredEmbedThreads = 256;
constexpr LaunchShape gathered_embed_shape(unsigned rows, bool leaves_gained) {
  return {{rows, 1, 1}, {kGatheredEmbedThreads, 1, 1}, leaves_gained ? kGatheredEmbedThreads / 32 * 4 : 0};
}

}  // namespace nodewright
