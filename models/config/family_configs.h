// The architectures that models/config/model_config.h reads, by the name that config.json gives them. A new family is a
// function and a line in family_configs.cpp, beside its tensor names and its network.
#pragma once

#include <span>
#include <string_view>

#include "models/config/config_fields.h"
#include "models/config/model_config.h"

namespace nodewright {

struct Architecture {
  std::string_view name;  // "LlamaForCausalLM"
  // Fills all but architecture, dtype and what generation_config.json says. Throws Error for keys that are not
  // supported.
  void (*read)(const ConfigFields& config, ModelConfig& c);
};
std::span<const Architecture> architectures();

}  // namespace nodewright
