// A line of `nodewright run`'s input as what the engine is asked for. docs/requests.md has its fields.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "serve/fields/request_reader.h"

namespace nodewright::cli {

struct RequestLine : AskedRequest {
  int64_t number = 0;   // of the line, from 1
  RequestJson id;       // "id" of the line, or its number
  std::string refused;  // why it cannot be served; empty where nothing speaks against it yet
};

class LineReader {
 public:
  // `config` and `tokenizer` must outlive this.
  LineReader(RequestDefaults defaults, const ModelConfig& config, const std::optional<Tokenizer>& tokenizer)
      : requests_(std::make_unique<RequestReader>(std::move(defaults), config, tokenizer)) {}

  RequestLine read(const std::string& text, int64_t number);

 private:
  std::unique_ptr<RequestReader> requests_;
};

}  // namespace nodewright::cli
