#include "text/grammar/schema/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/written_number.h"
#include "text/grammar/literal_choices.h"
#include "text/grammar/patterns/byte_pattern.h"
#include "text/grammar/patterns/string_formats.h"
#include "text/grammar/schema/number_ranges.h"
#include "text/grammar/schema/schema_place.h"

namespace nodewright {
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr int kDeepestSchema = 32;
constexpr int64_t kMostSchemaItems = 5000;
constexpr size_t kMostSchemaBytes = 1 << 20;  // of the expression

// RFC 8259. A \u escape of a surrogate, which must not stand alone, is left out; the character itself may be written.
constexpr std::string_view kCharacter =
    R"((?:[^"\\\x00-\x1f\x7f]|\\["\\/bfnrt]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))";

class SchemaReader {
 public:
  std::string pattern(const SchemaJson& schema, const std::string& place, int depth) {
    if (depth > kDeepestSchema) refuse(place, fmt::format("it is nested deeper than {}", kDeepestSchema));
    if (!schema.is_object()) refuse(place, fmt::format("it is {}, expected an object", json_kind(schema)));
    std::string result = one_of(schema, place, depth);
    check_size(result.size(), place);
    spend_on_schema(place, result.size());
    return result;
  }

  static std::string scalar(const SchemaJson& schema, const SchemaJson& type, const std::string& place) {
    if (type == "string") return string(schema, place);
    if (type == "integer") return integer(schema, place);
    if (type == "number") return number(schema, place);
    if (type == "boolean") return "(?:true|false)";
    if (type == "null") return "null";
    refuse(place, fmt::format("type {} is not known", json_text(type)));
  }

 private:
  [[noreturn]] static void refuse(const std::string& place, const std::string& what) { refuse_schema(place, what); }

  // Looked at while an expression grows: its parts may be as long each.
  static void check_size(size_t bytes, const std::string& place) {
    if (bytes > kMostSchemaBytes) refuse(place, fmt::format("its expression has more than {} bytes", kMostSchemaBytes));
  }

  static void allow_keys(const SchemaJson& schema, const std::string& place, const std::set<std::string>& known) {
    for (const auto& [key, value] : schema.items())
      if (!known.contains(key) && !silent_schema_keys().contains(key))
        refuse(place, fmt::format("'{}' is not supported here", key));
  }

  std::string one_of(const SchemaJson& schema, const std::string& place, int depth) {
    if (schema.contains("const") || schema.contains("enum")) {
      allow_keys(schema, place, {"const", "enum", "type"});
      std::vector<std::string> texts;
      for (const SchemaJson& value : schema_constants(schema, place)) texts.push_back(json_text(value));
      return literals_pattern(std::move(texts));
    }
    for (const char* const key : {"anyOf", "oneOf", "allOf"}) {
      if (!schema.contains(key)) continue;
      allow_keys(
          schema, place,
          std::string_view(key) == "oneOf" ? std::set<std::string>{key, "discriminator"} : std::set<std::string>{key});
      check_choice(schema[key], key, place);
      return choice(schema[key], place + "/" + key,
                    [&](const SchemaJson& one, const std::string& where) { return pattern(one, where, depth + 1); });
    }
    if (!schema.contains("type")) refuse(place, "it has no type, enum, const or anyOf");
    const SchemaJson& type = schema["type"];
    if (!type.is_array()) return of_type(schema, type, place, depth);
    for (const SchemaJson& one : type)
      if (one == "object" || one == "array") refuse(place, "a list of types holds object or array; use anyOf");
    return choice(type, place + "/type",
                  [&](const SchemaJson& one, const std::string&) { return of_type(schema, one, place, depth); });
  }

  // oneOf and allOf where they mean what anyOf means.
  static void check_choice(const SchemaJson& options, std::string_view key, const std::string& place) {
    constexpr size_t kMostOneOf = 64;  // every two are compared
    if (!options.is_array() || key == "anyOf") return;
    if (key == "allOf" && options.size() > 1) refuse(place, "'allOf' of more than one schema is not supported");
    if (key == "oneOf" && (options.size() > kMostOneOf || !are_disjoint(SchemaJson::object(), options)))
      refuse(place,
             "'oneOf' is supported where its schemas are seen to exclude each other, by type or by a constant that "
             "each requires; use anyOf");
  }

  static std::string choice(const SchemaJson& list, const std::string& place,
                            const std::function<std::string(const SchemaJson&, const std::string&)>& make) {
    if (!list.is_array() || list.empty())
      refuse(place,
             fmt::format("it is {}, expected a list of at least one", list.is_array() ? "empty" : json_kind(list)));
    std::string all = "(?:";
    for (size_t i = 0; i < list.size(); ++i) {
      all += (i == 0 ? "" : "|") + make(list[i], fmt::format("{}/{}", place, i));
      check_size(all.size(), place);
    }
    return list.size() == 1 ? all.substr(3) : all + ")";
  }

  std::string of_type(const SchemaJson& schema, const SchemaJson& type, const std::string& place, int depth) {
    if (type == "object") return object(schema, place, depth);
    if (type == "array") return array(schema, place, depth);
    std::set<std::string> known = keys_of(type);
    if (schema["type"].is_array())
      for (const SchemaJson& one : schema["type"]) known.merge(keys_of(one));
    allow_keys(schema, place, known);
    return scalar(schema, type, place);
  }

  static std::set<std::string> keys_of(const SchemaJson& type) {
    if (type == "string") return {"type", "minLength", "maxLength", "format"};
    if (type == "integer" || type == "number")
      return {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"};
    return {"type"};
  }

  std::string object(const SchemaJson& schema, const std::string& place, int depth) {
    allow_keys(schema, place, {"type", "properties", "required", "additionalProperties"});
    if (schema.contains("additionalProperties") && schema["additionalProperties"] != false)
      refuse(place, "'additionalProperties' is not false");
    if (!schema.contains("properties") && !schema.contains("additionalProperties"))
      refuse(place, "an object without 'properties' may be any");
    static const SchemaJson none = SchemaJson::object(), nothing = SchemaJson::array();
    const SchemaJson& properties = schema.contains("properties") ? schema["properties"] : none;
    const SchemaJson& required = schema.contains("required") ? schema["required"] : nothing;
    if (!properties.is_object()) refuse_schema_kind(place, "properties", properties, "an object");
    if (!required.is_array()) refuse_schema_kind(place, "required", required, "a list of names");
    std::unordered_set<std::string_view> names, required_names;
    for (const auto& [name, value] : properties.items()) names.insert(name);
    for (const SchemaJson& name : required) {
      if (!name.is_string() || !names.contains(name.get_ref<const std::string&>()))
        refuse(place, fmt::format("'required' names {}, which is no property", json_text(name)));
      required_names.insert(name.get_ref<const std::string&>());
    }
    // The first one that must be there has no comma. Those before it bring their own after them, those after it in
    // front; where none must be there, they are joined.
    std::string all, optional;
    bool has_required = false;
    for (const auto& [name, value] : properties.items()) {
      const std::string one =
          literal_pattern(SchemaJson(name).dump()) + ": ?" + pattern(value, place + "/properties/" + name, depth + 1);
      const bool is_required = required_names.contains(name);
      if (has_required)
        all += is_required ? ", ?" + one : "(?:, ?" + one + ")?";
      else if (is_required)
        all += one;
      else
        all += "(?:" + one + ", ?)?", optional += "|" + one;
      has_required |= is_required;
      check_size(all.size() + optional.size(), place);
    }
    if (!has_required && !optional.empty()) all = "(?:(?,, ?" + optional + "))?";
    return "\\{" + all + "\\}";
  }

  std::string array(const SchemaJson& schema, const std::string& place, int depth) {
    allow_keys(schema, place, {"type", "items", "minItems", "maxItems"});
    if (!schema.contains("items")) refuse(place, "an array without 'items'");
    const std::string item = pattern(schema["items"], place + "/items", depth + 1);
    const int64_t least = count(schema, place, "minItems", 0), most = count(schema, place, "maxItems", -1);
    if (most >= 0 && most < least) refuse(place, "'maxItems' is less than 'minItems'");
    if (most == 0) return "\\[\\]";
    const std::string rest = fmt::format("(?:, ?{}){{{},{}}}", item, std::max<int64_t>(least - 1, 0),
                                         most < 0 ? "" : std::to_string(most - 1));
    const std::string some = item + rest;
    return least > 0 ? "\\[" + some + "\\]" : "\\[(?:" + some + ")?\\]";
  }

  static std::string string(const SchemaJson& schema, const std::string& place) {
    if (!schema.contains("format") || is_number_format(schema["format"]))
      return fmt::format("\"{}{}\"", kCharacter, counts(schema, place, "minLength", "maxLength"));
    const SchemaJson& format = schema["format"];
    for (const char* key : {"minLength", "maxLength"})
      if (schema.contains(key)) refuse(place, fmt::format("'{}' is not supported beside 'format'", key));
    const std::string pattern = format.is_string() ? string_format_pattern(format.get<std::string>()) : "";
    if (pattern.empty())
      refuse(place, fmt::format("'format' is {}, expected one of {}", json_text(format), known_string_formats()));
    return "\"(?:" + pattern + ")\"";
  }

  static std::string number(const SchemaJson& schema, const std::string& place) {
    return number_range_pattern(schema, false, place);
  }

  static std::string integer(const SchemaJson& schema, const std::string& place) {
    return number_range_pattern(schema, true, place);
  }

  static int64_t count(const SchemaJson& schema, const std::string& place, const char* key, int64_t otherwise) {
    return schema_count(schema, place, key, kMostSchemaItems, otherwise);
  }

  static std::string counts(const SchemaJson& schema, const std::string& place, const char* least_key,
                            const char* most_key) {
    const int64_t least = count(schema, place, least_key, 0), most = count(schema, place, most_key, -1);
    if (least == 0 && most < 0) return "*";
    if (most >= 0 && most < least) refuse(place, fmt::format("'{}' is less than '{}'", most_key, least_key));
    return fmt::format("{{{},{}}}", least, most < 0 ? "" : std::to_string(most));
  }
};

}  // namespace

std::string json_scalar_pattern(const nlohmann::ordered_json& schema, const std::string& type,
                                const std::string& place) {
  return SchemaReader::scalar(schema, type, place);
}

std::string json_character_pattern() { return std::string(kCharacter); }

std::string json_schema_pattern(const nlohmann::ordered_json& schema) {
  return within_schema_work([&] { return SchemaReader().pattern(schema, "#", 0); });
}

}  // namespace nodewright
