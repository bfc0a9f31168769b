#include "serve/api/asked/structured_output.h"

#include <fmt/format.h>

#include "text/grammar/byte_pattern.h"
#include "text/grammar/context_free.h"
#include "text/grammar/json_schema_rules.h"

namespace nodewright {
namespace {

// What one of the fields asks for.
struct FieldStructure {
  std::string field;
  TextStructure structure;
};

TextStructure expression(std::string pattern) { return {TextStructure::Kind::expression, std::move(pattern)}; }

[[noreturn]] void refuse_structure(const std::string& field, const std::string& part) {
  throw bad_request(fmt::format("{} {} is not supported", field, part), field);
}

void need_context_free(const std::string& field, const std::string& part) {
  if (!has_context_free_grammars())
    throw bad_request(
        fmt::format("{} {} is not supported: this build has no xgrammar; a JSON schema, an expression or a "
                    "choice is",
                    field, part),
        field);
}

TextStructure made_for(const RequestBody& body, const std::string& field, const std::function<TextStructure()>& make) {
  TextStructure made;
  refusing(body, field, [&] { made = make(); });
  return made;
}

// vLLM takes objects as text, too.
RequestJson parsed_object(const std::string& field, const char* what, const RequestJson& value) {
  if (!value.is_string()) return value;
  try {
    return RequestBody::parse(value.get_ref<const std::string&>()).json();
  } catch (const ApiError& error) {
    throw bad_request(fmt::format("{} has a {} that is no JSON object: {}", field, what, error.what()), field);
  }
}

TextStructure schema_structure(const RequestBody& body, const std::string& field, const RequestJson& schema) {
  const RequestJson parsed = parsed_object(field, "schema", schema);
  return made_for(body, field, [&] { return structure_of_schema(parsed); });
}

TextStructure tag_structure_of(const RequestBody& body, const std::string& field, const RequestJson& tag) {
  const RequestJson parsed = parsed_object(field, "structural tag", tag);
  return made_for(body, field, [&] { return structure_of_tag(parsed); });
}

std::string checked_expression(const RequestBody& body, const std::string& field, const RequestJson& expression) {
  if (!expression.is_string())
    throw bad_request(fmt::format("{} has the expression {}, expected a string", field, shown(expression)), field);
  refusing(body, field, [&] { parse_byte_pattern(expression.get_ref<const std::string&>()); });
  return expression.get<std::string>();
}

std::string choice_pattern(const std::string& field, const RequestJson& choices) {
  if (!choices.is_array() || choices.empty())
    throw bad_request(fmt::format("{} has the choice {}, expected a list of strings", field, shown(choices)), field);
  std::string pattern;
  for (const RequestJson& choice : choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      throw bad_request(fmt::format("{} has the choice {}, expected a string that is not empty", field, shown(choice)),
                        field);
    pattern += (pattern.empty() ? "(" : "|") + literal_pattern(choice.get_ref<const std::string&>());
  }
  return pattern + ")";
}

std::optional<TextStructure> format_structure(const RequestBody& body) {
  const std::string field = "response_format";
  const RequestJson* format = body.object(field);
  if (format == nullptr) return std::nullopt;
  const RequestJson type = format->value("type", RequestJson());
  if (type == "text") return std::nullopt;
  if (type == "json_object" || type == "structural_tag")
    need_context_free(field, fmt::format("of type {}", shown(type)));
  if (type == "json_object") return TextStructure{TextStructure::Kind::rules, json_object_rules()};
  if (type == "structural_tag") return tag_structure_of(body, field, *format);
  if (type != "json_schema") refuse_structure(field, fmt::format("of type {}", shown(type)));
  const auto wrapped = format->find("json_schema");
  if (wrapped == format->end() || !wrapped->is_object())
    throw bad_request("response_format has no object json_schema", field);
  const auto schema = wrapped->find("schema");
  if (schema == wrapped->end() || schema->is_null())
    throw bad_request("response_format has no schema in its json_schema", field);
  return schema_structure(body, field, *schema);
}

// One kind of structure by its name in structured_outputs; nothing where it asks for nothing.
std::optional<TextStructure> kind_structure(const RequestBody& body, const std::string& field, const std::string& kind,
                                            const RequestJson& value) {
  if (value.is_null() || (kind == "json_object" && value == false)) return std::nullopt;
  if (kind == "json") return schema_structure(body, field, value);
  if (kind == "regex") return expression(checked_expression(body, field, value));
  if (kind == "choice") return expression(choice_pattern(field, value));
  need_context_free(field, field.ends_with(kind) ? "as a field" : "with " + kind);
  if (kind == "structural_tag") return tag_structure_of(body, field, value);
  if (kind == "json_object") {
    if (value != true) refuse_structure(field, fmt::format("with json_object {}", shown(value)));
    return TextStructure{TextStructure::Kind::rules, json_object_rules()};
  }
  if (!value.is_string())
    throw bad_request(fmt::format("{} has the grammar {}, expected a string", field, shown(value)), field);
  return made_for(body, field, [&] { return structure_of_rules(value.get<std::string>()); });
}

constexpr const char* kKinds[] = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"};

}  // namespace

std::optional<TextStructure> structure_of(const RequestBody& body) {
  std::optional<FieldStructure> found;
  const auto add = [&](const std::string& field, std::optional<TextStructure> structure) {
    if (!structure) return;
    if (found)
      throw bad_request(fmt::format("{} asks for a structure, and so does {}; one answer has one", field, found->field),
                        field);
    found = {field, std::move(*structure)};
  };
  add("response_format", format_structure(body));
  if (const RequestJson* outputs = body.object("structured_outputs"))
    for (const char* kind : kKinds)
      if (const auto value = outputs->find(kind); value != outputs->end())
        add("structured_outputs", kind_structure(body, "structured_outputs", kind, *value));
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string field = std::string("guided_") + kind;
    if (const RequestJson* value = body.find(field)) add(field, kind_structure(body, field, kind, *value));
  }
  if (body.has("guided_whitespace_pattern")) throw not_supported("guided_whitespace_pattern");
  return found ? std::optional(std::move(found->structure)) : std::nullopt;
}

}  // namespace nodewright
