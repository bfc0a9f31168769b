#include "models/weights/rounding/fp8_rounding.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr float kLargestFp8 = 448;
constexpr uint32_t kMagnitudeBits = 0x7fffffff, kInfinityBits = 0x7f800000;
constexpr size_t kRoundedAtOnce = 16;  // a loop over a known number becomes vector instructions at -O2

uint8_t fp8_code(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t size = std::min(bits & kMagnitudeBits, std::bit_cast<uint32_t>(kLargestFp8));
  // Three bits of fraction stay, and the exponent's bias of 127 becomes 7.
  const uint32_t normal = (size + 0x7ffff + (size >> 20 & 1) - (120u << 23)) >> 20;
  // Below 2^-6 codes are multiples of 2^-9, which is the last place of 2^14.
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0x1p14f) - std::bit_cast<uint32_t>(0x1p14f);
  const uint32_t code = size < std::bit_cast<uint32_t>(0x1p-6f) ? small : normal;
  return static_cast<uint8_t>(code | (bits >> 24 & 0x80));
}

// As bits, whose order is that of magnitudes; infinities and NaNs are above.
int32_t magnitude_bits(float value) { return static_cast<int32_t>(std::bit_cast<uint32_t>(value) & kMagnitudeBits); }

}  // namespace

float largest_magnitude(std::span<const float> values, const TensorInfo& tensor, int64_t row) {
  int32_t lanes[kRoundedAtOnce] = {};
  size_t i = 0;
  for (; i + kRoundedAtOnce <= values.size(); i += kRoundedAtOnce)
    for (size_t j = 0; j < kRoundedAtOnce; ++j) lanes[j] = std::max(lanes[j], magnitude_bits(values[i + j]));
  int32_t most = *std::ranges::max_element(lanes);
  for (; i < values.size(); ++i) most = std::max(most, magnitude_bits(values[i]));
  if (static_cast<uint32_t>(most) >= kInfinityBits)
    throw Error({.doing = fmt::format("quantize tensor {} of", in_quotes(tensor.name)),
                 .object = tensor.file == nullptr ? "drawn weights" : tensor.file->path().string(),
                 .detail = fmt::format("row {} has a value that is not finite", row)});
  return std::bit_cast<float>(most);
}

float fp8_scale(float largest) {
  const float exact = std::max(largest / kLargestFp8, std::numeric_limits<float>::min());
  return std::bit_cast<float>((std::bit_cast<uint32_t>(exact) + 0xffff) & 0xffff0000u);
}

void round_to_fp8(std::span<const float> values, float scale, uint8_t* codes) {
  size_t i = 0;
  for (; i + kRoundedAtOnce <= values.size(); i += kRoundedAtOnce) {
    uint8_t some[kRoundedAtOnce];
    for (size_t j = 0; j < kRoundedAtOnce; ++j) some[j] = fp8_code(values[i + j] / scale);
    std::memcpy(codes + i, some, sizeof some);
  }
  for (; i < values.size(); ++i) codes[i] = fp8_code(values[i] / scale);
}

}  // namespace nodewright
