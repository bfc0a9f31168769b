// quant_method "gptq": integers packed along the inputs. Version 1 stores words of zeros less one in each; which input
// belongs to which group stands in g_idx (GPTQModel, nn_modules/qlinear and utils/model.py).
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/column_packed_matrix.h"
#include "models/weights/formats/packing_rules.h"
#include "models/weights/formats/stored_tensor.h"

namespace nodewright {
namespace {

class GptqFormat : public WeightFormat {
 public:
  GptqFormat(PackingRules rules, GptqZeros zeros, bool ordered)
      : WeightFormat(rules.words() + " (gptq)"), rules_(std::move(rules)), zeros_(zeros), ordered_(ordered) {}

  std::unique_ptr<EncodedMatrix> matrix(const std::string& name, const std::vector<int64_t>& shape,
                                        const Checkpoint& checkpoint) const override {
    if (shape.size() != 2 || !stores(name, checkpoint)) return nullptr;
    const std::string module = module_of(name) + ".";
    const Packing packing = rules_.of(module_of(name));
    ColumnPackedParts parts{.bits = packing.bits, .rows = shape[0], .cols = shape[1], .packs_inputs = true};
    parts.group = packing.group < 0 ? shape[1] : packing.group;
    // One in each code: 0x11111111 of 4 bits.
    if (zeros_ == GptqZeros::less_one) parts.zero_addend = UINT32_MAX / ((1u << packing.bits) - 1);
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
    if (ordered_ || checkpoint.find(module + "g_idx")) parts.groups = require("g_idx", {shape[1]}, {Dtype::kI32});
    return column_packed_matrix(fmt::format("int{} (gptq)", packing.bits), parts);
  }

  bool stores(const std::string& name, const Checkpoint& checkpoint) const override {
    return !module_of(name).empty() && checkpoint.find(module_of(name) + ".qweight") != nullptr;
  }

 private:
  PackingRules rules_;
  GptqZeros zeros_;
  bool ordered_;  // groups lie in any order, which g_idx has
};

// "+:PATTERN" or PATTERN changes bits or group_size of the modules that begin with what it matches. "-:PATTERN" leaves
// modules as they were, and their tensors say the same (GPTQModel, quantization/config.py, dynamic_get).
void read_dynamic(const ConfigFields& fields, PackingRules& rules) {
  const nlohmann::json* dynamic = fields.object("dynamic");
  if (dynamic == nullptr) return;
  for (const auto& [key, value] : dynamic->items()) {
    if (key.starts_with("-:")) continue;
    const std::string name = fmt::format("{}dynamic.{}", fields.prefix(), key);
    if (!value.is_object()) fields.refuse(fmt::format("{} is {}, expected an object", name, in_quotes(value.dump())));
    const ConfigFields changes = fields.inside(value, name + ".");
    rules.add_pattern(key.starts_with("+:") ? key.substr(2) : key, true, changes);
  }
}

}  // namespace

std::unique_ptr<WeightFormat> gptq_format(PackingRules rules, GptqZeros zeros, bool ordered) {
  return std::make_unique<GptqFormat>(std::move(rules), zeros, ordered);
}

std::unique_ptr<WeightFormat> read_gptq_format(const ConfigFields& fields) {
  PackingRules rules(fields, {2, 4, 8});
  const std::string format = fields.text("format", "gptq"), layout = fields.text("checkpoint_format", format);
  if (fields.find("format") != nullptr && format != layout)
    fields.refuse(fmt::format("{0}format is {1}, {0}checkpoint_format is {2}", fields.prefix(), in_quotes(format),
                              in_quotes(layout)));
  if (fields.boolean("is_marlin_format", false))
    fields.refuse(fields.prefix() + "is_marlin_format is true, which is not supported",
                  "the checkpoint in GPTQ's layout");
  if (layout != "gptq" && layout != "gptq_v2")
    fields.refuse(fmt::format("{}checkpoint_format is {}", fields.prefix(), in_quotes(layout)),
                  "supported: gptq, gptq_v2");
  read_dynamic(fields, rules);
  return gptq_format(std::move(rules), layout == "gptq" ? GptqZeros::less_one : GptqZeros::as_they_are,
                     fields.boolean("desc_act", false));
}

}  // namespace nodewright
