// How ranks prove to each other that they know the group's secret, without saying it: each answers the other's random
// number with a keyed hash (HMAC-SHA256, RFC 2104) of both numbers and of what it says it is. Nothing is encrypted
// afterwards.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/compilers/content_hash.h"

namespace nodewright {

using RankNonce = std::array<std::byte, 32>;

// Random bytes from the operating system. Throws Error where it has none.
RankNonce new_rank_nonce();

// What both sides say of one connection.
struct RankProofTerms {
  uint32_t rank = 0, ranks = 0, channel = 0;
  RankNonce of_rank{}, of_host{};
};
// The proofs of the joining rank and of rank 0. They differ, so that neither can be replayed as the other.
Digest proof_of_rank(std::string_view secret, const RankProofTerms& terms);
Digest proof_of_host(std::string_view secret, const RankProofTerms& terms);

// Takes the same time wherever they differ.
bool same_proof(const Digest& one, const Digest& other);

// RFC 2104 with SHA-256.
Digest keyed_hash(std::string_view key, std::string_view text);

}  // namespace nodewright
