// quant_method "awq", version "gemm": int4 packed along the outputs, in an order of its own (AutoAWQ,
// awq/modules/linear/gemm.py and awq/utils/packing_utils.py).
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "base/json_file.h"
#include "models/config/config_fields.h"
#include "models/weights/formats/packing_rules.h"

namespace nodewright {

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
