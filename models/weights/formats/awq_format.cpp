// quant_method "awq", version "gemm": int4 packed along the outputs, in an order of its own (AutoAWQ,
// awq/modules/linear/gemm.py and awq/utils/packing_utils.py).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/column_packed_matrix.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

class AwqFormat : public WeightFormat {
 public:
  // `group` -1: all inputs.
  explicit AwqFormat(int64_t group)
      : WeightFormat(group < 0 ? "int4, a scale for each row (awq)" : fmt::format("int4, groups of {} (awq)", group)),
        group_(group) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || !stores(name, checkpoint)) return nullptr;
    const std::string module = module_of(name) + ".";
    ColumnPackedParts parts{.bits = 4, .rows = shape[0], .cols = shape[1]};
    parts.group = group_ < 0 ? shape[1] : group_;
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
  int64_t group_;
};

}  // namespace

std::unique_ptr<WeightFormat> read_awq_format(const ConfigFields& fields) {
  const int64_t bits = fields.integer("bits", 4, 1, 16), group = fields.integer("group_size", 128, -1, 1 << 20);
  if (bits != 4) fields.refuse(fmt::format("{}bits is {}, expected 4", fields.prefix(), bits));
  if (group == 0) fields.refuse(fields.prefix() + "group_size is 0, expected -1 or at least 1");
  std::string version = fields.text("version", "gemm");
  std::ranges::transform(version, version.begin(), [](unsigned char c) { return std::tolower(c); });
  if (version != "gemm")
    fields.refuse(fmt::format("{}version is {}, expected gemm", fields.prefix(), in_quotes(version)));
  if (!fields.boolean("zero_point", true))
    fields.refuse(fields.prefix() + "zero_point is false, which is not supported");
  return std::make_unique<AwqFormat>(group);
}

}  // namespace nodewright
