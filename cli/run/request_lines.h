// A line of `nodewright run`'s input as what the engine is asked for. docs/requests.md has its fields.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "cli/run/batch_lines.h"
#include "serve/fields/request_reader.h"

namespace nodewright::cli {

struct RequestLine : AskedRequest {
  int64_t number = 0;                     // of the line, from 1
  RequestJson id;                         // "id" of the line, or its number
  std::string refused;                    // why it cannot be served; empty where nothing speaks against it yet
  std::shared_ptr<BatchCall> batch = {};  // of a line in the form of a batch file, which has no request of its own
};

class LineReader {
 public:
  // `config` and `tokenizer` must outlive this. `make_api`: for the first line of a batch file.
  LineReader(RequestDefaults defaults, const ModelConfig& config, const std::optional<Tokenizer>& tokenizer,
             std::function<std::unique_ptr<OpenAiApi>()> make_api)
      : requests_(std::make_unique<RequestReader>(std::move(defaults), config, tokenizer)),
        make_api_(std::move(make_api)) {}

  RequestLine read(const std::string& text, int64_t number);

 private:
  void read_as_batch(const RequestJson& json, RequestLine& line);

  std::unique_ptr<RequestReader> requests_;
  std::function<std::unique_ptr<OpenAiApi>()> make_api_;
  std::unique_ptr<BatchReader> batches_;  // since the first line of a batch file
};

}  // namespace nodewright::cli
