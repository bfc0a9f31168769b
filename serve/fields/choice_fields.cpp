#include "serve/fields/choice_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "base/written_number.h"
#include "kernels_src/sampling/record_choice.h"
#include "kernels_src/sampling/shape_logits.h"
#include "runtime/error.h"
#include "serve/fields/json_fields.h"
#include "serve/fields/text_structure.h"
#include "serve/tools/tool_call_text.h"
#include "text/text_stream.h"

namespace nodewright {

namespace {

void read_number(const RequestFields& line, const char* name, float& value) {
  if (const RequestJson* field = line.find(name)) value = static_cast<float>(number_of(*field, line.name_of(name)));
}

// Empty where the line does not have it. No longer than the engine can do with.
const RequestJson& list_of(const RequestFields& line, const char* name, const char* of_what) {
  static const RequestJson none = RequestJson::array();
  const RequestJson* field = line.find(name);
  if (field == nullptr) return none;
  if (!field->is_array())
    throw std::invalid_argument(
        fmt::format("{} is {}, expected a list of {}", line.name_of(name), described(*field), of_what));
  if (field->size() > static_cast<size_t>(kMostBiases))
    throw std::invalid_argument(
        fmt::format("{} holds {} {}, and a row holds {}", line.name_of(name), field->size(), of_what, kMostBiases));
  return *field;
}

// As the line calls what its text must follow.
std::string structure_field(const RequestFields& line) {
  for (const char* name : {"regex", "json_schema", "grammar"})
    if (line.has(name)) return line.name_of(name);
  return "";
}

std::vector<std::string> stop_strings(const RequestJson& value) {
  constexpr size_t kMost = 64;
  if (!value.is_string() && !value.is_array())
    throw std::invalid_argument(fmt::format("stop is {}, expected a string or a list of strings", described(value)));
  std::vector<std::string> strings;
  for (const RequestJson& one : value.is_string() ? RequestJson::array({value}) : value) {
    if (!one.is_string() || one.get<std::string>().empty())
      throw std::invalid_argument(fmt::format("stop holds {}, expected strings that are not empty", shown(one)));
    strings.push_back(one.get<std::string>());
  }
  if (strings.size() > kMost)
    throw std::invalid_argument(
        fmt::format("stop holds {} strings, and at most {} can be looked for", strings.size(), kMost));
  return strings;
}

}  // namespace

RequestChoice ChoiceReader::read(const RequestFields& line, const std::vector<int32_t>& eos,
                                 const SamplingOptions& sampling, const ChatForm& answer) {
  return begin(read_call(line, eos, sampling, answer));
}

CallChoice ChoiceReader::read_call(const RequestFields& line, const std::vector<int32_t>& eos,
                                   const SamplingOptions& sampling, const ChatForm& answer,
                                   const TextStructure* given) {
  CallChoice call{.eos = eos, .answer = answer};
  std::optional<TextStructure> structure = given != nullptr ? std::optional(*given) : structure_of_line(line);
  if (structure && answer.tools.structure)
    throw std::invalid_argument(fmt::format(
        "tool_choice asks for a structure, and so does another field, {}; an answer follows one: drop one of them",
        structure_field(line)));
  if (!structure) structure = answer.tools.structure;
  if (structure) follow(*structure, call);
  if (answer.tools.structure) tokenizer_for("tool_choice");
  ChoiceOptions& options = call.options;
  const ChoiceOptions defaults = choice_of(sampling, config_.generation);
  options.repetition_penalty = defaults.repetition_penalty;
  options.presence_penalty = defaults.presence_penalty;
  options.frequency_penalty = defaults.frequency_penalty;
  options.min_tokens = eos.empty() ? 0 : defaults.min_tokens;
  read_number(line, "repetition_penalty", options.repetition_penalty);
  read_number(line, "presence_penalty", options.presence_penalty);
  read_number(line, "frequency_penalty", options.frequency_penalty);
  read_biases(line, options);
  read_bad_sequences(line, options);
  add_defaults(defaults, options);
  const auto integer = [&](const char* name, int64_t most, auto& value) {
    if (const RequestJson* field = line.find(name))
      value = static_cast<std::remove_reference_t<decltype(value)>>(integer_of(*field, line.name_of(name), 0, most));
  };
  integer("min_tokens", UINT32_MAX, options.min_tokens);
  integer("logprobs", kMostLogprobs, options.logprobs);
  integer("prompt_logprobs", kMostLogprobs, options.prompt_logprobs);
  if (const RequestJson* stop = line.find("stop")) {
    tokenizer_for("stop");
    call.stops = std::make_shared<const StopSet>(stop_strings(*stop));
  }
  return call;
}

void ChoiceReader::follow(const TextStructure& structure, CallChoice& call) {
  if (structure.kind == TextStructure::Kind::rules) {
    call.rules = context_free(structure.text);
    return;
  }
  try {
    call.expression = grammar(structure.text);
  } catch (const Error& error) {
    if (structure.schema == nullptr) throw;
    call.rules = context_free(rules_of_schema(*structure.schema, error.parts().detail).text);
  }
}

RequestChoice ChoiceReader::begin(const CallChoice& call) const {
  RequestChoice choice{.options = call.options};
  ChoiceOptions& options = choice.options;
  if (call.rules || call.expression) {
    ChoiceOptions constrained =
        call.rules ? constrained_to(call.rules, call.eos) : constrained_to(call.expression, call.eos);
    options.allow = std::move(constrained.allow);
    options.ends = std::move(constrained.ends);
  }
  if (call.answer.tools.structure)
    options.ends =
        end_after_calls(std::move(options.ends), call.answer.tools,
                        TextStream(tokenizer_for("tool_choice"), true, TextStart::behind_prompt, call.answer.shown));
  if (call.stops) {
    choice.stops = std::make_shared<StopStrings>(tokenizer_for("stop"), call.stops, call.answer.shown);
    options.ends = [stops = choice.stops, inner = options.ends, least = options.min_tokens,
                    seen = int64_t{0}](int32_t token) mutable -> std::optional<EndReason> {
      const std::optional<EndReason> end = inner ? inner(token) : std::nullopt;
      return stops->push(token, ++seen > least) ? std::optional(EndReason::stop_string) : end;
    };
  }
  return choice;
}

void ChoiceReader::read_biases(const RequestFields& line, ChoiceOptions& options) const {
  if (const RequestJson* biases = line.find("logit_bias")) {
    if (!biases->is_object())
      throw std::invalid_argument(
          fmt::format("logit_bias is {}, expected an object of token ids and numbers", described(*biases)));
    if (biases->size() > static_cast<size_t>(kMostBiases))
      throw std::invalid_argument(
          fmt::format("logit_bias holds {} tokens, and a row holds {}", biases->size(), kMostBiases));
    for (const auto& [id, bias] : biases->items()) {
      int32_t token = 0;
      const auto [end, failure] = std::from_chars(id.data(), id.data() + id.size(), token);
      if (failure != std::errc() || end != id.data() + id.size() || !is_json_number(bias))
        throw std::invalid_argument(
            fmt::format("logit_bias of {} is {}, expected a number of a token id", shown(id), shown(bias)));
      options.biases.push_back({token, static_cast<float>(number_value(bias))});
    }
  }
  const std::string name = line.name_of("suppress_tokens");
  for (const RequestJson& id : list_of(line, "suppress_tokens", "token ids"))
    options.biases.push_back({static_cast<int32_t>(integer_of(id, "a token of " + name, 0, INT32_MAX)), -INFINITY});
}

// What the checkpoint never wants chosen, unless the line has another bias for it. A padded vocabulary may lack tokens.
void ChoiceReader::add_defaults(const ChoiceOptions& defaults, ChoiceOptions& options) const {
  for (const TokenBias& bias : defaults.biases)
    if (bias.token < config_.vocab && std::ranges::count(options.biases, bias.token, &TokenBias::token) == 0)
      options.biases.push_back(bias);
  for (const std::vector<int32_t>& word : defaults.bad_sequences)
    if (std::ranges::max(word) < config_.vocab && std::ranges::count(options.bad_sequences, word) == 0)
      options.bad_sequences.push_back(word);
}

// A word is banned where it begins a text and after a space: many tokenizers have other tokens there.
void ChoiceReader::read_bad_sequences(const RequestFields& line, ChoiceOptions& options) const {
  std::set<std::vector<int32_t>> all;
  for (const RequestJson& one : list_of(line, "bad_sequences", "lists of token ids")) {
    if (!one.is_array() || one.empty())
      throw std::invalid_argument(fmt::format("bad_sequences holds {}, expected token ids", shown(one)));
    std::vector<int32_t> ids;
    for (const RequestJson& id : one)
      ids.push_back(static_cast<int32_t>(integer_of(id, "a token of bad_sequences", 0, INT32_MAX)));
    if (all.insert(ids).second) options.bad_sequences.push_back(std::move(ids));
  }
  for (const RequestJson& one : list_of(line, "bad_words", "strings")) {
    const std::string word = one.is_string() ? one.get<std::string>() : "";
    const size_t start = word.find_first_not_of(' ');
    if (start == std::string::npos)
      throw std::invalid_argument(fmt::format("bad_words holds {}, expected strings that hold a word", shown(one)));
    for (const char* before : {"", " "}) {
      std::vector<int32_t> ids = tokenizer_for("bad_words").encode(before + word.substr(start));
      if (!ids.empty() && all.insert(ids).second) options.bad_sequences.push_back(std::move(ids));
    }
  }
}

// Under the mutex.
std::shared_ptr<const GrammarVocabulary> ChoiceReader::vocabulary() {
  if (!vocabulary_) vocabulary_ = std::make_shared<GrammarVocabulary>(tokenizer_for("a grammar"), config_.vocab);
  return vocabulary_;
}

std::shared_ptr<const ContextFreeGrammar> ChoiceReader::context_free(const std::string& rules) {
  {
    const std::lock_guard lock(mutex_);
    if (!compiler_) compiler_ = std::make_unique<ContextFreeCompiler>(vocabulary());
  }
  return compiler_->compile(rules);  // takes milliseconds, beside others
}

std::shared_ptr<SharedGrammar> ChoiceReader::grammar(const std::string& pattern) {
  std::shared_ptr<const GrammarVocabulary> words;
  {
    const std::lock_guard lock(mutex_);
    if (auto found = grammars_.find(pattern)) return found;
    words = vocabulary();
  }
  auto made = std::make_shared<SharedGrammar>(std::move(words), pattern);  // takes milliseconds, beside others
  const std::lock_guard lock(mutex_);
  if (auto found = grammars_.find(pattern)) return found;  // another thread was first
  grammars_.add(pattern, made);
  return made;
}

const Tokenizer& ChoiceReader::tokenizer_for(const char* field) const {
  if (!tokenizer_)
    throw std::invalid_argument(fmt::format("{} needs text, and the model has no tokenizer.json", field));
  return *tokenizer_;
}

// As text at once: of 4096 tokens with five likeliest each, JSON values took 15 ms to build, copy and print.
std::string logprobs_text(const std::vector<TokenLogprobs>& all) {
  std::string text = "[";
  const auto add_number = [&](float value) {
    if (std::isfinite(value))
      fmt::format_to(std::back_inserter(text), "{}", value);
    else
      text += "null";
  };
  for (const TokenLogprobs& one : all) {
    fmt::format_to(std::back_inserter(text), R"({}{{"id":{},"logprob":)", text.size() > 1 ? "," : "", one.token);
    add_number(one.logprob);
    text += R"(,"top":[)";
    for (const auto& [token, logprob] : one.top) {
      fmt::format_to(std::back_inserter(text), "{}[{},", text.back() == '[' ? "" : ",", token);
      add_number(logprob);
      text += "]";
    }
    text += "]}";
  }
  return text + "]";
}

}  // namespace nodewright
