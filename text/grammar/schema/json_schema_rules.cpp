#include "text/grammar/schema/json_schema_rules.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/json_depth.h"
#include "base/work_budget.h"
#include "base/written_number.h"
#include "text/grammar/literal_choices.h"
#include "text/grammar/patterns/byte_pattern.h"
#include "text/grammar/patterns/split_repetitions.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/schema_place.h"

namespace nodewright {
namespace {

using RuleJson = nlohmann::ordered_json;

constexpr int kDeepestRuleSchema = 64;
constexpr int64_t kMostRepetitions = 5000;
constexpr size_t kMostSchemaValues = 20'000;
constexpr size_t kMostOneOf = 64;                     // every two are compared
constexpr size_t kMostRuleBytes = size_t{256} << 10;  // as context_free.h reads
constexpr size_t kLongestOtherKey = 500;  // of a property where others are allowed, too: each character makes a rule

const char* const kObjectKeys[] = {"properties", "required", "additionalProperties"};
const char* const kArrayKeys[] = {"items", "minItems", "maxItems"};
const char* const kStringKeys[] = {"minLength", "maxLength", "format", "pattern"};
const char* const kNumberKeys[] = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format"};

// The characters after a value in JSON, or a key: xgrammar then knows of more words beforehand whether they may come.
constexpr const char* kBehindValue = " (=[,}\\]])";
constexpr const char* kBehindString = " (=[,:}\\]])";

std::string expression_rule(const std::string& pattern) { return fmt::format("Regex({})", rule_literal(pattern)); }

size_t values_in(const RuleJson& value, int depth) {
  if (depth > kDeepestRequestJson)
    refuse_schema("#", fmt::format("its JSON is nested deeper than {} levels", kDeepestRequestJson));
  size_t count = 1;
  if (value.is_structured())
    for (const RuleJson& one : value) count += values_in(one, depth + 1);
  return count;
}

bool has_any(const RuleJson& schema, std::span<const char* const> keys) {
  return std::ranges::any_of(keys, [&](const char* key) { return schema.contains(key); });
}

class RuleWriter {
 public:
  explicit RuleWriter(const RuleJson& root) : root_(root) {}

  std::string rules() {
    if (const size_t values = values_in(root_, 0); values > kMostSchemaValues)
      refuse_schema("#", fmt::format("it has {} values, and at most {} are taken", values, kMostSchemaValues));
    const std::string root = text_of(root_, "#", 0);
    while (!unwritten_.empty()) {
      const auto [path, target] = *unwritten_.begin();
      unwritten_.erase(unwritten_.begin());
      write_rule(references_.at(path), text_of(*target, path, 0));
    }
    if (const std::string endless = endless_reference(root_); !endless.empty())
      refuse_schema("#", fmt::format("'$ref' \"{}\" is followed by endless texts alone", endless));
    return fmt::format("root ::= {}\n{}", root, rules_);
  }

 private:
  static std::string scalar_rule(const RuleJson& schema, const std::string& type, const std::string& place) {
    return expression_rule(json_scalar_pattern(schema, type, place)) +
           (type == "string" ? kBehindString : kBehindValue);
  }

  // The name of a new rule.
  std::string add_rule(const std::string& body) {
    const std::string name = new_name();
    write_rule(name, body);
    return name;
  }
  std::string new_name() { return fmt::format("r{}", ++count_); }
  void write_rule(const std::string& name, const std::string& body) {
    WorkBudget::spend(body.size());
    if (rules_.size() + body.size() > kMostRuleBytes)
      refuse_schema("#", fmt::format("its rules are longer than {} bytes", kMostRuleBytes));
    fmt::format_to(std::back_inserter(rules_), "{} ::= {}\n", name, body);
  }

  // Rules of JSON itself, written when they are first asked for.
  std::string basic(const std::string& name) {
    if (!basics_.insert(name).second) return name;
    if (name == "any")
      write_rule(name, fmt::format("{} | {} | \"true\" | \"false\" | \"null\" | {} | {}", basic("string"),
                                   basic("number"), basic("array"), basic("object")));
    else if (name == "array")
      write_rule(name, fmt::format("\"[\" ({0} (\",\" \" \"? {0})*)? \"]\"", basic("any")) + kBehindValue);
    else if (name == "object")
      write_rule(name, fmt::format("\"{{\" ({0} (\",\" \" \"? {0})*)? \"}}\"", basic("member")) + kBehindValue);
    else if (name == "member")
      write_rule(name, fmt::format("{} \":\" \" \"? {}", basic("string"), basic("any")));
    else if (name == "character")
      write_rule(name, expression_rule(json_character_pattern()));
    else if (name == "key_end")  // of a key without escapes
      write_rule(name, expression_rule(R"([^"\\\x00-\x1f\x7f]*")") + " (=\":\")");
    else
      write_rule(name, scalar_rule(RuleJson::object(), name, "#"));
    return name;
  }

  void allow(const RuleJson& schema, const std::string& place, const std::set<std::string>& known) {
    for (const auto& [key, value] : schema.items())
      if (!known.contains(key) && !silent_schema_keys().contains(key) && key != "$defs" && key != "definitions")
        refuse_schema(place, fmt::format("'{}' is not supported here", key));
  }

  // The body of a rule, or a part of one that stands alone.
  std::string text_of(const RuleJson& schema, const std::string& place, int depth) {
    if (depth > kDeepestRuleSchema)
      refuse_schema(place, fmt::format("it is nested deeper than {}", kDeepestRuleSchema));
    std::string text = unchecked_text_of(schema, place, depth);
    check_size(text.size(), place);
    spend_on_schema(place, text.size());
    return text;
  }

  // Looked at while a text grows: its parts may be as long each.
  static void check_size(size_t bytes, const std::string& place) {
    if (bytes > kMostRuleBytes) refuse_schema(place, fmt::format("its rules are longer than {} bytes", kMostRuleBytes));
  }

  std::string unchecked_text_of(const RuleJson& schema, const std::string& place, int depth) {
    if (schema == true) return basic("any");
    if (!schema.is_object()) refuse_schema(place, fmt::format("it is {}, expected an object", json_kind(schema)));
    if (schema.contains("$ref")) return reference(schema, place);
    if (schema.contains("const") || schema.contains("enum")) {
      allow(schema, place, {"const", "enum", "type"});
      std::vector<std::string> texts;
      for (const RuleJson& value : schema_constants(schema, place)) texts.push_back(json_text(value));
      std::string choices = literals_rule(std::move(texts));
      if (choices.size() > kMostRuleBytes)
        refuse_schema(place,
                      fmt::format("its values take {} bytes of rules, and at most {} are taken: fewer or shorter ones",
                                  choices.size(), kMostRuleBytes));
      return choices;
    }
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (schema.contains(key)) return one_of(schema, key, place, depth);
    return typed(schema, place, depth);
  }

  std::string reference(const RuleJson& schema, const std::string& place) {
    allow(schema, place, {"$ref"});
    const RuleJson& target = referred_schema(root_, schema["$ref"], place);
    const std::string path = schema["$ref"].get<std::string>();
    const auto [known, is_new] = references_.emplace(path, "");
    if (is_new) {
      known->second = new_name();
      unwritten_.emplace(path, &target);
    }
    return known->second;
  }

  std::string one_of(const RuleJson& schema, const std::string& key, const std::string& place, int depth) {
    allow(schema, place, key == "oneOf" ? std::set<std::string>{key, "discriminator"} : std::set<std::string>{key});
    const RuleJson& options = schema[key];
    if (!options.is_array() || options.empty())
      refuse_schema_kind(place, key, options, "a list of at least one schema");
    if (key == "allOf" && options.size() > 1) refuse_schema(place, "'allOf' of more than one schema is not supported");
    if (key == "oneOf" && (options.size() > kMostOneOf || !are_disjoint(root_, options)))
      refuse_schema(place,
                    "'oneOf' is supported where its schemas are seen to exclude each other, by type or by a constant "
                    "that each requires; use anyOf");
    std::string choices;
    for (size_t i = 0; i < options.size(); ++i) {
      choices += (i > 0 ? " | " : "") + text_of(options[i], fmt::format("{}/{}/{}", place, key, i), depth + 1);
      check_size(choices.size(), place);
    }
    return options.size() == 1 ? choices : add_rule(choices);
  }

  std::string typed(const RuleJson& schema, const std::string& place, int depth) {
    std::vector<std::string> types;
    if (const RuleJson type = schema.value("type", RuleJson()); type.is_string()) {
      types = {type.get<std::string>()};
    } else if (type.is_array() && !type.empty()) {
      for (const RuleJson& one : type) types.push_back(one.is_string() ? one.get<std::string>() : json_text(one));
    } else if (schema.contains("type")) {
      refuse_schema_kind(place, "type", type, "a name or a list of names");
    }
    if (types.empty() && has_any(schema, kObjectKeys)) types = {"object"};
    if (types.empty() && has_any(schema, kArrayKeys)) types = {"array"};
    std::set<std::string> known = {"type"};
    for (const std::string& type : types) {
      if (type == "object") known.insert(std::begin(kObjectKeys), std::end(kObjectKeys));
      if (type == "array") known.insert(std::begin(kArrayKeys), std::end(kArrayKeys));
      if (type == "string") known.insert(std::begin(kStringKeys), std::end(kStringKeys));
      if (type == "integer" || type == "number") known.insert(std::begin(kNumberKeys), std::end(kNumberKeys));
    }
    allow(schema, place, known);
    if (types.empty()) return basic("any");
    std::string choices;
    for (const std::string& type : types) {
      choices += (choices.empty() ? "" : " | ") + of_type(schema, type, place, depth);
      check_size(choices.size(), place);
    }
    return types.size() == 1 ? choices : add_rule(choices);
  }

  std::string of_type(const RuleJson& schema, const std::string& type, const std::string& place, int depth) {
    if (type == "object") return object(schema, place, depth);
    if (type == "array") return array(schema, place, depth);
    if (type == "string" && schema.contains("pattern")) return matching_string(schema, place);
    if (type == "string" && !schema.contains("format") &&
        (schema.contains("minLength") || schema.contains("maxLength")))
      return add_rule(fmt::format("\"\\\"\" {}{} \"\\\"\"", basic("character"),
                                  repetitions(schema, "minLength", "maxLength", place)));
    const bool is_number = type == "number" || type == "integer";
    if ((type == "string" && has_any(schema, kStringKeys)) || (is_number && has_any(schema, kNumberKeys)))
      return add_rule(scalar_rule(schema, type, place));
    if (!is_number && type != "string" && type != "boolean" && type != "null")
      refuse_schema(place, fmt::format("type \"{}\" is not known", type));
    return basic(type);
  }

  // Our syntax is asked first: xgrammar's knows other constructs, and expands large ones.
  std::string matching_string(const RuleJson& schema, const std::string& place) {
    const RuleJson& pattern = schema["pattern"];
    if (!pattern.is_string())
      refuse_schema(place, fmt::format("'pattern' is {}, expected a string", json_text(pattern)));
    for (const char* key : {"format", "minLength", "maxLength"})
      if (schema.contains(key)) refuse_schema(place, fmt::format("'{}' is not supported beside 'pattern'", key));
    std::string expression = pattern.get<std::string>();
    parse_byte_pattern(expression);
    if (expression.starts_with('^')) expression.erase(0, 1);
    if (expression.ends_with('$') && !expression.ends_with("\\$")) expression.pop_back();
    if (expression.find("(?,") != std::string::npos) refuse_schema(place, "'pattern' has (?,, which is our own syntax");
    if (!std::ranges::all_of(expression, [](unsigned char c) { return c >= 0x20 && c < 0x7f; }))
      refuse_schema(place, "'pattern' has characters beyond ASCII; write them as \\uHHHH");
    return add_rule(fmt::format("\"\\\"\" Regex({}, json_string=true) \"\\\"\"{}",
                                rule_literal(split_repetitions(expression)), kBehindString));
  }

  static int64_t count_of(const RuleJson& schema, const char* key, int64_t otherwise, const std::string& place) {
    return schema_count(schema, place, key, kMostRepetitions, otherwise);
  }

  static std::string repetitions(const RuleJson& schema, const char* least_key, const char* most_key,
                                 const std::string& place) {
    const int64_t least = count_of(schema, least_key, 0, place), most = count_of(schema, most_key, -1, place);
    if (most >= 0 && most < least) refuse_schema(place, fmt::format("'{}' is less than '{}'", most_key, least_key));
    return fmt::format("{{{},{}}}", least, most < 0 ? "" : std::to_string(most));
  }

  std::string array(const RuleJson& schema, const std::string& place, int depth) {
    if (!has_any(schema, kArrayKeys)) return basic("array");
    const std::string item =
        schema.contains("items") ? text_of(schema["items"], place + "/items", depth + 1) : basic("any");
    repetitions(schema, "minItems", "maxItems", place);
    const int64_t least = count_of(schema, "minItems", 0, place), most = count_of(schema, "maxItems", -1, place);
    if (most == 0) return "\"[]\"";
    const std::string some = fmt::format("{0} (\",\" \" \"? {0}){{{1},{2}}}",
                                         item.starts_with("r") || item == "any" ? item : "(" + item + ")",
                                         std::max<int64_t>(least - 1, 0), most < 0 ? "" : std::to_string(most - 1));
    return add_rule(least > 0 ? "\"[\" " + some + " \"]\"" : "\"[\" (" + some + ")? \"]\"");
  }

  struct Member {
    std::string name, value;  // a rule or a part of one
    bool is_required = false;
  };

  std::string object(const RuleJson& schema, const std::string& place, int depth) {
    if (!has_any(schema, kObjectKeys)) return basic("object");
    static const RuleJson none = RuleJson::object(), nothing = RuleJson::array();
    const RuleJson& properties = schema.contains("properties") ? schema["properties"] : none;
    const RuleJson& required = schema.contains("required") ? schema["required"] : nothing;
    if (!properties.is_object()) refuse_schema_kind(place, "properties", properties, "an object");
    if (!required.is_array()) refuse_schema_kind(place, "required", required, "a list of names");
    const RuleJson may_have_more(!schema.contains("properties"));
    const RuleJson& more = schema.contains("additionalProperties") ? schema["additionalProperties"] : may_have_more;
    std::vector<Member> members;
    std::unordered_map<std::string, size_t> places;  // in `members`
    const auto add = [&](const std::string& name, const std::string& value) {
      places.emplace(name, members.size());
      members.push_back({name, value, false});
    };
    for (const auto& [name, value] : properties.items())
      add(name, text_of(value, place + "/properties/" + name, depth + 1));
    const std::string other = more == false ? "" : text_of(more, place + "/additionalProperties", depth + 1);
    for (const RuleJson& name : required) {
      const std::string spelled = name.is_string() ? name.get<std::string>() : "";
      if (!name.is_string() || (other.empty() && !places.contains(spelled)))
        refuse_schema(place, fmt::format("'required' names {}, which is no property", json_text(name)));
      WorkBudget::spend(other.size());
      if (!places.contains(spelled)) add(spelled, other);
      members[places.at(spelled)].is_required = true;
    }
    return add_rule("\"{\" " + members_from(members, other, place) + " \"}\"");
  }

  // Two rules for the members from each one on: as the first members, and after others, with a comma.
  std::string members_from(const std::vector<Member>& members, const std::string& other, const std::string& place) {
    std::string first = "\"\"", later = "\"\"";
    if (!other.empty()) {
      const std::string one = add_rule(fmt::format("{} \":\" \" \"? ({})", other_key(members, place), other));
      first = add_rule(fmt::format("({0} (\",\" \" \"? {0})*)?", one));
      later = add_rule(fmt::format("(\",\" \" \"? {})*", one));
    }
    for (size_t i = members.size(); i-- > 0;) {
      const Member& member = members[i];
      const std::string text =
          add_rule(fmt::format("{} \" \"? ({})", rule_literal(RuleJson(member.name).dump() + ":"), member.value));
      const std::string skipped_first = member.is_required ? "" : " | " + first;
      const std::string skipped_later = member.is_required ? "" : " | " + later;
      first = add_rule(fmt::format("{} {}{}", text, later, skipped_first));
      later = add_rule(fmt::format("\",\" \" \"? {} {}{}", text, later, skipped_later));
    }
    return first;
  }

  // Keys other than those of the members: without escapes, by which one could spell a member's name.
  std::string other_key(const std::vector<Member>& members, const std::string& place) {
    if (members.empty()) return basic("string");
    std::vector<std::string> names;
    for (const Member& member : members) names.push_back(member.name);
    for (const std::string& name : names)
      if (name.size() > kLongestOtherKey)
        refuse_schema(place, fmt::format("a property has a name of {} bytes, and at most {} are taken beside "
                                         "'additionalProperties'",
                                         name.size(), kLongestOtherKey));
    std::ranges::sort(names);
    return add_rule("\"\\\"\" " + key_behind(names, 0));
  }

  // What may follow the first `at` bytes that all `names`, sorted, have in common.
  std::string key_behind(std::span<const std::string> names, size_t at) {
    std::string denied = R"(\"\\\u0000-\u001f\u007f)", choices;
    bool is_name = false;
    for (size_t i = 0; i < names.size();) {
      if (names[i].size() == at) {
        is_name = true;
        ++i;
        continue;
      }
      const std::string character = names[i].substr(at, character_bytes(names[i][at]));
      size_t end = i;
      while (end < names.size() && names[end].compare(at, character.size(), character) == 0) ++end;
      // Names with characters that are escaped in JSON cannot be met without escapes.
      const auto byte = static_cast<unsigned char>(character[0]);
      if (byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7f) {
        denied += byte == ']' || byte == '^' || byte == '-' ? "\\" + character : character;
        choices += fmt::format(" | {} {}", rule_literal(character),
                               key_behind(names.subspan(i, end - i), at + character.size()));
      }
      i = end;
    }
    return add_rule(fmt::format("[^{}] {}{}{}", denied, basic("key_end"), is_name ? "" : " | \"\\\"\"", choices));
  }

  static size_t character_bytes(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
  }

  const RuleJson& root_;
  std::string rules_;
  int count_ = 0;
  std::set<std::string> basics_;
  std::map<std::string, std::string> references_;     // names of rules by reference
  std::map<std::string, const RuleJson*> unwritten_;  // those without a rule yet
};

}  // namespace

std::string json_schema_rules(const nlohmann::ordered_json& schema) {
  return within_schema_work([&] { return RuleWriter(schema).rules(); });
}

std::string json_object_rules() { return json_schema_rules(RuleJson{{"type", "object"}}); }

std::string rule_literal(const std::string& text) {
  std::string literal = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f)
      literal += fmt::format("\\u{:04x}", byte);
    else if (c == '"' || c == '\\')
      literal.append(1, '\\').append(1, c);
    else
      literal += c;
  }
  return literal + '"';
}

}  // namespace nodewright
