#include "text/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string_view>

#include "runtime/error.h"
#include "text/grammar/byte_pattern.h"
#include "text/grammar/decimal_pattern.h"
#include "text/grammar/integer_pattern.h"
#include "text/grammar/string_formats.h"

namespace nodewright {
namespace {

using SchemaJson = nlohmann::ordered_json;

constexpr int kDeepestSchema = 32;
constexpr int64_t kMostSchemaItems = 1000;
constexpr size_t kMostSchemaBytes = 1 << 20;  // of the expression

// RFC 8259. A \u escape of a surrogate, which must not stand alone, is left out; the character itself may be written.
constexpr std::string_view kCharacter =
    R"((?:[^"\\\x00-\x1f\x7f]|\\["\\/bfnrt]|\\u(?:[0-9a-ce-fA-CE-F][0-9a-fA-F]{3}|[dD][0-7][0-9a-fA-F]{2})))";
constexpr int64_t kFarthestBound = 1'000'000'000'000'000'000;  // of an integer
constexpr std::string_view kNumber = R"(-?(?:0|[1-9][0-9]{0,18})(?:\.[0-9]{1,18})?(?:[eE][+-]?[0-9]{1,3})?)";

class SchemaReader {
 public:
  std::string pattern(const SchemaJson& schema, const std::string& place, int depth) {
    if (depth > kDeepestSchema) refuse(place, fmt::format("it is nested deeper than {}", kDeepestSchema));
    if (!schema.is_object()) refuse(place, "it is no object");
    std::string result = one_of(schema, place, depth);
    if (result.size() > kMostSchemaBytes) refuse(place, "its expression is longer than a million bytes");
    return result;
  }

  static std::string scalar(const SchemaJson& schema, const SchemaJson& type, const std::string& place) {
    if (type == "string") return string(schema, place);
    if (type == "integer") return integer(schema, place);
    if (type == "number") return number(schema, place);
    if (type == "boolean") return "(?:true|false)";
    if (type == "null") return "null";
    refuse(place, fmt::format("type {} is not known", type.dump()));
  }

 private:
  [[noreturn]] static void refuse(const std::string& place, const std::string& what) {
    throw Error({.doing = "read JSON schema", .object = place, .detail = what, .fault = Fault::usage});
  }

  static void allow_keys(const SchemaJson& schema, const std::string& place, std::set<std::string> known) {
    known.insert({"title", "description", "default", "examples", "$schema"});
    for (const auto& [key, value] : schema.items())
      if (!known.contains(key)) refuse(place, fmt::format("'{}' is not supported here", key));
  }

  std::string one_of(const SchemaJson& schema, const std::string& place, int depth) {
    if (schema.contains("const")) {
      allow_keys(schema, place, {"const", "type"});
      return literal_pattern(schema["const"].dump());
    }
    if (schema.contains("enum")) {
      allow_keys(schema, place, {"enum", "type"});
      return choice(schema["enum"], place + "/enum",
                    [](const SchemaJson& value, const std::string&) { return literal_pattern(value.dump()); });
    }
    if (schema.contains("anyOf")) {
      allow_keys(schema, place, {"anyOf"});
      return choice(schema["anyOf"], place + "/anyOf",
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

  static std::string choice(const SchemaJson& list, const std::string& place,
                            const std::function<std::string(const SchemaJson&, const std::string&)>& make) {
    if (!list.is_array() || list.empty()) refuse(place, "it is no list, or an empty one");
    std::string all = "(?:";
    for (size_t i = 0; i < list.size(); ++i) all += (i == 0 ? "" : "|") + make(list[i], fmt::format("{}/{}", place, i));
    return all + ")";
  }

  std::string of_type(const SchemaJson& schema, const SchemaJson& type, const std::string& place, int depth) {
    if (type == "object") return object(schema, place, depth);
    if (type == "array") return array(schema, place, depth);
    allow_keys(schema, place,
               schema["type"].is_array() ? std::set<std::string>{"type", "minLength", "maxLength"} : keys_of(type));
    return scalar(schema, type, place);
  }

  static std::set<std::string> keys_of(const SchemaJson& type) {
    if (type == "string") return {"type", "minLength", "maxLength", "format"};
    if (type == "integer" || type == "number")
      return {"type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"};
    return {"type"};
  }

  std::string object(const SchemaJson& schema, const std::string& place, int depth) {
    allow_keys(schema, place, {"type", "properties", "required", "additionalProperties"});
    if (schema.contains("additionalProperties") && schema["additionalProperties"] != false)
      refuse(place, "'additionalProperties' is not false");
    if (!schema.contains("properties") && !schema.contains("additionalProperties"))
      refuse(place, "an object without 'properties' may be any");
    const SchemaJson properties = schema.value("properties", SchemaJson::object());
    const SchemaJson required = schema.value("required", SchemaJson::array());
    if (!properties.is_object() || !required.is_array()) refuse(place, "'properties' or 'required' is of another type");
    for (const SchemaJson& name : required)
      if (!name.is_string() || !properties.contains(name.get<std::string>()))
        refuse(place, fmt::format("'required' names {}, which is no property", name.dump()));
    // The first one that must be there has no comma. Those before it bring their own behind them, those after it in
    // front; where none must be there, they are joined.
    std::string all, optional;
    bool has_required = false;
    for (const auto& [name, value] : properties.items()) {
      const std::string one =
          literal_pattern(SchemaJson(name).dump()) + ": ?" + pattern(value, place + "/properties/" + name, depth + 1);
      const bool is_required = std::ranges::count(required, SchemaJson(name)) > 0;
      if (has_required)
        all += is_required ? ", ?" + one : "(?:, ?" + one + ")?";
      else if (is_required)
        all += one;
      else
        all += "(?:" + one + ", ?)?", optional += "|" + one;
      has_required |= is_required;
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
    if (!schema.contains("format"))
      return fmt::format("\"{}{}\"", kCharacter, counts(schema, place, "minLength", "maxLength"));
    const SchemaJson& format = schema["format"];
    for (const char* key : {"minLength", "maxLength"})
      if (schema.contains(key)) refuse(place, fmt::format("'{}' is not supported beside 'format'", key));
    const std::string pattern = format.is_string() ? string_format_pattern(format.get<std::string>()) : "";
    if (pattern.empty())
      refuse(place, fmt::format("'format' is {}, expected one of {}", format.dump(), known_string_formats()));
    return "\"(?:" + pattern + ")\"";
  }

  static std::string number(const SchemaJson& schema, const std::string& place) {
    std::optional<DecimalBound> ends[2];
    // Of two bounds at one end the pattern must keep both.
    const char* const keys[2][2] = {{"minimum", "exclusiveMinimum"}, {"maximum", "exclusiveMaximum"}};
    for (int end = 0; end < 2; ++end)
      for (int excluded = 0; excluded < 2; ++excluded) {
        const char* const key = keys[end][excluded];
        if (!schema.contains(key)) continue;
        const SchemaJson& value = schema[key];
        if (ends[end]) refuse(place, fmt::format("'{}' is not supported beside '{}'", key, keys[end][0]));
        if (value.is_number()) ends[end] = decimal_bound(value.dump(), excluded == 1);
        if (!ends[end])
          refuse(place, fmt::format("'{}' is {}, expected a number of at most 18 digits before and behind its point",
                                    key, value.dump()));
      }
    if (!ends[0] && !ends[1]) return std::string(kNumber);
    const std::string pattern = decimal_pattern(ends[0], ends[1]);
    if (pattern.empty()) refuse(place, "no number is within its bounds");
    return pattern;
  }

  static std::string integer(const SchemaJson& schema, const std::string& place) {
    std::optional<int64_t> least = bound(schema, place, "minimum"), most = bound(schema, place, "maximum");
    if (const auto below = bound(schema, place, "exclusiveMinimum"))
      least = std::max(*below + 1, least.value_or(*below + 1));
    if (const auto above = bound(schema, place, "exclusiveMaximum"))
      most = std::min(*above - 1, most.value_or(*above - 1));
    const std::string pattern = integer_pattern(least, most);
    if (pattern.empty()) refuse(place, fmt::format("no integer is at least {} and at most {}", *least, *most));
    return pattern;
  }

  static std::optional<int64_t> bound(const SchemaJson& schema, const std::string& place, const char* key) {
    if (!schema.contains(key)) return std::nullopt;
    const SchemaJson& value = schema[key];
    const bool fits = value.is_number_unsigned() ? value.get<uint64_t>() <= static_cast<uint64_t>(kFarthestBound)
                                                 : value.is_number_integer() && value.get<int64_t>() >= -kFarthestBound;
    if (!fits)
      refuse(place, fmt::format("'{}' is {}, expected an integer of at most 10^18, or -10^18", key, value.dump()));
    return value.get<int64_t>();
  }

  static int64_t count(const SchemaJson& schema, const std::string& place, const char* key, int64_t otherwise) {
    if (!schema.contains(key)) return otherwise;
    const SchemaJson& value = schema[key];
    if (!value.is_number_integer() || value.get<int64_t>() < 0 || value.get<int64_t>() > kMostSchemaItems)
      refuse(place, fmt::format("'{}' is {}, expected 0 to {}", key, value.dump(), kMostSchemaItems));
    return value.get<int64_t>();
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

std::string json_schema_pattern(const nlohmann::ordered_json& schema) { return SchemaReader().pattern(schema, "#", 0); }

}  // namespace nodewright
