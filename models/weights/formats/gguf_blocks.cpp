// GGUF's blocks as integers with scales, and as floats. Layouts: ggml/src/ggml-common.h; arithmetic: gguf 0.19,
// quants.py.
#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <cstring>

#include "models/weights/bf16_conversion.h"
#include "models/weights/formats/gguf_format.h"
#include "models/weights/formats/stored_tensor.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using Byte = uint8_t;

// Up to 256 elements, scale * code + offset with the scale and the offset of their group; of types without offsets
// scale * code.
struct Block {
  int8_t codes[256];
  float scales[16], offsets[16];
};

constexpr int8_t kFourBits[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};  // IQ4

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

// 32 codes of 4 bits, with a fifth one each in `high`.
void codes_of(Block& to, const Byte* nibbles, uint32_t high, int zero) {
  for (int i = 0; i < 32; ++i)
    to.codes[i] = static_cast<int8_t>(static_cast<int>(nibble(nibbles, i) | (high >> i & 1) << 4) - zero);
}

void q4_0(const Byte* b, Block& to) {
  to.scales[0] = half_at(b);
  codes_of(to, b + 2, 0, 8);
}
void q4_1(const Byte* b, Block& to) {
  to.scales[0] = half_at(b), to.offsets[0] = half_at(b + 2);
  codes_of(to, b + 4, 0, 0);
}
void q5_0(const Byte* b, Block& to) {
  to.scales[0] = half_at(b);
  codes_of(to, b + 6, word_at(b + 2), 16);
}
void q5_1(const Byte* b, Block& to) {
  to.scales[0] = half_at(b), to.offsets[0] = half_at(b + 2);
  codes_of(to, b + 8, word_at(b + 4), 0);
}
void q8_0(const Byte* b, Block& to) {
  to.scales[0] = half_at(b);
  std::memcpy(to.codes, b + 2, 32);
}
void iq4_nl(const Byte* b, Block& to) {
  to.scales[0] = half_at(b);
  for (int i = 0; i < 32; ++i) to.codes[i] = kFourBits[nibble(b + 2, i)];
}
void mxfp4(const Byte* b, Block& to) {
  // Elements doubled and scales halved, as there: 2^(e - 128).
  to.scales[0] = b[0] == 0 ? 0x1p-128f : b[0] == 1 ? 0x1p-127f : std::bit_cast<float>((b[0] - 1u) << 23);
  for (int i = 0; i < 32; ++i) to.codes[i] = static_cast<int8_t>(2 * values_of_e2m1()[nibble(b + 1, i)]);
}

// Scale and minimum of sub-block j of eight, 6 bits each.
void scale_and_minimum(const Byte* s, int j, float& scale, float& minimum) {
  const unsigned sc = j < 4 ? s[j] & 63u : (s[j + 4] & 15u) | (s[j - 4] >> 6) << 4;
  const unsigned m = j < 4 ? s[j + 4] & 63u : static_cast<unsigned>(s[j + 4] >> 4) | (s[j] >> 6) << 4;
  scale = static_cast<float>(sc), minimum = static_cast<float>(m);
}

void q2_k(const Byte* b, Block& to) {  // 16 scales and minima, 64 of codes, d, dmin
  const Byte* const codes = b + 16;
  const float d = half_at(b + 80), dmin = half_at(b + 82);
  for (int j = 0; j < 16; ++j)
    to.scales[j] = d * static_cast<float>(b[j] & 15), to.offsets[j] = -(dmin * static_cast<float>(b[j] >> 4));
  for (int i = 0; i < 256; ++i)
    to.codes[i] = static_cast<int8_t>(codes[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3u);
}
void q3_k(const Byte* b, Block& to) {  // 32 of high bits, 64 of low ones, 12 of scales, d
  const Byte *const low = b + 32, *const packed = b + 96;
  const float d = half_at(b + 108);
  for (int j = 0; j < 16; ++j) {
    const unsigned bits = (j < 8 ? packed[j] & 15u : packed[j - 8] >> 4) | (packed[8 + j % 4] >> (j / 4 * 2) & 3u) << 4;
    to.scales[j] = d * static_cast<float>(static_cast<int>(bits) - 32);
  }
  for (int i = 0; i < 256; ++i) {
    const int code = low[i / 128 * 32 + i % 32] >> (i % 128 / 32 * 2) & 3;
    const int high = b[i % 32] >> (i / 32) & 1;  // unset: four less
    to.codes[i] = static_cast<int8_t>(code - (high ? 0 : 4));
  }
}
void scales_of_eight(const Byte* b, Block& to) {
  const float d = half_at(b), dmin = half_at(b + 2);
  for (int j = 0; j < 8; ++j) {
    float scale, minimum;
    scale_and_minimum(b + 4, j, scale, minimum);
    to.scales[j] = d * scale, to.offsets[j] = -(dmin * minimum);
  }
}
void q4_k(const Byte* b, Block& to) {  // d, dmin, 12 of scales and minima, 128 of codes
  scales_of_eight(b, to);
  for (int i = 0; i < 256; ++i) {
    const Byte two = b[16 + i / 64 * 32 + i % 32];
    to.codes[i] = static_cast<int8_t>(i / 32 % 2 ? two >> 4 : two & 15);
  }
}
void q5_k(const Byte* b, Block& to) {  // as q4_k, with 32 of high bits before the codes
  scales_of_eight(b, to);
  for (int i = 0; i < 256; ++i) {
    const Byte two = b[48 + i / 64 * 32 + i % 32];
    to.codes[i] = static_cast<int8_t>((i / 32 % 2 ? two >> 4 : two & 15) | (b[16 + i % 32] >> (i / 32) & 1) << 4);
  }
}
void q6_k(const Byte* b, Block& to) {  // 128 of low bits, 64 of high ones, 16 scales, d
  const float d = half_at(b + 208);
  for (int j = 0; j < 16; ++j) to.scales[j] = d * static_cast<float>(static_cast<int8_t>(b[192 + j]));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i % 128 / 32, place = i % 32;
    const Byte low = b[half * 64 + quarter % 2 * 32 + place];
    const int code = (quarter < 2 ? low & 15 : low >> 4) | (b[128 + half * 32 + place] >> (2 * quarter) & 3) << 4;
    to.codes[i] = static_cast<int8_t>(code - 32);
  }
}
void iq4_xs(const Byte* b, Block& to) {  // d, 16 bits of high halves of scales, 4 bytes of low ones, codes
  const float d = half_at(b);
  const unsigned high = b[2] | static_cast<unsigned>(b[3]) << 8;
  for (int j = 0; j < 8; ++j) {
    const unsigned low = b[4 + j / 2] >> (j % 2 * 4) & 15u;
    to.scales[j] = d * static_cast<float>(static_cast<int>(low | (high >> (2 * j) & 3u) << 4) - 32);
    for (int i = 0; i < 32; ++i) to.codes[32 * j + i] = kFourBits[nibble(b + 8 + 16 * j, i)];
  }
}

// The columns of a group, and whether it has an offset beside its scale.
struct Decoder {
  std::string_view type;
  void (*decode)(const Byte* block, Block& to);
  int group;
  bool has_offsets;
};
constexpr Decoder kDecoders[] = {
    {"Q4_0", q4_0, 32, false},  {"Q4_1", q4_1, 32, true},  {"Q5_0", q5_0, 32, false},     {"Q5_1", q5_1, 32, true},
    {"Q8_0", q8_0, 32, false},  {"Q2_K", q2_k, 16, true},  {"Q3_K", q3_k, 16, false},     {"Q4_K", q4_k, 32, true},
    {"Q5_K", q5_k, 32, true},   {"Q6_K", q6_k, 16, false}, {"IQ4_NL", iq4_nl, 32, false}, {"IQ4_XS", iq4_xs, 32, false},
    {"MXFP4", mxfp4, 32, false}};
const Decoder& decoder_of(const GgufType& type) {
  for (const Decoder& one : kDecoders)
    if (one.type == type.name) return one;
  throw Error({.doing = "decode weights", .detail = fmt::format("no decoder knows {}", type.name)});
}

// The fp16 nearest to `value`. Kernels multiply scales by zeros of up to 128.
uint16_t half_of(float value, std::string_view what, const TensorInfo& tensor) {
  constexpr float kMost = 511;
  if (!(std::abs(value) <= kMost))
    refuse_stored(tensor, fmt::format("it has the {} {}, beyond {}", what, value, kMost));
  return std::bit_cast<uint16_t>(static_cast<_Float16>(value));
}

// f(i, block)
template <class F>
void for_each_block(const GgufType& type, const std::byte* blocks, int64_t count, const F& f) {
  const Decoder& decoder = decoder_of(type);
  Block block{};
  const auto* from = reinterpret_cast<const Byte*>(blocks);
  for (int64_t i = 0; i < count; ++i, from += type.bytes) {
    decoder.decode(from, block);
    f(i, block);
  }
}

}  // namespace

void dequantize_blocks(const GgufType& type, const std::byte* blocks, std::span<float> to) {
  const Decoder& decoder = decoder_of(type);
  const auto elements = static_cast<int64_t>(type.elements);
  for_each_block(type, blocks, static_cast<int64_t>(to.size()) / elements, [&](int64_t i, const Block& block) {
    float* const out = to.data() + i * elements;
    for (int64_t j = 0; j < elements; ++j) {
      const int64_t group = j / decoder.group;
      out[j] = block.scales[group] * static_cast<float>(block.codes[j]);
      if (decoder.has_offsets) out[j] += block.offsets[group];
    }
  });
}

std::optional<WeightLayout> group_layout_of(const GgufType& type, int64_t cols) {
  WeightLayout layout;
  if (cols % 128 != 0 || type.name == "MXFP4") return {};  // whose scales are beyond fp16
  const Decoder& decoder = decoder_of(type);
  const bool of_4_bits = type.name.starts_with("Q4_");
  layout.code = decoder.has_offsets ? (of_4_bits ? WeightCode::q4_offset : WeightCode::q8_offset)
                                    : (of_4_bits ? WeightCode::q4 : WeightCode::q8);
  layout.group = decoder.group;
  return layout;
}

void group_codes_of(const GgufType& type, const std::byte* blocks, const WeightLayout& layout, std::span<uint8_t> to) {
  const int less = layout.code == WeightCode::q4 ? -8 : layout.code == WeightCode::q8 ? -128 : 0;
  const auto elements = static_cast<int64_t>(type.elements);
  for_each_block(type, blocks, static_cast<int64_t>(to.size()) / elements, [&](int64_t i, const Block& block) {
    for (int64_t j = 0; j < elements; ++j)
      to[static_cast<size_t>(i * elements + j)] = static_cast<uint8_t>(block.codes[j] - less);
  });
}

std::vector<uint32_t> group_words_of(const GgufType& type, const std::byte* blocks, int64_t count,
                                     const WeightLayout& layout, const TensorInfo& tensor) {
  const auto elements = static_cast<int64_t>(type.elements), groups = elements / layout.group;
  const bool has_offsets = layout.group_bytes() == 4;
  std::vector<uint16_t> halves;
  for_each_block(type, blocks, count, [&](int64_t, const Block& block) {
    for (int64_t j = 0; j < groups; ++j) {
      halves.push_back(half_of(block.scales[j], "scale", tensor));
      if (has_offsets) halves.push_back(half_of(block.offsets[j], "offset", tensor));
    }
  });
  std::vector<uint32_t> words(halves.size() / 2);
  std::memcpy(words.data(), halves.data(), words.size() * sizeof(uint32_t));
  return words;
}

}  // namespace nodewright
