// POST /v1/load_lora_adapter and /v1/unload_lora_adapter as vLLM has them: what they ask for, and their answers.
// docs/adapters.md. No socket, no engine.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "serve/api/api_error.h"
#include "serve/api/served_model.h"

namespace nodewright {

struct AskedAdapter {
  std::string name;
  std::filesystem::path folder;
};

// Parse {"lora_name", "lora_path"} and {"lora_name"}; other fields are ignored. Throw ApiError 400 for what is
// missing, where the name is a model's or is loaded already, 404 where there is no such folder, or no adapter of that
// name.
AskedAdapter asked_load(const ServedModel& model, std::string_view body);
std::string asked_unload(const ServedModel& model, std::string_view body);

// The text of what is done.
std::string loaded_text(const std::string& name);
std::string unloaded_text(const std::string& name);

}  // namespace nodewright
