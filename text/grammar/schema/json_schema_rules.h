// A JSON schema as the rules of a context-free grammar (text/grammar/context_free.h), for schemas that no regular
// expression is equal to. Beside the subset of json_schema.h:
//
//   $ref              to any place in the schema, also recursive; additionalProperties as true or a schema
//   pattern           of strings: the whole string matches it, without escapes; the syntax is that of byte_pattern.h
//   oneOf             where no two of its schemas can hold at once; allOf of one schema
//   no type at all    any JSON; an object without properties, an array without items: any of those
//   type              a list may hold object and array
//   true, $comment, $id, deprecated, readOnly, writeOnly
//
// Everything else is refused by name and place. The text is as compact as there.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nodewright {

// Throws Error (usage) naming the place in the schema, and the keyword; also for a schema that only endless texts
// follow, and one of more than 20 000 values.
std::string json_schema_rules(const nlohmann::ordered_json& schema);

// The rules of JSON objects of any kind.
std::string json_object_rules();

// Text as it stands in a rule, in quotes.
std::string rule_literal(const std::string& text);

}  // namespace nodewright
