// What one rank of a tensor-parallel team computes of a network: an equal part of the heads, of the feed-forward width
// and of the vocabulary, and all of what is as wide as the residual.
#pragma once

#include <cstdint>

namespace nodewright {

struct ModelConfig;

// A rank's place; of one rank the part is the whole.
struct Shard {
  int64_t rank = 0, ranks = 1;
  bool is_part() const { return ranks > 1; }
  bool operator==(const Shard&) const = default;

  // The first of this rank's share of `n` consecutive things; shares differ by one at most.
  int64_t first_of(int64_t n) const { return n * rank / ranks; }
  int64_t count_of(int64_t n) const { return n * (rank + 1) / ranks - first_of(n); }
  int64_t most_of(int64_t n) const { return (n + ranks - 1) / ranks; }  // of any rank
};

// `whole` as the rank sees it: heads, kv_heads and both intermediates are its own, vocab stays that of all. Throws
// Error with the number that does not divide, or with what of the network no rank can do alone.
ModelConfig shard_of(const ModelConfig& whole, Shard shard);

// Exchanges of a step of such a part, those of layers once for each lane (models/step/lanes.h). An even number
// (graph/team/team_check.h).
int64_t exchanges_of_step(const ModelConfig& part, int64_t lanes = 1);
// Whether queries and keys of this layer, where they are normed over all ranks, are normed in an exchange each instead
// of in one: in the first layer, where the number would be odd.
bool norms_heads_apart(const ModelConfig& part, int64_t layer);

}  // namespace nodewright
