// A line of `nodewright run`'s input as what the engine is asked for. docs/requests.md has its fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/sampling_options.h"
#include "cli/run/choice_fields.h"
#include "cli/run/json_fields.h"
#include "engine/device/step_inputs.h"
#include "engine/schedule/request.h"
#include "models/config/model_config.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright::cli {

struct LineOptions {
  std::filesystem::path model;  // its chat template
  SamplingOptions sampling;     // of requests that do not say
  int64_t max_tokens = 128;
};

// One of the n outputs of a line.
struct AskedOutput {
  Sampling sampling;
  LineChoice choice;
};

struct RequestLine {
  int64_t number = 0;  // of the line, from 1
  LineJson id;         // "id" of the line, or its number
  RequestSpec spec;
  std::vector<AskedOutput> outputs;
  bool says_n = false;  // its results have an index
  bool stream = false;
  std::string refused;  // why it cannot be served; empty where nothing speaks against it yet
};

class LineReader {
 public:
  // `config` and `tokenizer` must outlive this.
  LineReader(LineOptions options, const ModelConfig& config, const std::optional<Tokenizer>& tokenizer);

  RequestLine read(const std::string& text, int64_t number);

 private:
  void read_fields(const LineFields& fields, RequestLine& line);
  std::vector<int32_t> prompt_of(const LineFields& fields);
  std::vector<int32_t> chat_prompt(const LineFields& fields);
  SamplingOptions sampling_of_line(const LineFields& fields, int64_t number) const;

  LineOptions options_;
  uint64_t seed_;  // with the number of a line, that of a line without one
  const ModelConfig& config_;
  const std::optional<Tokenizer>& tokenizer_;
  std::optional<ChatTemplate> template_;  // read for the first line with messages
  ChoiceReader choices_;
};

}  // namespace nodewright::cli
