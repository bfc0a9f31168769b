// quant_method "gptq": integers packed along the inputs. Version 1 stores words of zeros less one in each; which input
// belongs to which group stands in g_idx (GPTQModel, nn_modules/qlinear and utils/model.py).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/packing_rules.h"

namespace nodewright {
namespace {

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
