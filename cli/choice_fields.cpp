#include "cli/choice_fields.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>

#include "cli/json_numbers.h"
#include "engine/json_schema.h"
#include "kernels_src/record_choice.h"

namespace nodewright::cli {

const std::vector<std::string> kChoiceFields = {
    "min_p",         "repetition_penalty", "presence_penalty", "frequency_penalty", "logit_bias",      "bad_ids",
    "bad_sequences", "bad_words",          "min_tokens",       "logprobs",          "prompt_logprobs", "stop",
    "regex",         "json_schema"};

namespace {

using LineJson = nlohmann::ordered_json;

void read_number(const LineJson& line, const char* name, float& value) {
  if (!line.contains(name)) return;
  if (!line[name].is_number()) throw std::invalid_argument(fmt::format("{} is {}, no number", name, line[name].dump()));
  value = line[name].get<float>();
}

// Empty where the line does not have it.
LineJson list_of(const LineJson& line, const char* name, const char* of_what) {
  if (!line.contains(name)) return LineJson::array();
  if (!line[name].is_array()) throw std::invalid_argument(fmt::format("{} is no list of {}", name, of_what));
  return line[name];
}

std::vector<std::string> stop_strings(const LineJson& value) {
  std::vector<std::string> strings;
  for (const LineJson& one : value.is_string() ? LineJson::array({value}) : value) {
    if (!value.is_string() && !value.is_array()) break;
    if (!one.is_string() || one.get<std::string>().empty())
      throw std::invalid_argument(fmt::format("stop holds {}, expected strings that are not empty", one.dump()));
    strings.push_back(one.get<std::string>());
  }
  if (!value.is_string() && !value.is_array()) throw std::invalid_argument("stop is no string and no list of strings");
  if (strings.size() > 64) throw std::invalid_argument("stop holds more than 64 strings");
  return strings;
}

}  // namespace

LineChoice ChoiceReader::read(const LineJson& line, const std::vector<int32_t>& eos) {
  LineChoice choice;
  if (line.contains("regex") && line.contains("json_schema"))
    throw std::invalid_argument("it has both regex and json_schema");
  if (line.contains("regex")) {
    if (!line["regex"].is_string()) throw std::invalid_argument("regex is no string");
    choice.options = constrained_to(grammar(line["regex"].get<std::string>()), eos);
  }
  if (line.contains("json_schema"))
    choice.options = constrained_to(grammar(json_schema_pattern(line["json_schema"])), eos);
  ChoiceOptions& options = choice.options;
  read_number(line, "min_p", options.min_p);
  read_number(line, "repetition_penalty", options.repetition_penalty);
  read_number(line, "presence_penalty", options.presence_penalty);
  read_number(line, "frequency_penalty", options.frequency_penalty);
  read_biases(line, options);
  read_bad_sequences(line, options);
  if (line.contains("min_tokens")) options.min_tokens = integer(line["min_tokens"], "min_tokens", 0, UINT32_MAX);
  if (line.contains("logprobs"))
    options.logprobs = static_cast<int>(integer(line["logprobs"], "logprobs", 0, kMostLogprobs));
  if (line.contains("prompt_logprobs"))
    options.prompt_logprobs = static_cast<int>(integer(line["prompt_logprobs"], "prompt_logprobs", 0, kMostLogprobs));
  if (line.contains("stop")) {
    choice.stops = std::make_shared<StopStrings>(tokenizer_for("stop"), stop_strings(line["stop"]));
    options.ends = [stops = choice.stops, inner = options.ends, least = options.min_tokens,
                    seen = int64_t{0}](int32_t token) mutable -> std::optional<EndReason> {
      const std::optional<EndReason> end = inner ? inner(token) : std::nullopt;
      return stops->push(token, ++seen >= least) ? std::optional(EndReason::stop_string) : end;
    };
  }
  return choice;
}

void ChoiceReader::read_biases(const LineJson& line, ChoiceOptions& options) const {
  if (line.contains("logit_bias")) {
    if (!line["logit_bias"].is_object()) throw std::invalid_argument("logit_bias is no object of token ids");
    for (const auto& [id, bias] : line["logit_bias"].items()) {
      int32_t token = 0;
      const auto [end, failure] = std::from_chars(id.data(), id.data() + id.size(), token);
      if (failure != std::errc() || end != id.data() + id.size() || !bias.is_number())
        throw std::invalid_argument(
            fmt::format("logit_bias of {} is {}, expected a number of a token id", id, bias.dump()));
      options.biases.push_back({token, bias.get<float>()});
    }
  }
  for (const LineJson& id : list_of(line, "bad_ids", "token ids"))
    options.biases.push_back({static_cast<int32_t>(integer(id, "bad_ids", 0, INT32_MAX)), -INFINITY});
}

// A word is banned where it begins a text and behind a space: many tokenizers have other tokens there.
void ChoiceReader::read_bad_sequences(const LineJson& line, ChoiceOptions& options) const {
  std::set<std::vector<int32_t>> all;
  for (const LineJson& one : list_of(line, "bad_sequences", "lists of token ids")) {
    if (!one.is_array() || one.empty())
      throw std::invalid_argument(fmt::format("bad_sequences holds {}, expected token ids", one.dump()));
    std::vector<int32_t>& ids = options.bad_sequences.emplace_back();
    for (const LineJson& id : one) ids.push_back(static_cast<int32_t>(integer(id, "bad_sequences", 0, INT32_MAX)));
    if (!all.insert(ids).second) options.bad_sequences.pop_back();
  }
  for (const LineJson& one : list_of(line, "bad_words", "strings")) {
    const std::string word = one.is_string() ? one.get<std::string>() : "";
    const size_t start = word.find_first_not_of(' ');
    if (start == std::string::npos)
      throw std::invalid_argument(fmt::format("bad_words holds {}, expected strings that hold a word", one.dump()));
    for (const char* before : {"", " "}) {
      std::vector<int32_t> ids = tokenizer_for("bad_words").encode(before + word.substr(start));
      if (!ids.empty() && all.insert(ids).second) options.bad_sequences.push_back(std::move(ids));
    }
  }
}

std::shared_ptr<Grammar> ChoiceReader::grammar(const std::string& pattern) {
  if (!vocabulary_) vocabulary_ = std::make_shared<GrammarVocabulary>(tokenizer_for("a grammar"), config_.vocab);
  std::shared_ptr<Grammar>& made = grammars_[pattern];
  if (!made) made = std::make_shared<Grammar>(vocabulary_, pattern);
  return made;
}

const Tokenizer& ChoiceReader::tokenizer_for(const char* field) const {
  if (!tokenizer_)
    throw std::invalid_argument(fmt::format("{} needs text, and the model has no tokenizer.json", field));
  return *tokenizer_;
}

LineJson logprobs_json(const std::vector<TokenLogprobs>& all) {
  LineJson list = LineJson::array();
  for (const TokenLogprobs& one : all) {
    LineJson top = LineJson::array();
    for (const auto& [token, logprob] : one.top) top.push_back(LineJson::array({token, logprob}));
    list.push_back({{"id", one.token}, {"logprob", one.logprob}, {"top", std::move(top)}});
  }
  return list;
}

}  // namespace nodewright::cli
