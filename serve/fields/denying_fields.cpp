#include "serve/fields/denying_fields.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace nodewright {

std::vector<std::string> denying_fields(const RequestFields& line, const std::string& structure) {
  std::vector<std::string> fields;
  if (!structure.empty()) fields.push_back(structure);
  const auto add = [&](const char* name) { fields.push_back(line.name_of(name)); };
  for (const char* name : {"regex", "json_schema", "grammar"})
    if (line.has(name)) add(name);
  // Without them the end of the text is not all that may follow it.
  if (const RequestJson* ignores = line.find("ignore_eos"); ignores != nullptr && *ignores == true && !fields.empty())
    add("ignore_eos");
  for (const char* name : {"logit_bias", "suppress_tokens", "bad_sequences", "bad_words"})
    if (const RequestJson* value = line.find(name); value != nullptr && !value->empty()) add(name);
  if (const RequestJson* least = line.find("min_tokens"); least != nullptr && *least != 0) add("min_tokens");
  return fields;
}

std::string asked_in_vain(const std::vector<std::string>& fields, const std::string& why) {
  if (fields.empty()) return why;
  std::string all = fields.front();
  for (size_t i = 1; i < fields.size(); ++i) all += (i + 1 == fields.size() ? " and " : ", ") + fields[i];
  return fmt::format("what {} {} for cannot be done: {}", all, fields.size() == 1 ? "asks" : "ask", why);
}

}  // namespace nodewright
