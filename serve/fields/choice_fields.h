// The fields of a request line that ask for more than temperature, min-p, top-k and top-p: penalties, logit_bias,
// suppress_tokens, bad_sequences, bad_words, min_tokens, logprobs, prompt_logprobs, stop, regex, json_schema, grammar.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/sampling/choice_options.h"
#include "engine/sampling/grammar_choice.h"
#include "engine/sampling/sampling_options.h"
#include "models/config/model_config.h"
#include "serve/fields/grammar_cache.h"
#include "serve/fields/request_fields.h"
#include "serve/fields/text_structure.h"
#include "serve/tools/answer_parts.h"
#include "text/stop_strings.h"

namespace nodewright {

struct RequestChoice {
  ChoiceOptions options;
  std::shared_ptr<StopStrings> stops;  // null: the line has none. Filled as tokens come
};

// What all outputs of a call share, read once.
struct CallChoice {
  ChoiceOptions options;                            // without the state of a single output
  std::shared_ptr<SharedGrammar> expression;        // null: none
  std::shared_ptr<const ContextFreeGrammar> rules;  // null: none
  std::shared_ptr<const StopSet> stops;             // null: none
  std::vector<int32_t> eos;
  ChatForm answer;
};

// Thread-safe.
class ChoiceReader {
 public:
  ChoiceReader(const ModelConfig& config, const std::optional<Tokenizer>& tokenizer)
      : config_(config), tokenizer_(tokenizer) {}

  // Throws std::invalid_argument or Error naming the field that cannot be. `eos`: what ends the text of a grammar.
  // `sampling`: of the same line; where the line is silent it speaks, and then the checkpoint. `answer`: of a
  // conversation: what its tools force, and special tokens that its text shows.
  // `structure`: what the text must follow, in place of the line's fields that say so; null: those.
  CallChoice read_call(const RequestFields& line, const std::vector<int32_t>& eos, const SamplingOptions& sampling,
                       const ChatForm& answer = {}, const TextStructure* structure = nullptr);
  // The choice of one more output of the call.
  RequestChoice begin(const CallChoice& call) const;
  // Both, for a line with one output.
  RequestChoice read(const RequestFields& line, const std::vector<int32_t>& eos, const SamplingOptions& sampling,
                     const ChatForm& answer = {});

 private:
  std::shared_ptr<const GrammarVocabulary> vocabulary();
  std::shared_ptr<SharedGrammar> grammar(const std::string& pattern);
  void follow(const TextStructure& structure, CallChoice& call);
  std::shared_ptr<const ContextFreeGrammar> context_free(const std::string& rules);
  void read_biases(const RequestFields& line, ChoiceOptions& options) const;
  void read_bad_sequences(const RequestFields& line, ChoiceOptions& options) const;
  void add_defaults(const ChoiceOptions& defaults, ChoiceOptions& options) const;
  const Tokenizer& tokenizer_for(const char* field) const;

  const ModelConfig& config_;
  const std::optional<Tokenizer>& tokenizer_;
  std::mutex mutex_;                                     // of the members below
  std::shared_ptr<const GrammarVocabulary> vocabulary_;  // made for the first grammar
  GrammarCache grammars_;
  std::unique_ptr<ContextFreeCompiler> compiler_;  // made for the first rules
};

// "logprobs", and "prompt_logprobs", of a line's result, as JSON.
std::string logprobs_text(const std::vector<TokenLogprobs>& all);

}  // namespace nodewright
