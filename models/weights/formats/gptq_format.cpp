// quant_method "gptq": integers packed along the inputs. Version 1 stores each zero less one; which input belongs to
// which group stands in g_idx (GPTQModel, nn_modules/qlinear and utils/model.py).
#include <fmt/format.h>

#include <numeric>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/column_packed_matrix.h"
#include "models/weights/formats/stored_tensor.h"
#include "models/weights/formats/weight_format.h"

namespace nodewright {
namespace {

class GptqFormat : public WeightFormat {
 public:
  // `group` -1: all inputs.
  GptqFormat(int64_t bits, int64_t group, bool stores_zero_less_one)
      : WeightFormat(fmt::format("int{}, {} (gptq)", bits,
                                 group < 0 ? "a scale for each row" : fmt::format("groups of {}", group))),
        bits_(bits),
        group_(group),
        zero_offset_(stores_zero_less_one ? 1 : 0) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || !stores(name, checkpoint)) return nullptr;
    const std::string module = module_of(name) + ".";
    ColumnPackedParts parts{.bits = bits_, .rows = shape[0], .cols = shape[1], .packs_inputs = true};
    parts.group = group_ < 0 ? shape[1] : group_;
    parts.zero_offset = zero_offset_;
    std::iota(parts.place.begin(), parts.place.end(), 0);
    const int64_t in_word = parts.codes_of_word();
    if (shape[0] % in_word != 0 || shape[1] % in_word != 0)
      refuse_stored(*checkpoint.find(module + "qweight"),
                    fmt::format("the matrix is {}, expected multiples of {}", shape_text(shape), in_word));
    const auto require = [&](const char* part, const std::vector<int64_t>& of_part,
                             std::initializer_list<Dtype> dtypes) {
      return &require_stored(checkpoint, module + part, {of_part}, dtypes, name);
    };
    parts.codes = require("qweight", {shape[1] / in_word, shape[0]}, {Dtype::kI32});
    parts.scales = require("scales", {parts.group_count(), shape[0]}, {Dtype::kF16, Dtype::kBF16, Dtype::kF32});
    parts.zeros = require("qzeros", {parts.group_count(), shape[0] / in_word}, {Dtype::kI32});
    if (checkpoint.find(module + "g_idx")) parts.groups = require("g_idx", {shape[1]}, {Dtype::kI32});
    return column_packed_matrix(fmt::format("int{} (gptq)", bits_), parts);
  }

  bool stores(const std::string& name, const Checkpoint& checkpoint) const override {
    return !module_of(name).empty() && checkpoint.find(module_of(name) + ".qweight") != nullptr;
  }

 private:
  int64_t bits_, group_, zero_offset_;
};

}  // namespace

std::unique_ptr<WeightFormat> read_gptq_format(const ConfigFields& fields) {
  const int64_t bits = fields.integer("bits", 4, 1, 16);
  if (bits != 4 && bits != 8) fields.refuse(fmt::format("{}bits is {}, expected 4 or 8", fields.prefix(), bits));
  const int64_t group = fields.integer("group_size", 128, -1, 1 << 20);
  if (group == 0) fields.refuse(fields.prefix() + "group_size is 0, expected -1 or at least 1");
  const std::string layout = fields.text("checkpoint_format", "gptq");
  if (layout != "gptq" && layout != "gptq_v2")
    fields.refuse(fmt::format("{}checkpoint_format is {}", fields.prefix(), in_quotes(layout)),
                  "supported: gptq, gptq_v2");
  if (fields.object("dynamic"))
    fields.refuse(fields.prefix() + "dynamic: settings of single modules are not supported");
  return std::make_unique<GptqFormat>(bits, group, layout == "gptq");
}

}  // namespace nodewright
