// quant_method "bitsandbytes" of 4 bits: codes of nf4 or fp4, the first of a byte in its high half, with a scale for
// each block of elements that follow each other, whatever row they are of. A state in JSON beside them has the size of
// a block. Scales may be quantized themselves (bitsandbytes, functional.py, QuantState).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

using nlohmann::json;

constexpr int64_t kLargestState = 4096;        // bytes
constexpr int64_t kLargestBnbBlock = 1 << 20;  // elements

// value = values[code] * scale; of quantized scales, scale = nested_values[code] * nested_scale + offset.
struct BlockedParts {
  int64_t rows = 0, cols = 0;
  int64_t block = 64, nested_block = 256;  // elements of a scale, scales of a nested one
  float offset = 0;
  const TensorInfo* codes = nullptr;
  const TensorInfo* scales = nullptr;         // F32, or U8 codes where they are quantized; one a block
  const TensorInfo* values = nullptr;         // F32 [16]
  const TensorInfo* nested_scales = nullptr;  // F32; null: scales are not quantized
  const TensorInfo* nested_values = nullptr;  // F32 [256]
  const TensorInfo* state = nullptr;
};

int64_t blocks_of(int64_t elements, int64_t block) { return (elements + block - 1) / block; }

class BlockedMatrix : public EncodedMatrix {
 public:
  BlockedMatrix(std::string format, const BlockedParts& p)
      : EncodedMatrix(std::move(format), p.nested_scales ? std::vector{p.codes, p.scales, p.values, p.state,
                                                                       p.nested_scales, p.nested_values}
                                                         : std::vector{p.codes, p.scales, p.values, p.state}),
        p_(p) {}

  void decode(int64_t first, int64_t rows, std::span<float> to) const override {
    const int64_t begin = first * p_.cols, end = begin + rows * p_.cols;
    std::vector<uint8_t> codes(static_cast<size_t>((end + 1) / 2 - begin / 2));
    read_elements(*p_.codes, static_cast<uint64_t>(begin / 2), std::span(codes));
    std::array<float, 16> values{};
    read_elements(*p_.values, 0, std::span(values));
    const int64_t first_block = begin / p_.block;
    const std::vector<float> scales = scales_of(first_block, blocks_of(end, p_.block));
    for (int64_t at = begin; at < end;) {
      const float scale = scales[static_cast<size_t>(at / p_.block - first_block)];
      for (const int64_t after = std::min((at / p_.block + 1) * p_.block, end); at < after; ++at) {
        const unsigned byte = codes[static_cast<size_t>(at / 2 - begin / 2)];
        to[static_cast<size_t>(at - begin)] = values[at % 2 == 0 ? byte >> 4 : byte & 15] * scale;
      }
    }
  }

 private:
  std::vector<float> scales_of(int64_t first, int64_t end) const {
    std::vector<float> scales(static_cast<size_t>(end - first));
    if (p_.nested_scales == nullptr) {
      read_elements(*p_.scales, static_cast<uint64_t>(first), std::span(scales));
      return scales;
    }
    std::vector<uint8_t> codes(scales.size());
    read_elements(*p_.scales, static_cast<uint64_t>(first), std::span(codes));
    std::array<float, 256> values{};
    read_elements(*p_.nested_values, 0, std::span(values));
    const int64_t first_nested = first / p_.nested_block;
    std::vector<float> nested(static_cast<size_t>(blocks_of(end, p_.nested_block) - first_nested));
    read_elements(*p_.nested_scales, static_cast<uint64_t>(first_nested), std::span(nested));
    for (int64_t i = first; i < end; ++i)
      scales[static_cast<size_t>(i - first)] = values[codes[static_cast<size_t>(i - first)]] *
                                                   nested[static_cast<size_t>(i / p_.nested_block - first_nested)] +
                                               p_.offset;
    return scales;
  }

  BlockedParts p_;
};

class BitsAndBytesFormat : public WeightFormat {
 public:
  BitsAndBytesFormat(const std::string& type, bool nested)
      : WeightFormat(fmt::format("{}{} (bitsandbytes)", type, nested ? ", scales quantized" : "")) {}

  // Modules that are left out stay bf16: they have no state.
  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2) return nullptr;
    for (const char* type : {"nf4", "fp4"})
      if (const TensorInfo* state = checkpoint.find(fmt::format("{}.quant_state.bitsandbytes__{}", name, type)))
        return std::make_unique<BlockedMatrix>(type, parts_of(name, shape, *state, checkpoint));
    return nullptr;
  }

  bool stores(const std::string&, const Checkpoint&) const override { return false; }  // under the same name

 private:
  static BlockedParts parts_of(const std::string& name, const std::vector<int64_t>& shape, const TensorInfo& state,
                               const Checkpoint& checkpoint) {
    const auto require = [&](const std::string& stored, int64_t elements, Dtype dtype) {
      return &require_stored(checkpoint, stored, {{elements}}, {dtype}, name);
    };
    const json object = state_of(state);
    const ConfigFields fields =
        ConfigFields(object, state.file->path().string(), "load a tensor of").inside(object, state.name + ": ");
    BlockedParts parts{.rows = shape[0], .cols = shape[1]};
    parts.state = &state;
    parts.block = fields.integer("blocksize", 64, 1, kLargestBnbBlock);
    if (fields.integers("shape") != shape)
      refuse_stored(state, fmt::format("its shape is {}, the network's matrix is {}",
                                       shape_text(fields.integers("shape")), shape_text(shape)));
    int64_t elements = 0;
    if (__builtin_mul_overflow(shape[0], shape[1], &elements) || elements > INT64_MAX / 2)
      refuse_stored(state, "the matrix has more than 2^62 elements");
    parts.codes = codes_of(name, (elements + 1) / 2, checkpoint);
    parts.values = require(name + ".quant_map", 16, Dtype::kF32);
    const int64_t blocks = blocks_of(elements, parts.block);
    const bool nested = fields.has("nested_blocksize");
    parts.scales = require(name + ".absmax", blocks, nested ? Dtype::kU8 : Dtype::kF32);
    if (!nested) return parts;
    parts.nested_block = fields.integer("nested_blocksize", 256, 1, kLargestBnbBlock);
    parts.offset = static_cast<float>(fields.number("nested_offset", 0, -1e30, 1e30, false));
    parts.nested_scales = require(name + ".nested_absmax", blocks_of(blocks, parts.nested_block), Dtype::kF32);
    parts.nested_values = require(name + ".nested_quant_map", 256, Dtype::kF32);
    return parts;
  }

  // A column of bytes, or of the wider elements that bnb_4bit_quant_storage asks for.
  static const TensorInfo* codes_of(const std::string& name, int64_t bytes, const Checkpoint& checkpoint) {
    const TensorInfo* found = checkpoint.find(name);
    const int64_t element = found == nullptr ? 1 : std::max<int64_t>(dtype_bits(found->dtype) / 8, 1);
    return &require_stored(checkpoint, name, {{blocks_of(bytes, element), 1}},
                           {Dtype::kU8, Dtype::kI8, Dtype::kBF16, Dtype::kF16, Dtype::kF32}, name);
  }

  static json state_of(const TensorInfo& state) {
    if (state.dtype != Dtype::kU8 || state.shape.size() != 1 || state.shape[0] > kLargestState)
      refuse_stored(state, fmt::format("expected at most {} bytes of JSON, found {} {}", kLargestState,
                                       dtype_name(state.dtype), shape_text(state.shape)));
    std::string text(state.bytes, '\0');
    state.file->read(state.offset, std::as_writable_bytes(std::span(text)));
    json object = json::parse(text, nullptr, false);
    if (!object.is_object()) refuse_stored(state, "its bytes are no JSON object");
    return object;
  }
};

}  // namespace

std::unique_ptr<WeightFormat> read_bitsandbytes_format(const ConfigFields& fields) {
  if (fields.boolean("load_in_8bit", false))
    fields.refuse(fields.prefix() + "load_in_8bit is true, which is not supported",
                  "a checkpoint of 4 bits, or GPTQ's");
  const std::string type = fields.text("bnb_4bit_quant_type", "fp4");
  if (type != "nf4" && type != "fp4")
    fields.refuse(fmt::format("{}bnb_4bit_quant_type is {}, expected nf4 or fp4", fields.prefix(), in_quotes(type)));
  return std::make_unique<BitsAndBytesFormat>(type, fields.boolean("bnb_4bit_use_double_quant", false));
}

}  // namespace nodewright
