// The model behind the API, and the names that clients call it by.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "models/config/model_config.h"
#include "serve/api/asked/request_body.h"
#include "serve/fields/request_reader.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// Immutable; `config` and `tokenizer` must outlive whatever has one.
struct ServedModel {
  const ModelConfig& config;
  const std::optional<Tokenizer>& tokenizer;
  std::filesystem::path folder;
  std::vector<std::string> names;  // the first is that of answers; empty: the last name of `folder`
  int64_t max_model_len = 0;       // tokens of prompt and outputs
  RequestDefaults defaults;        // max_tokens counts for nothing: both endpoints have their own
  int64_t created = 0;             // seconds since 1970
};

// `model` with a name. Throws Error where there is none to be had.
ServedModel named(ServedModel model);

// Throws ApiError 404 where the body's "model" is none of the names; none says the first.
void check_model(const ServedModel& model, const RequestBody& body);

// The answer of /v1/models.
std::string model_list(const ServedModel& model);

// The answer of /tokenizer_info: tokenizer_config.json, with the chat template. Throws ApiError 404 where the model has
// no tokenizer.
std::string tokenizer_info(const ServedModel& model);

}  // namespace nodewright
