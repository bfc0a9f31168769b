// Codes packed into little-endian 32-bit words, as bytes and as numbers. The loops over a known number of codes become
// vector instructions, which loops over an unknown one do not at -O2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace nodewright {

// The 32 / bits codes of a word, the lowest first. `bits`: 1, 2, 4 or 8.
inline void unpack_word(uint32_t word, unsigned bits, uint8_t* to) {
  if (bits == 4) {
    uint64_t spread = word;
    spread = (spread | spread << 16) & 0x0000ffff0000ffff;
    spread = (spread | spread << 8) & 0x00ff00ff00ff00ff;
    spread = (spread | spread << 4) & 0x0f0f0f0f0f0f0f0f;
    std::memcpy(to, &spread, sizeof spread);
    return;
  }
  for (unsigned i = 0; i < 32 / bits; ++i) to[i] = static_cast<uint8_t>(word >> (i * bits) & ((1u << bits) - 1));
}

// to[i] = (codes[i] - zero) * scale. Code: uint8_t or int8_t.
template <class Code>
void scale_codes(std::span<const Code> codes, float zero, float scale, float* to) {
  constexpr size_t kAtOnce = 16;
  size_t i = 0;
  for (; i + kAtOnce <= codes.size(); i += kAtOnce)
    for (size_t j = i; j < i + kAtOnce; ++j) to[j] = (static_cast<float>(codes[j]) - zero) * scale;
  for (; i < codes.size(); ++i) to[i] = (static_cast<float>(codes[i]) - zero) * scale;
}

}  // namespace nodewright
