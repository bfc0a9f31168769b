// The tensors of a module in GPTQ and AWQ: qweight, scales, qzeros and g_idx, in one of the two layouts.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string_view>
#include <vector>

#include "models/weights/formats/column_packed_matrix.h"
#include "models/weights/formats/int4_words.h"
#include "models/weights/formats/packing_rules.h"
#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

struct ColumnLayout {
  const char* method;         // "gptq"
  bool packs_inputs = false;  // a word holds inputs of one output, else outputs of one input
  std::array<uint8_t, 16> place = {};
  GptqZeros zeros = GptqZeros::as_they_are;
  bool ordered = false;  // g_idx must be there
};

bool holds_zeros(const TensorInfo& tensor) {
  std::vector<std::byte> bytes(tensor.bytes);
  tensor.file->read(tensor.offset, bytes);
  return std::ranges::all_of(bytes, [](std::byte one) { return one == std::byte{0}; });
}

class ColumnPackedFormat : public WeightFormat {
 public:
  ColumnPackedFormat(PackingRules rules, const ColumnLayout& layout)
      : WeightFormat(fmt::format("{} ({})", rules.words(), layout.method)), rules_(std::move(rules)), layout_(layout) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || !stores(name, checkpoint)) return nullptr;
    const std::string module = module_of(name) + ".";
    const Packing packing = rules_.of(module_of(name));
    ColumnPackedParts parts{.bits = packing.bits,
                            .rows = shape[0],
                            .cols = shape[1],
                            .group = packing.group < 0 ? shape[1] : packing.group,
                            .packs_inputs = layout_.packs_inputs,
                            .place = layout_.place};
    // One in each code: 0x11111111 of 4 bits.
    if (layout_.zeros == GptqZeros::less_one) parts.zero_addend = UINT32_MAX / ((1u << packing.bits) - 1);
    const int64_t in_word = parts.codes_of_word();
    if (shape[0] % in_word != 0 || (layout_.packs_inputs && shape[1] % in_word != 0))
      refuse_stored(*checkpoint.find(module + "qweight"),
                    fmt::format("the matrix is {}, expected multiples of {}{}", shape_text(shape), in_word,
                                layout_.packs_inputs ? "" : " rows"));
    const auto require = [&](const char* part, const std::vector<int64_t>& of_part,
                             std::initializer_list<Dtype> dtypes) {
      return &require_stored(checkpoint, module + part, {of_part}, dtypes, name);
    };
    parts.codes = layout_.packs_inputs ? require("qweight", {shape[1] / in_word, shape[0]}, {Dtype::kI32})
                                       : require("qweight", {shape[1], shape[0] / in_word}, {Dtype::kI32});
    parts.scales = require("scales", {parts.group_count(), shape[0]}, {Dtype::kF16, Dtype::kBF16, Dtype::kF32});
    parts.zeros = require("qzeros", {parts.group_count(), shape[0] / in_word}, {Dtype::kI32});
    if (layout_.ordered || (layout_.packs_inputs && checkpoint.find(module + "g_idx")))
      parts.groups = require("g_idx", {shape[1]}, {Dtype::kI32});
    return column_packed_matrix(fmt::format("int{} ({})", packing.bits, layout_.method), parts);
  }

  bool stores(const std::string& name, const Checkpoint& checkpoint) const override {
    return !module_of(name).empty() && checkpoint.find(module_of(name) + ".qweight") != nullptr;
  }

  std::unique_ptr<EncodedMatrix> drawn(const std::string& name, const std::vector<int64_t>& shape) const override {
    const std::optional<Packing> packing = rules_.packed(module_of(name));
    if (!packing || packing->bits != 4 || layout_.ordered) return nullptr;
    return std::make_unique<DrawnMatrix>(std::nullopt,
                                         int4_layout_of(packing->group < 0 ? shape[1] : packing->group, shape[1]));
  }

  // AutoGPTQ gives each module a bias, of zeros where the network has none.
  bool is_spare(const TensorInfo& tensor, const Checkpoint& checkpoint) const override {
    constexpr std::string_view kBias = ".bias";
    const std::string& name = tensor.name;
    if (!name.ends_with(kBias)) return WeightFormat::is_spare(tensor, checkpoint);
    return checkpoint.find(name.substr(0, name.size() - kBias.size()) + ".qweight") != nullptr && holds_zeros(tensor);
  }

 private:
  PackingRules rules_;
  ColumnLayout layout_;
};

}  // namespace

std::unique_ptr<WeightFormat> gptq_format(PackingRules rules, GptqZeros zeros, bool ordered) {
  ColumnLayout layout{.method = "gptq", .packs_inputs = true, .zeros = zeros, .ordered = ordered};
  std::iota(layout.place.begin(), layout.place.end(), 0);
  return std::make_unique<ColumnPackedFormat>(std::move(rules), layout);
}

std::unique_ptr<WeightFormat> awq_format(PackingRules rules) {
  // Nibble i of a word is output [0, 2, 4, 6, 1, 3, 5, 7][i] of eight.
  return std::make_unique<ColumnPackedFormat>(std::move(rules),
                                              ColumnLayout{.method = "awq", .place = {0, 4, 1, 5, 2, 6, 3, 7}});
}

}  // namespace nodewright
