// SHA-256 (FIPS 180-4): names the files of the kernel cache by what they were made from, and tells a damaged one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace nodewright {

using Digest = std::array<std::byte, 32>;

class ContentHash {
 public:
  // Bytes as they are: the cut between two calls leaves no mark.
  void add(std::span<const std::byte> bytes);
  // The text with its length before it, so that ("ab", "c") and ("a", "bc") differ.
  void add_field(std::string_view text);
  // The digest of everything added. Once.
  Digest finish();

 private:
  void take_block(const std::byte* block);

  std::array<uint32_t, 8> state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                 0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, 64> pending_{};
  uint64_t bytes_ = 0;
};

Digest hash_of(std::span<const std::byte> bytes);
std::string to_hex(const Digest& digest);

}  // namespace nodewright
