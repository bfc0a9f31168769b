// The fields of a request line that ask for more than temperature, min-p, top-k and top-p: penalties, logit_bias,
// suppress_tokens, bad_sequences, bad_words, min_tokens, logprobs, prompt_logprobs, stop, regex, json_schema.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/options/sampling_options.h"
#include "cli/run/line_fields.h"
#include "engine/sampling/choice_options.h"
#include "engine/sampling/grammar_choice.h"
#include "models/config/model_config.h"
#include "text/stop_strings.h"

namespace nodewright::cli {

struct LineChoice {
  ChoiceOptions options;
  std::shared_ptr<StopStrings> stops;  // null: the line has none. Filled as tokens come
};

class ChoiceReader {
 public:
  ChoiceReader(const ModelConfig& config, const std::optional<Tokenizer>& tokenizer)
      : config_(config), tokenizer_(tokenizer) {}

  // Throws std::invalid_argument or Error naming the field that cannot be. `eos`: what ends the text of a grammar.
  // `sampling`: of the same line; where the line is silent it speaks, and then the checkpoint.
  LineChoice read(const LineFields& line, const std::vector<int32_t>& eos, const SamplingOptions& sampling);

 private:
  std::shared_ptr<Grammar> grammar(const std::string& pattern);
  void read_biases(const LineFields& line, ChoiceOptions& options) const;
  void read_bad_sequences(const LineFields& line, ChoiceOptions& options) const;
  void add_defaults(const ChoiceOptions& defaults, ChoiceOptions& options) const;
  const Tokenizer& tokenizer_for(const char* field) const;

  const ModelConfig& config_;
  const std::optional<Tokenizer>& tokenizer_;
  std::shared_ptr<const GrammarVocabulary> vocabulary_;       // made for the first grammar
  std::map<std::string, std::shared_ptr<Grammar>> grammars_;  // by pattern
};

// "logprobs", and "prompt_logprobs", of a line's result, as JSON.
std::string logprobs_text(const std::vector<TokenLogprobs>& all);

}  // namespace nodewright::cli
