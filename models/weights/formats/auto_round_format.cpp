// quant_method "auto-round": the integers of GPTQ or AWQ, as packing_format says, with a list of single modules
// (auto-round, export/export_to_autoround/export.py).
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/packing_rules.h"

namespace nodewright {
namespace {

// A key is the name of a module, or a pattern where it has one of the characters that make one.
void read_extra(const ConfigFields& fields, PackingRules& rules) {
  const nlohmann::json* extra = fields.object("extra_config");
  if (extra == nullptr) return;
  for (const auto& [key, value] : extra->items()) {
    const std::string name = fmt::format("{}extra_config.{}", fields.prefix(), key);
    if (!value.is_object()) fields.refuse(fmt::format("{} is {}, expected an object", name, in_quotes(value.dump())));
    const ConfigFields changes = fields.inside(value, name + ".");
    if (key.find_first_of("*+?^$()[]{}|\\") == std::string::npos)
      rules.add_name(key, changes);
    else
      rules.add_pattern(key, false, changes);
  }
}

}  // namespace

std::unique_ptr<WeightFormat> read_auto_round_format(const ConfigFields& fields) {
  if (const std::string type = fields.text("data_type", "int"); type != "int")
    fields.refuse(fmt::format("{}data_type is {}, expected int", fields.prefix(), in_quotes(type)));
  if (fields.integer("act_bits", 16, 1, 32) < 16)
    fields.refuse(fields.prefix() + "act_bits is below 16: weights packed for quantized activations are not supported");
  const std::string packing = fields.text("packing_format", "auto_round:auto_gptq");
  const bool is_awq = packing == "auto_round:auto_awq" || packing == "auto_round:awq";
  const bool is_gptq = packing == "auto_round:auto_gptq" || packing == "auto_round:gptq";
  if (!is_awq && !is_gptq && packing != "auto_round" && packing != "auto_round:gptqmodel")
    fields.refuse(fmt::format("{}packing_format is {}", fields.prefix(), in_quotes(packing)),
                  "supported: auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq");
  PackingRules rules(fields, is_awq ? std::vector<int64_t>{4} : std::vector<int64_t>{2, 4, 8});
  read_extra(fields, rules);
  if (is_awq) return awq_format(std::move(rules));
  return gptq_format(std::move(rules), is_gptq ? GptqZeros::less_one : GptqZeros::as_they_are, false);
}

}  // namespace nodewright
