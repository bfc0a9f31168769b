#include "engine/ranks/rank_secret.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr size_t kHashBlockBytes = 64;  // of SHA-256

Digest proof(std::string_view secret, std::string_view side, const RankProofTerms& terms) {
  std::string text(side);
  const auto add = [&text](const auto& value) { text.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  add(terms.rank), add(terms.ranks), add(terms.channel), add(terms.of_rank), add(terms.of_host);
  return keyed_hash(secret, text);
}

}  // namespace

RankNonce new_rank_nonce() {
  RankNonce nonce;
  if (getrandom(nonce.data(), nonce.size(), 0) != static_cast<ssize_t>(nonce.size()))
    throw Error({.doing = "meet the other ranks", .object = "random numbers", .detail = std::strerror(errno)});
  return nonce;
}

Digest keyed_hash(std::string_view key, std::string_view text) {
  std::array<std::byte, kHashBlockBytes> block{};
  const std::span<const std::byte> bytes = std::as_bytes(std::span(key));
  if (bytes.size() > block.size())
    std::ranges::copy(hash_of(bytes), block.begin());
  else
    std::ranges::copy(bytes, block.begin());
  const auto padded = [&block](std::byte pad) {
    std::array<std::byte, kHashBlockBytes> all;
    std::ranges::transform(block, all.begin(), [pad](std::byte one) { return one ^ pad; });
    return all;
  };
  ContentHash inner, outer;
  inner.add(padded(std::byte{0x36}));
  inner.add(std::as_bytes(std::span(text)));
  outer.add(padded(std::byte{0x5c}));
  outer.add(inner.finish());
  return outer.finish();
}

Digest proof_of_rank(std::string_view secret, const RankProofTerms& terms) {
  return proof(secret, "nodewright rank", terms);
}
Digest proof_of_host(std::string_view secret, const RankProofTerms& terms) {
  return proof(secret, "nodewright host", terms);
}

bool same_proof(const Digest& one, const Digest& other) {
  std::byte differs{};
  for (size_t i = 0; i < one.size(); ++i) differs |= one[i] ^ other[i];
  return differs == std::byte{};
}

}  // namespace nodewright
