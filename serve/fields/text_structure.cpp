#include "serve/fields/text_structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "base/written_number.h"
#include "runtime/error.h"
#include "serve/fields/request_fields.h"
#include "serve/fields/schema_references.h"
#include "text/grammar/context_free.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/json_schema_rules.h"
#include "text/grammar/schema/schema_place.h"

namespace nodewright {
namespace {

std::string checked_pattern(std::string pattern) {
  parse_byte_pattern(pattern);
  return pattern;
}

std::string schema_expression(const RequestJson& schema) {
  return checked_pattern(json_schema_pattern(without_references(schema)));
}

// The expression of a schema, where there is one. Without xgrammar there must be.
std::optional<std::string> expression_of(const RequestJson& schema) {
  if (!has_context_free_grammars()) return schema_expression(schema);
  try {
    return schema_expression(schema);
  } catch (const Error&) {
    return std::nullopt;
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
}

constexpr int kDeepestFormat = 32;

[[noreturn]] void refuse_tag(const std::string& what) { throw std::invalid_argument("the structural tag " + what); }

// The formats of structural tags that we take, with the keys that hold others.
struct TagFormatRow {
  const char* type;
  const char* content;  // a format, or a list of them; null: none
};
constexpr TagFormatRow kTagFormats[] = {{"const_string", nullptr},  {"any_text", nullptr},
                                        {"json_schema", nullptr},   {"grammar", nullptr},
                                        {"regex", nullptr},         {"sequence", "elements"},
                                        {"or", "elements"},         {"tag", "content"},
                                        {"triggered_tags", "tags"}, {"tags_with_separator", "tags"},
                                        {"optional", "content"},    {"plus", "content"},
                                        {"star", "content"},        {"repeat", "content"}};

RequestJson rules_format(std::string rules) { return {{"type", "grammar"}, {"grammar", std::move(rules)}}; }

// `tag`: it stands where a tag must, which may leave out its type.
RequestJson checked_format(const RequestJson& format, int depth, bool tag = false) {
  if (depth > kDeepestFormat) refuse_tag(fmt::format("nests deeper than {} levels", kDeepestFormat));
  if (!format.is_object()) refuse_tag(fmt::format("has the format {}, expected an object", described(format)));
  const RequestJson type = format.value("type", tag ? RequestJson("tag") : RequestJson());
  const auto* row = std::ranges::find_if(kTagFormats, [&](const TagFormatRow& one) { return type == one.type; });
  if (row == std::end(kTagFormats))
    refuse_tag(fmt::format("has a format of type {}, which is not supported", shown(type)));
  if (type == "json_schema") {
    for (const auto& [key, value] : format.items())
      if (key != "type" && key != "json_schema")
        refuse_tag(
            fmt::format("has {} in a format of type json_schema, which is not supported", shown(RequestJson(key))));
    if (!format.contains("json_schema")) refuse_tag("has a format of type json_schema without json_schema");
    return rules_format(json_schema_rules(format["json_schema"]));
  }
  if (type == "regex") checked_pattern(string_of(format.value("pattern", RequestJson()), "pattern"));
  if (type == "grammar") check_context_free_rules(string_of(format.value("grammar", RequestJson()), "grammar"));
  RequestJson checked = format;
  if (row->content == nullptr || !format.contains(row->content)) return checked;
  RequestJson& content = checked[row->content];
  if (!content.is_array()) return content = checked_format(content, depth + 1), checked;
  for (RequestJson& one : content) one = checked_format(one, depth + 1, std::string_view(row->content) == "tags");
  return checked;
}

// vLLM's older form.
RequestJson triggered_tags(const RequestJson& tag) {
  RequestJson tags = RequestJson::array();
  const RequestJson structures = tag.value("structures", RequestJson());
  if (!structures.is_array()) refuse_tag(fmt::format("has structures {}, expected a list", described(structures)));
  for (const RequestJson& one : structures) {
    if (!one.is_object()) refuse_tag(fmt::format("has the structure {}, expected an object", described(one)));
    tags.push_back({{"begin", one.value("begin", RequestJson())},
                    {"content", {{"type", "json_schema"}, {"json_schema", one.value("schema", RequestJson::object())}}},
                    {"end", one.value("end", RequestJson())}});
  }
  return {{"type", "triggered_tags"}, {"triggers", tag.value("triggers", RequestJson())}, {"tags", tags}};
}

TextStructure tag_structure(const RequestJson& format) {
  return {TextStructure::Kind::rules,
          structural_tag_rules(json_text({{"type", "structural_tag"}, {"format", format}}))};
}

}  // namespace

std::optional<TextStructure> structure_of_line(const RequestFields& line) {
  refuse_all_but_one(line, {"regex", "json_schema", "grammar"}, "a text follows one of them");
  std::string found;
  for (const char* name : {"regex", "json_schema", "grammar"})
    if (line.has(name)) found = name;
  if (found.empty()) return std::nullopt;
  const RequestJson& value = *line.find(found);
  if (found == "json_schema") {
    if (!value.is_object()) refuse_value(line.name_of(found), &value, "an object");
    return structure_of_schema(value);
  }
  const std::string text = string_of(value, line.name_of(found));
  // The compiler checks rules.
  return TextStructure{found == "regex" ? TextStructure::Kind::expression : TextStructure::Kind::rules, text};
}

TextStructure structure_of_schema(const RequestJson& schema) {
  if (std::optional<std::string> pattern = expression_of(schema))
    return {TextStructure::Kind::expression, std::move(*pattern), std::make_shared<const RequestJson>(schema)};
  return {TextStructure::Kind::rules, json_schema_rules(schema)};
}

TextStructure rules_of_schema(const RequestJson& schema, const std::string& why) {
  if (!has_context_free_grammars()) refuse_schema("#", why);
  return {TextStructure::Kind::rules, json_schema_rules(schema)};
}

TextStructure structure_of_rules(std::string rules) {
  check_context_free_rules(rules);
  return {TextStructure::Kind::rules, std::move(rules)};
}

TextStructure structure_of_tag(const RequestJson& tag) {
  if (!tag.is_object()) refuse_tag(fmt::format("is {}, expected an object", described(tag)));
  return tag_structure(
      checked_format(tag.contains("structures") ? triggered_tags(tag) : tag.value("format", RequestJson()), 0));
}

TextStructure structure_of_calls(const std::vector<CallableFunction>& functions, const CallShape& shape,
                                 bool only_one) {
  const auto opening = [&](const CallableFunction& function) {
    return shape.open + RequestJson(function.name).dump() + shape.arguments;
  };
  std::optional<std::string> pattern = "";
  for (const CallableFunction& function : functions) {
    const std::optional<std::string> arguments = expression_of(function.parameters);
    if (!arguments) {
      pattern.reset();
      break;
    }
    *pattern +=
        (pattern->empty() ? "" : "|") + literal_pattern(opening(function)) + *arguments + literal_pattern(shape.close);
  }
  if (pattern) {
    const std::string call = "(?:" + *pattern + ")";
    std::string text = literal_pattern(shape.prefix) + call;
    if (!only_one) text += "(?:" + literal_pattern(shape.separator) + call + ")*";
    return {TextStructure::Kind::expression, checked_pattern(text + literal_pattern(shape.suffix))};
  }
  RequestJson tags = RequestJson::array();
  for (const CallableFunction& function : functions)
    tags.push_back({{"type", "tag"},
                    {"begin", opening(function)},
                    {"content", rules_format(json_schema_rules(function.parameters))},
                    {"end", shape.close}});
  RequestJson calls{{"type", "tags_with_separator"},
                    {"tags", tags},
                    {"separator", shape.separator},
                    {"at_least_one", true},
                    {"stop_after_first", only_one}};
  const auto text = [](const std::string& value) { return RequestJson{{"type", "const_string"}, {"value", value}}; };
  if (shape.prefix.empty() && shape.suffix.empty()) return tag_structure(calls);
  return tag_structure({{"type", "sequence"}, {"elements", {text(shape.prefix), calls, text(shape.suffix)}}});
}

}  // namespace nodewright
