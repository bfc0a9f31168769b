// The model behind the API, and the names that clients call it by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/config/model_config.h"
#include "serve/api/asked/request_body.h"
#include "serve/api/served_adapters.h"
#include "serve/fields/request_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// Immutable but for its adapters; `config` and `tokenizer` must outlive whatever has one.
struct ServedModel {
  const ModelConfig& config;
  const std::optional<Tokenizer>& tokenizer;
  std::filesystem::path folder;
  std::vector<std::string> names;  // the first is that of answers; empty: the last name of `folder`
  int64_t max_model_len = 0;       // tokens of prompt and outputs
  RequestDefaults defaults;        // max_tokens counts for nothing: both endpoints have their own
  int64_t created = 0;             // seconds since 1970
  std::shared_ptr<ServedAdapters> adapters = std::make_shared<ServedAdapters>();
};

// `model` with a name. Throws Error where there is none to be had.
ServedModel named(ServedModel model);

// Throws ApiError 404 where the body's "model" is none of the names and no adapter's; none says the first.
void check_model(const ServedModel& model, const RequestBody& body);

// 404: `field` asks for an adapter that there is not.
ApiError no_such_adapter(const std::string& name, const std::string& field);

// The adapter that the body asks for by "model", "lora_path" (SGLang's word) or "adapter"; empty: none. Throws ApiError
// 404 where there is no such adapter, and 400 where two of them differ.
std::string asked_adapter(const ServedModel& model, const RequestBody& body);

// The answer of /v1/models, and its entry for one model or adapter. Throws ApiError 404 where there is none of this
// name.
std::string model_list(const ServedModel& model);
std::string model_entry(const ServedModel& model, std::string_view name);

// The answer of /tokenizer_info: tokenizer_config.json, with the chat template. Throws ApiError 404 where the model has
// no tokenizer.
std::string tokenizer_info(const ServedModel& model);

}  // namespace nodewright
