// GGUF's blocks as floats. Layouts: ggml/src/ggml-common.h; arithmetic: gguf 0.19, quants.py.
#include <fmt/format.h>

#include <bit>
#include <cstring>

#include "models/weights/bf16_conversion.h"
#include "models/weights/formats/gguf_format.h"
#include "models/weights/formats/stored_tensor.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using Byte = uint8_t;

constexpr float kFourBits[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};  // IQ4

float half_at(const Byte* from) {
  float value;
  convert_to_floats(Dtype::kF16, reinterpret_cast<const std::byte*>(from), &value, 1);
  return value;
}
uint32_t word_at(const Byte* from) {
  uint32_t word;
  std::memcpy(&word, from, sizeof word);
  return word;
}

// Half a byte each: element i of 32 is in the low half of byte i, 16 + i in its high half.
unsigned nibble(const Byte* from, int i) { return i < 16 ? from[i] & 15u : from[i - 16] >> 4; }

void q4_0(const Byte* b, float* to) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(static_cast<int>(nibble(b + 2, i)) - 8);
}
void q4_1(const Byte* b, float* to) {
  const float d = half_at(b), m = half_at(b + 2);
  for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(nibble(b + 4, i)) + m;
}
void q5_0(const Byte* b, float* to) {
  const float d = half_at(b);
  const uint32_t high = word_at(b + 2);
  for (int i = 0; i < 32; ++i)
    to[i] = d * static_cast<float>(static_cast<int>(nibble(b + 6, i) | (high >> i & 1) << 4) - 16);
}
void q5_1(const Byte* b, float* to) {
  const float d = half_at(b), m = half_at(b + 2);
  const uint32_t high = word_at(b + 4);
  for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(nibble(b + 8, i) | (high >> i & 1) << 4) + m;
}
void q8_0(const Byte* b, float* to) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) to[i] = d * static_cast<float>(static_cast<int8_t>(b[2 + i]));
}
void iq4_nl(const Byte* b, float* to) {
  const float d = half_at(b);
  for (int i = 0; i < 32; ++i) to[i] = d * kFourBits[nibble(b + 2, i)];
}
void mxfp4(const Byte* b, float* to) {
  // Elements doubled and scales halved, as there: 2^(e - 128).
  const float d = b[0] == 0 ? 0x1p-128f : b[0] == 1 ? 0x1p-127f : std::bit_cast<float>((b[0] - 1u) << 23);
  for (int i = 0; i < 32; ++i) {
    const float doubled = 2 * values_of_e2m1()[nibble(b + 1, i)];
    to[i] = d * (doubled == 0 ? 0.0f : doubled);
  }
}

// Scale and minimum of sub-block j of eight, 6 bits each.
void scale_and_minimum(const Byte* s, int j, float& scale, float& minimum) {
  const unsigned sc = j < 4 ? s[j] & 63u : (s[j + 4] & 15u) | (s[j - 4] >> 6) << 4;
  const unsigned m = j < 4 ? s[j + 4] & 63u : static_cast<unsigned>(s[j + 4] >> 4) | (s[j] >> 6) << 4;
  scale = static_cast<float>(sc), minimum = static_cast<float>(m);
}

void q2_k(const Byte* b, float* to) {  // 16 scales and minima, 64 of codes, d, dmin
  const Byte* const codes = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int i = 0; i < 256; ++i) {
    const Byte scale = b[i / 16];
    const unsigned code = codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3u;
    to[i] = d * static_cast<float>(scale & 15) * static_cast<float>(code) - dmin * static_cast<float>(scale >> 4);
  }
}
void q3_k(const Byte* b, float* to) {  // 32 of high bits, 64 of low ones, 12 of scales, d
  const Byte *const low = b + 32, *const packed = b + 96;
  const float d = half_at(b + 108);
  float scales[16];
  for (int j = 0; j < 16; ++j) {
    const unsigned bits = (j < 8 ? packed[j] & 15u : packed[j - 8] >> 4) | (packed[8 + j % 4] >> (j / 4 * 2) & 3u) << 4;
    scales[j] = d * static_cast<float>(static_cast<int>(bits) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int code = low[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int high = b[i % 32] >> (i / 32) & 1;  // unset: four less
    to[i] = scales[i / 16] * static_cast<float>(code - (high ? 0 : 4));
  }
}
void q4_k(const Byte* b, float* to) {  // d, dmin, 12 of scales and minima, 128 of codes
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    float scale, minimum;
    scale_and_minimum(b + 4, j, scale, minimum);
    const float factor = d * scale, less = dmin * minimum;
    const Byte* const codes = b + 16 + j / 2 * 32;
    for (int i = 0; i < 32; ++i)
      to[32 * j + i] = factor * static_cast<float>(j % 2 ? codes[i] >> 4 : codes[i] & 15) - less;
  }
}
void q5_k(const Byte* b, float* to) {  // as q4_k, with 32 of high bits before the codes
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    float scale, minimum;
    scale_and_minimum(b + 4, j, scale, minimum);
    const float factor = d * scale, less = dmin * minimum;
    const Byte *const high = b + 16, *const codes = b + 48 + j / 2 * 32;
    for (int i = 0; i < 32; ++i) {
      const int code = (j % 2 ? codes[i] >> 4 : codes[i] & 15) | (high[i] >> j & 1) << 4;
      to[32 * j + i] = factor * static_cast<float>(code) - less;
    }
  }
}
void q6_k(const Byte* b, float* to) {  // 128 of low bits, 64 of high ones, 16 scales, d
  const float d = half_at(b + 208);
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, place = i % 32;
    const Byte low = b[half * 64 + quarter % 2 * 32 + place];
    const int code = (quarter < 2 ? low & 15 : low >> 4) | (b[128 + half * 32 + place] >> (2 * quarter) & 3) << 4;
    const float scale = d * static_cast<float>(static_cast<int8_t>(b[192 + i / 16]));
    to[i] = scale * static_cast<float>(code - 32);
  }
}
void iq4_xs(const Byte* b, float* to) {  // d, 16 bits of high halves of scales, 4 bytes of low ones, codes
  const float d = half_at(b);
  const unsigned high = b[2] | static_cast<unsigned>(b[3]) << 8;
  for (int j = 0; j < 8; ++j) {
    const unsigned low = b[4 + j / 2] >> (j % 2 * 4) & 15u;
    const float scale = d * static_cast<float>(static_cast<int>(low | (high >> (2 * j) & 3u) << 4) - 32);
    for (int i = 0; i < 32; ++i) to[32 * j + i] = scale * kFourBits[nibble(b + 8 + 16 * j, i)];
  }
}

struct Decoder {
  std::string_view type;
  void (*decode)(const Byte* block, float* to);
};
constexpr Decoder kDecoders[] = {{"Q4_0", q4_0},  {"Q4_1", q4_1}, {"Q5_0", q5_0},     {"Q5_1", q5_1},
                                 {"Q8_0", q8_0},  {"Q2_K", q2_k}, {"Q3_K", q3_k},     {"Q4_K", q4_k},
                                 {"Q5_K", q5_k},  {"Q6_K", q6_k}, {"IQ4_NL", iq4_nl}, {"IQ4_XS", iq4_xs},
                                 {"MXFP4", mxfp4}};

}  // namespace

void dequantize_blocks(const GgufType& type, const std::byte* blocks, std::span<float> to) {
  for (const Decoder& one : kDecoders) {
    if (one.type != type.name) continue;
    const auto* from = reinterpret_cast<const Byte*>(blocks);
    for (size_t i = 0; i < to.size(); i += type.elements, from += type.bytes) one.decode(from, to.data() + i);
    return;
  }
  throw Error({.doing = "decode weights", .detail = fmt::format("no decoder knows {}", type.name)});
}

}  // namespace nodewright
