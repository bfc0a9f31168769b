#include "serve/api/structured_output.h"

#include <fmt/format.h>

#include "serve/api/schema_references.h"
#include "text/grammar/byte_pattern.h"
#include "text/grammar/json_schema.h"

namespace nodewright {
namespace {

// What one of the fields asks for.
struct Structure {
  std::string field, pattern;
};

[[noreturn]] void refuse_structure(const std::string& field, const std::string& part) {
  throw bad_request(fmt::format("{} {} is not supported; a JSON schema, an expression or a choice is", field, part),
                    field);
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

std::optional<std::string> format_pattern(const RequestBody& body) {
  const std::string field = "response_format";
  const RequestJson* format = body.object(field);
  if (format == nullptr) return std::nullopt;
  const RequestJson type = format->value("type", RequestJson());
  if (type == "text") return std::nullopt;
  if (type != "json_schema") refuse_structure(field, fmt::format("of type {}", shown(type)));
  const auto wrapped = format->find("json_schema");
  if (wrapped == format->end() || !wrapped->is_object())
    throw bad_request("response_format has no object json_schema", field);
  const auto schema = wrapped->find("schema");
  if (schema == wrapped->end() || schema->is_null())
    throw bad_request("response_format has no schema in its json_schema", field);
  return schema_pattern(body, field, *schema);
}

// One kind of structure by its name in structured_outputs; nothing where it asks for nothing.
std::optional<std::string> kind_pattern(const RequestBody& body, const std::string& field, const std::string& kind,
                                        const RequestJson& value) {
  if (value.is_null() || (kind == "json_object" && value == false)) return std::nullopt;
  if (kind == "json") return schema_pattern(body, field, value);
  if (kind == "regex") return checked_expression(body, field, value);
  if (kind == "choice") return choice_pattern(field, value);
  refuse_structure(field, field.ends_with(kind) ? "as a field" : "with " + kind);
}

constexpr const char* kKinds[] = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"};

}  // namespace

std::string schema_pattern(const RequestBody& body, const std::string& field, const RequestJson& schema) {
  RequestJson parsed = schema;
  if (schema.is_string()) try {  // vLLM takes the schema as text, too
      parsed = RequestBody::parse(schema.get_ref<const std::string&>()).json();
    } catch (const ApiError& error) {
      throw bad_request(fmt::format("{} has a schema that is no JSON object: {}", field, error.what()), field);
    }
  std::string pattern;
  refusing(body, field, [&] {
    pattern = json_schema_pattern(without_references(parsed));
    parse_byte_pattern(pattern);
  });
  return pattern;
}

std::optional<std::string> structure_of(const RequestBody& body) {
  std::optional<Structure> found;
  const auto add = [&](const std::string& field, std::optional<std::string> pattern) {
    if (!pattern) return;
    if (found)
      throw bad_request(fmt::format("{} asks for a structure, and so does {}; one answer has one", field, found->field),
                        field);
    found = {field, std::move(*pattern)};
  };
  add("response_format", format_pattern(body));
  if (const RequestJson* outputs = body.object("structured_outputs"))
    for (const char* kind : kKinds)
      if (const auto value = outputs->find(kind); value != outputs->end())
        add("structured_outputs", kind_pattern(body, "structured_outputs", kind, *value));
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string field = std::string("guided_") + kind;
    if (const RequestJson* value = body.find(field)) add(field, kind_pattern(body, field, kind, *value));
  }
  if (body.has("guided_whitespace_pattern")) throw not_supported("guided_whitespace_pattern");
  return found ? std::optional(found->pattern) : std::nullopt;
}

}  // namespace nodewright
