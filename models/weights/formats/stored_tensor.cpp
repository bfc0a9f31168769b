#include "models/weights/formats/stored_tensor.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/json_file.h"
#include "models/weights/bf16_conversion.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

std::span<const float, 256> values_of(Dtype dtype) {
  return dtype == Dtype::kF8E4M3 ? values_of_e4m3() : values_of_e8m0();
}

template <class List, class Word>
std::string alternatives(const List& list, const Word& word) {
  std::string text;
  for (const auto& one : list) text += (text.empty() ? "" : " or ") + std::string(word(one));
  return text;
}

}  // namespace

std::string module_of(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : "";
}

void refuse_stored(const TensorInfo& tensor, std::string detail, std::string advice) {
  throw Error({.doing = fmt::format("load tensor {} of", in_quotes(tensor.name)),
               .object = tensor.file->path().string(),
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

const TensorInfo& require_stored(const Checkpoint& checkpoint, const std::string& name,
                                 std::initializer_list<std::vector<int64_t>> shapes,
                                 std::initializer_list<Dtype> dtypes, const std::string& of) {
  const TensorInfo* tensor = checkpoint.find(name);
  const std::string shape = alternatives(shapes, shape_text);
  if (tensor == nullptr)
    throw Error({.doing = fmt::format("load tensor {} of", in_quotes(name)),
                 .object = checkpoint.folder().string(),
                 .detail = fmt::format("it is missing; {} needs it, with shape {}", in_quotes(of), shape),
                 .advice = "check that config.json belongs to these weights"});
  if (std::ranges::count(shapes, tensor->shape) == 0)
    refuse_stored(*tensor, fmt::format("expected shape {}, found {}", shape, shape_text(tensor->shape)),
                  "check that config.json belongs to these weights");
  if (std::ranges::count(dtypes, tensor->dtype) == 0)
    refuse_stored(
        *tensor,
        fmt::format("expected dtype {}, found {}", alternatives(dtypes, dtype_name), dtype_name(tensor->dtype)),
        "check that config.json belongs to these weights");
  return *tensor;
}

void read_values(const TensorInfo& tensor, uint64_t first, std::span<float> to) {
  const uint64_t element_bytes = dtype_bits(tensor.dtype) / 8;
  std::vector<std::byte> bytes(to.size() * element_bytes);
  tensor.file->read(tensor.offset + first * element_bytes, bytes);
  if (element_bytes > 1)
    return convert_to_floats(tensor.dtype, bytes.data(), to.data(), static_cast<int64_t>(to.size()));
  const std::span<const float, 256> values = values_of(tensor.dtype);
  for (size_t i = 0; i < to.size(); ++i) to[i] = values[static_cast<size_t>(bytes[i])];
}

std::span<const float, 256> values_of_e4m3() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all;
    for (int code = 0; code < 256; ++code) {
      const int mantissa = code & 7, exponent = code >> 3 & 15;
      const int whole = exponent == 0 ? mantissa : mantissa + 8;
      const float magnitude = std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - 10);
      all[static_cast<size_t>(code)] = code < 128 ? magnitude : -magnitude;
    }
    all[0x7f] = all[0xff] = kNan;
    return all;
  }();
  return values;
}

std::span<const float, 256> values_of_e8m0() {
  static const std::array<float, 256> values = [] {
    std::array<float, 256> all;
    for (int code = 0; code < 256; ++code) all[static_cast<size_t>(code)] = std::ldexp(1.0f, code - 127);
    all[0xff] = kNan;
    return all;
  }();
  return values;
}

std::span<const float, 16> values_of_e2m1() {
  static constexpr std::array<float, 16> kValues = {0,     0.5f,  1,     1.5f,  2,     3,     4,     6,
                                                    -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
  return kValues;
}

}  // namespace nodewright
