// What the whole text of an answer must follow, as a request line says it: an expression of
// text/grammar/patterns/byte_pattern.h where there is one, else the rules of a context-free grammar, which need
// xgrammar (text/grammar/context_free.h).
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serve/fields/json_fields.h"

namespace nodewright {

class RequestFields;

struct TextStructure {
  enum class Kind { expression, rules };
  Kind kind = Kind::expression;
  std::string text;
  // The schema that an expression stands for, whose rules may be followed in its place; null: there is none.
  std::shared_ptr<const RequestJson> schema = nullptr;
};

// Reads "regex", "json_schema" or "grammar"; nothing where the line has none of them. Throws std::invalid_argument or
// Error, as the functions below, naming what cannot be; also for two of them.
std::optional<TextStructure> structure_of_line(const RequestFields& line);

// JSON texts that follow the schema. The second: the rules of an expression that no automaton follows. Throws Error in
// the words of schemas where there are none, with `why` there was no automaton.
TextStructure structure_of_schema(const RequestJson& schema);
TextStructure rules_of_schema(const RequestJson& schema, const std::string& why);
// Rules of a grammar, checked.
TextStructure structure_of_rules(std::string rules);
// One of xgrammar's structural tags, {"format": {"type", ...}}, or the older {"structures", "triggers"}. Formats that
// name tokens are refused, as are XML arguments.
TextStructure structure_of_tag(const RequestJson& tag);

// How the text of a model calls functions.
struct CallShape {
  std::string prefix;     // of the whole text
  std::string open;       // before the name, which stands in quotes
  std::string arguments;  // between the name and the arguments
  std::string close;
  std::string separator;  // between two calls
  std::string suffix;
};
struct CallableFunction {
  std::string name;
  RequestJson parameters;  // a schema
};

// Texts that call at least one of the functions, or exactly one.
TextStructure structure_of_calls(const std::vector<CallableFunction>& functions, const CallShape& shape, bool only_one);

}  // namespace nodewright
