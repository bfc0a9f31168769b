#include "serve/fields/request_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/nearest_name.h"

namespace nodewright {
namespace {

// The first name of each is the one that docs/requests.md and the code use.
const std::vector<std::vector<std::string>> kFieldNames = {{"id", "custom_id"},
                                                           {"prompt"},
                                                           {"prompt_token_ids", "prompt_ids"},
                                                           {"messages"},
                                                           {"tools"},
                                                           {"tool_choice"},
                                                           {"parallel_tool_calls"},
                                                           {"chat_template_kwargs"},
                                                           {"max_tokens", "max_completion_tokens", "max_new_tokens"},
                                                           {"n"},
                                                           {"stream"},
                                                           {"temperature"},
                                                           {"top_k"},
                                                           {"top_p"},
                                                           {"min_p"},
                                                           {"seed"},
                                                           {"stop"},
                                                           {"stop_token_ids", "stop_ids"},
                                                           {"ignore_eos"},
                                                           {"min_tokens", "min_new_tokens"},
                                                           {"regex", "guided_regex"},
                                                           {"json_schema", "guided_json"},
                                                           {"grammar", "guided_grammar"},
                                                           {"logit_bias"},
                                                           {"suppress_tokens", "bad_ids"},
                                                           {"bad_sequences"},
                                                           {"bad_words"},
                                                           {"repetition_penalty"},
                                                           {"presence_penalty"},
                                                           {"frequency_penalty"},
                                                           {"logprobs"},
                                                           {"prompt_logprobs"},
                                                           {"hidden"},
                                                           {"adapter"}};

std::string first_name_of(const std::string& written) {
  for (const std::vector<std::string>& names : kFieldNames)
    if (std::ranges::find(names, written) != names.end()) return names.front();
  std::vector<std::string> all;
  for (const std::vector<std::string>& names : kFieldNames) all.insert(all.end(), names.begin(), names.end());
  const std::string near = nearest_name(written, all);
  throw std::invalid_argument(fmt::format("the field {} is not known{}", shown(written),
                                          near.empty() ? "" : fmt::format("; did you mean {}?", near)));
}

}  // namespace

RequestFields::RequestFields(const RequestJson& line) {
  if (!line.is_object()) throw std::invalid_argument(fmt::format("it is {}, no JSON object", shown(line)));
  for (const auto& [written, value] : line.items()) {
    const std::string name = first_name_of(written);
    const auto [place, is_new] = fields_.emplace(name, Field{written, &value});
    if (!is_new)
      throw std::invalid_argument(
          fmt::format("it has both {0} and {1}, which are one field: drop {1}", place->second.written, written));
  }
}

const RequestJson* RequestFields::find(const std::string& name) const {
  const auto field = fields_.find(name);
  return field == fields_.end() || field->second.value->is_null() ? nullptr : field->second.value;
}

void refuse_all_but_one(const RequestFields& line, std::initializer_list<const char*> names, const char* why) {
  std::string first;
  for (const char* name : names) {
    if (!line.has(name)) continue;
    const std::string written = line.name_of(name);
    if (!first.empty())
      throw std::invalid_argument(
          fmt::format("it has both {0} and {1}, and {2}: drop {1}, or {0} where {1} is meant", first, written, why));
    first = written;
  }
}

std::string RequestFields::name_of(const std::string& name) const {
  const auto field = fields_.find(name);
  return field == fields_.end() ? name : field->second.written;
}

}  // namespace nodewright
