#include "serve/adapter_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/file_to_read.h"

namespace nodewright {
namespace {

std::string text_field(const RequestBody& body, const char* name) { return body.string(name).value_or(""); }

}  // namespace

// The words of vLLM's answers (vllm/entrypoints/openai/models/serving.py).
AskedAdapter asked_load(const ServedModel& model, std::string_view text) {
  const RequestBody body = RequestBody::parse(text);
  AskedAdapter asked{text_field(body, "lora_name"), text_field(body, "lora_path")};
  if (asked.name.empty() || asked.folder.empty())
    throw bad_request("Both 'lora_name' and 'lora_path' must be provided.",
                      asked.name.empty() ? "lora_name" : "lora_path");
  if (model.adapters->has(asked.name))
    throw bad_request(fmt::format("The lora adapter '{}' has already been loaded.", asked.name), "lora_name");
  if (std::ranges::count(model.names, asked.name) > 0)
    throw bad_request(fmt::format("'{}' is the name of the model itself.", asked.name), "lora_name");
  if (!is_present(asked.folder / "adapter_config.json"))
    throw ApiError(404, fmt::format("No adapter found for {}: it has no adapter_config.json", asked.folder.string()),
                   "lora_path");
  return asked;
}

std::string asked_unload(const ServedModel& model, std::string_view text) {
  const RequestBody body = RequestBody::parse(text);
  std::string name = text_field(body, "lora_name");
  if (name.empty()) throw bad_request("'lora_name' needs to be provided to unload a LoRA adapter.", "lora_name");
  if (!model.adapters->has(name))
    throw ApiError(404, fmt::format("The lora adapter '{}' cannot be found.", name), "lora_name");
  return name;
}

std::string loaded_text(const std::string& name) {
  return fmt::format("Success: LoRA adapter '{}' added successfully.", name);
}
std::string unloaded_text(const std::string& name) {
  return fmt::format("Success: LoRA adapter '{}' removed successfully.", name);
}

}  // namespace nodewright
