// The architectures that models/config/model_config.h reads, by the name that config.json gives them. A new one is a
// function in families/ and a line in architectures.cpp.
#pragma once

#include <span>
#include <string_view>

#include "models/config/config_fields.h"
#include "models/config/model_config.h"

namespace nodewright {

struct Architecture {
  std::string_view name;  // "LlamaForCausalLM"
  // `c` comes with Llama's tensor names (families/families.h).
  void (*read)(const ConfigFields& config, ModelConfig& c);
};
std::span<const Architecture> architectures();

}  // namespace nodewright
