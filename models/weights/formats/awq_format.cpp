// quant_method "awq", version "gemm": int4 packed along the outputs, in an order of its own (AutoAWQ,
// awq/modules/linear/gemm.py and awq/utils/packing_utils.py).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/column_packed_matrix.h"
#include "models/weights/formats/packing_rules.h"
#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

class AwqFormat : public WeightFormat {
 public:
  explicit AwqFormat(PackingRules rules) : WeightFormat(rules.words() + " (awq)"), rules_(std::move(rules)) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || !stores(name, checkpoint)) return nullptr;
    const std::string module = module_of(name) + ".";
    const Packing packing = rules_.of(module_of(name));
    ColumnPackedParts parts{.bits = packing.bits, .rows = shape[0], .cols = shape[1]};
    parts.group = packing.group < 0 ? shape[1] : packing.group;
    parts.place = {0, 4, 1, 5, 2, 6, 3, 7};  // nibble i of a word is output [0, 2, 4, 6, 1, 3, 5, 7][i] of eight
    const int64_t in_word = parts.codes_of_word();
    if (shape[0] % in_word != 0)
      refuse_stored(*checkpoint.find(module + "qweight"),
                    fmt::format("the matrix is {}, expected a multiple of {} rows", shape_text(shape), in_word));
    const auto require = [&](const char* part, const std::vector<int64_t>& of_part,
                             std::initializer_list<Dtype> dtypes) {
      return &require_stored(checkpoint, module + part, {of_part}, dtypes, name);
    };
    parts.codes = require("qweight", {shape[1], shape[0] / in_word}, {Dtype::kI32});
    parts.scales = require("scales", {parts.group_count(), shape[0]}, {Dtype::kF16, Dtype::kBF16, Dtype::kF32});
    parts.zeros = require("qzeros", {parts.group_count(), shape[0] / in_word}, {Dtype::kI32});
    return column_packed_matrix("int4 (awq)", parts);
  }

  bool stores(const std::string& name, const Checkpoint& checkpoint) const override {
    return !module_of(name).empty() && checkpoint.find(module_of(name) + ".qweight") != nullptr;
  }

 private:
  PackingRules rules_;
};

}  // namespace

std::unique_ptr<WeightFormat> awq_format(PackingRules rules) { return std::make_unique<AwqFormat>(std::move(rules)); }

std::unique_ptr<WeightFormat> read_awq_format(const ConfigFields& fields) {
  PackingRules rules(fields, {4});
  std::string version = fields.text("version", "gemm");
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm")
    fields.refuse(fmt::format("{}version is {}, expected gemm", fields.prefix(), in_quotes(version)));
  if (!fields.boolean("zero_point", true))
    fields.refuse(fields.prefix() + "zero_point is false, which is not supported");
  return awq_format(std::move(rules));
}

}  // namespace nodewright
