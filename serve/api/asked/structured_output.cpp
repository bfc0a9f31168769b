#include "serve/api/asked/structured_output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/error.h"
#include "text/grammar/context_free.h"
#include "text/grammar/literal_choices.h"
#include "text/grammar/patterns/byte_pattern.h"
#include "text/grammar/schema/json_schema_rules.h"

namespace nodewright {
namespace {

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

// Where a structure stands: a field of the body, and the path to it, as response_format.json_schema.schema.
struct StructurePlace {
  const RequestBody& body;
  std::string field, path;
};

[[noreturn]] void refuse_at(const StructurePlace& place, const std::string& message) {
  throw bad_request(message, place.field);
}

[[noreturn]] void refuse_kind(const StructurePlace& place, const RequestJson* found, const char* expected) {
  refuse_at(place, found == nullptr ? fmt::format("{} is missing, expected {}", place.path, expected)
                                    : fmt::format("{} is {}, expected {}", place.path, described(*found), expected));
}

TextStructure made_for(const StructurePlace& place, const std::function<TextStructure()>& make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {
    refuse_at(place, fmt::format("{}: {}", place.path, error.what()));
  } catch (const Error& error) {
    refuse_at(place, fmt::format("{}: {}", place.path, error.what()));
  }
}

// vLLM takes objects as text, too.
RequestJson parsed_object(const StructurePlace& place, const RequestJson& value) {
  constexpr const char* kExpected = "an object, or a string that holds its JSON";
  constexpr std::string_view kBody = "the body";
  if (!value.is_string() && !value.is_object()) refuse_kind(place, &value, kExpected);
  if (value.is_object()) return value;
  try {
    return RequestBody::parse(value.get_ref<const std::string&>()).json();
  } catch (const ApiError& error) {
    std::string why = error.message();
    if (why.starts_with(kBody)) why.replace(0, kBody.size(), "its text");
    refuse_at(place, fmt::format("{} is {}, expected {}: {}", place.path, described(value), kExpected, why));
  }
}

TextStructure schema_structure(const StructurePlace& place, const RequestJson& schema) {
  const RequestJson parsed = parsed_object(place, schema);
  return made_for(place, [&] { return structure_of_schema(parsed); });
}

TextStructure tag_structure_of(const StructurePlace& place, const RequestJson& tag) {
  const RequestJson parsed = parsed_object(place, tag);
  return made_for(place, [&] { return structure_of_tag(parsed); });
}

TextStructure checked_expression(const StructurePlace& place, const RequestJson& asked) {
  if (!asked.is_string()) refuse_kind(place, &asked, "a string");
  return made_for(place, [&] {
    parse_byte_pattern(asked.get_ref<const std::string&>());
    return expression(asked.get<std::string>());
  });
}

TextStructure choice_structure(const StructurePlace& place, const RequestJson& choices) {
  if (!choices.is_array() || choices.empty()) refuse_kind(place, &choices, "a list of at least one string");
  std::vector<std::string> texts;
  for (const RequestJson& choice : choices) {
    if (!choice.is_string() || choice.get_ref<const std::string&>().empty())
      refuse_at(place, fmt::format("{}[{}] is {}, expected a string that is not empty", place.path, texts.size(),
                                   described(choice)));
    texts.push_back(choice.get<std::string>());
  }
  return expression(literals_pattern(std::move(texts)));
}

std::optional<TextStructure> format_structure(const RequestBody& body) {
  const std::string field = "response_format";
  const auto at = [&](const char* path) { return StructurePlace{body, field, field + path}; };
  const auto member = [](const RequestJson& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() || found->is_null() ? nullptr : &*found;
  };
  const RequestJson* format = body.object(field);
  if (format == nullptr) return std::nullopt;
  const RequestJson* type = member(*format, "type");
  if (type == nullptr || !type->is_string())
    refuse_kind(at(".type"), type, "\"text\", \"json_object\", \"json_schema\" or \"structural_tag\"");
  if (*type == "text") return std::nullopt;
  if (*type == "json_object" || *type == "structural_tag")
    need_context_free(field, fmt::format("of type {}", shown(*type)));
  if (*type == "json_object") return TextStructure{TextStructure::Kind::rules, json_object_rules()};
  if (*type == "structural_tag") return tag_structure_of(at(""), *format);
  if (*type != "json_schema") refuse_structure(field, fmt::format("of type {}", shown(*type)));
  const RequestJson* wrapped = member(*format, "json_schema");
  if (wrapped == nullptr || !wrapped->is_object()) refuse_kind(at(".json_schema"), wrapped, "an object with a schema");
  const RequestJson* schema = member(*wrapped, "schema");
  if (schema == nullptr) refuse_kind(at(".json_schema.schema"), nullptr, "an object");
  return schema_structure(at(".json_schema.schema"), *schema);
}

// One kind of structure by its name in structured_outputs; nothing where it asks for nothing.
std::optional<TextStructure> kind_structure(const StructurePlace& place, const std::string& kind,
                                            const RequestJson& value) {
  if (value.is_null() || (kind == "json_object" && value == false)) return std::nullopt;
  if (kind == "json") return schema_structure(place, value);
  if (kind == "regex") return checked_expression(place, value);
  if (kind == "choice") return choice_structure(place, value);
  need_context_free(place.field, place.field == place.path ? "as a field" : "with " + kind);
  if (kind == "structural_tag") return tag_structure_of(place, value);
  if (kind == "json_object") {
    if (value != true) refuse_kind(place, &value, "true or false");
    return TextStructure{TextStructure::Kind::rules, json_object_rules()};
  }
  if (!value.is_string()) refuse_kind(place, &value, "a string");
  return made_for(place, [&] { return structure_of_rules(value.get<std::string>()); });
}

constexpr const char* kKinds[] = {"json", "regex", "choice", "grammar", "json_object", "structural_tag"};
// What vLLM's clients may say beside them, which changes nothing here.
constexpr const char* kBesideKinds[] = {"disable_fallback", "disable_any_whitespace", "disable_additional_properties"};

// A name that is not known asks for a structure that no text would have.
void refuse_unknown_kinds(const RequestJson& outputs) {
  for (const auto& [name, value] : outputs.items())
    if (!value.is_null() && !name.starts_with('_') && std::ranges::count(kKinds, name) == 0 &&
        std::ranges::count(kBesideKinds, name) == 0)
      throw bad_request(
          fmt::format("structured_outputs has {}, expected one of {}", shown(name), fmt::join(kKinds, ", ")),
          "structured_outputs");
}

}  // namespace

std::optional<FieldStructure> structure_of(const RequestBody& body) {
  std::optional<FieldStructure> found;
  const auto add = [&](const std::string& field, std::optional<TextStructure> structure) {
    if (!structure) return;
    if (found)
      throw bad_request(fmt::format("{0} asks for a structure, and so does {1}; one answer has one: drop {0} or {1}",
                                    field, found->field),
                        field.substr(0, field.find('.')));
    found = {field, std::move(*structure)};
  };
  add("response_format", format_structure(body));
  if (const RequestJson* outputs = body.object("structured_outputs")) {
    refuse_unknown_kinds(*outputs);
    for (const char* kind : kKinds)
      if (const auto value = outputs->find(kind); value != outputs->end()) {
        const std::string path = std::string("structured_outputs.") + kind;
        add(path, kind_structure({body, "structured_outputs", path}, kind, *value));
      }
  }
  for (const char* kind : {"json", "regex", "choice", "grammar"}) {
    const std::string field = std::string("guided_") + kind;
    if (const RequestJson* value = body.find(field)) add(field, kind_structure({body, field, field}, kind, *value));
  }
  if (body.has("guided_whitespace_pattern")) throw not_supported("guided_whitespace_pattern");
  return found;
}

}  // namespace nodewright
