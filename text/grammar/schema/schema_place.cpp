#include "text/grammar/schema/schema_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>

#include "base/work_budget.h"
#include "base/written_number.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

using PlaceJson = nlohmann::ordered_json;

constexpr int kLongestReferences = 64;  // that lead to one another
constexpr size_t kMostReferences = 256;
constexpr uint64_t kWorkOfValue = 16;  // beside its text
constexpr uint64_t kWorkOfType = 8;    // that a value may be of
constexpr size_t kBytesOfWork = 16;    // that are copied for a unit
constexpr size_t kLongestPlace = 400, kLongestReason = 400;

// All of `text`, or its first bytes in whole characters.
std::string first_of(const std::string& text, size_t most_bytes) {
  if (text.size() <= most_bytes) return text;
  size_t end = most_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return text.substr(0, end) + "...";
}

// Null where `schema` has no such list, or object.
const PlaceJson* part_of(const PlaceJson& schema, const char* key, PlaceJson::value_t type) {
  const auto found = schema.find(key);
  return found != schema.end() && found->type() == type ? &*found : nullptr;
}
const PlaceJson* list_in(const PlaceJson& schema, const char* key) {
  return part_of(schema, key, PlaceJson::value_t::array);
}
const PlaceJson* object_in(const PlaceJson& schema, const char* key) {
  return part_of(schema, key, PlaceJson::value_t::object);
}

// Which of the references can end, found from those that need no other.
class Endings {
 public:
  explicit Endings(const PlaceJson& root) : root_(root) {
    collect(root, false);
    while (!unread_.empty()) {
      const std::string path = *unread_.begin();
      unread_.erase(unread_.begin());
      collect(targets_.at(path), false);
    }
    for (bool grows = true; grows;) {
      grows = false;
      for (const auto& [path, target] : targets_)
        if (!ending_.contains(path) && can_end(target)) grows = ending_.insert(path).second;
    }
  }

  std::string endless() const {
    for (const auto& [path, target] : targets_)
      if (!ending_.contains(path)) return path;
    return "";
  }

 private:
  // `names`: the keys are names that the author chose.
  void collect(const PlaceJson& value, bool names) {
    WorkBudget::spend(kWorkOfValue);
    if (value.is_array())
      for (const PlaceJson& one : value) collect(one, false);
    if (!value.is_object()) return;
    for (const auto& [key, one] : value.items()) {
      if (!names && (key == "enum" || key == "const" || key == "$defs" || key == "definitions" ||
                     silent_schema_keys().contains(key)))
        continue;
      if (names || key != "$ref")
        collect(one, !names && key == "properties");
      else
        add_reference(one);
    }
  }

  void add_reference(const PlaceJson& reference) {
    const PlaceJson& target = referred_schema(root_, reference, "#");
    const std::string path = reference.get<std::string>();
    if (!targets_.emplace(path, target).second) return;
    unread_.insert(path);
    if (targets_.size() > kMostReferences)
      refuse_schema("#", fmt::format("it has more than {} different references", kMostReferences));
  }

  bool can_end(const PlaceJson& schema) const {
    WorkBudget::spend(kWorkOfValue);
    if (!schema.is_object()) return true;
    if (const auto reference = schema.find("$ref"); reference != schema.end())
      return ending_.contains(reference->get<std::string>());
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const PlaceJson* options = list_in(schema, key))
        return std::ranges::any_of(*options, [&](const PlaceJson& one) { return can_end(one); });
    // One simple type in a list is enough.
    if (const PlaceJson* types = list_in(schema, "type"))
      if (std::ranges::any_of(*types, [](const PlaceJson& one) { return one != "object" && one != "array"; }))
        return true;
    if (const auto least = schema.find("minItems"), items = schema.find("items");
        least != schema.end() && items != schema.end() && *least != 0 && !can_end(*items))
      return false;
    const PlaceJson *required = list_in(schema, "required"), *properties = object_in(schema, "properties");
    if (required == nullptr) return true;
    const auto more = schema.find("additionalProperties");
    return std::ranges::all_of(*required, [&](const PlaceJson& name) {
      if (!name.is_string()) return true;
      WorkBudget::spend(kWorkOfValue + (properties != nullptr ? properties->size() : 0));
      if (properties != nullptr)
        if (const auto found = properties->find(name.get<std::string>()); found != properties->end())
          return can_end(*found);
      return more == schema.end() || can_end(*more);
    });
  }

  const PlaceJson& root_;
  std::map<std::string, const PlaceJson&> targets_;
  std::set<std::string> ending_, unread_;
};

const PlaceJson* without_reference(const PlaceJson& root, const PlaceJson& schema) {
  const PlaceJson* at = &schema;
  for (int i = 0; i < kLongestReferences && at->is_object() && at->contains("$ref"); ++i)
    at = &referred_schema(root, (*at)["$ref"], "#");
  return at->is_object() && !at->contains("$ref") ? at : nullptr;
}

bool is_of_type(const PlaceJson& value, const PlaceJson& type) {
  WorkBudget::spend(kWorkOfType);
  if (type.is_null()) return true;
  if (type.is_array()) return std::ranges::any_of(type, [&](const PlaceJson& one) { return is_of_type(value, one); });
  if (type == "integer") return is_whole_number(value);
  return is_json_number(value) ? type == "number" : type == value.type_name();
}

bool holds(const PlaceJson& list, const PlaceJson& value) {
  return std::ranges::any_of(list, [&](const PlaceJson& one) { return same_json(one, value); });
}

// The values of a schema that lists them.
std::optional<std::vector<const PlaceJson*>> constants_of(const PlaceJson& schema) {
  const PlaceJson* choices = list_in(schema, "enum");
  const auto constant = schema.find("const"), type = schema.find("type");
  const bool has_constant = constant != schema.end();
  if (choices == nullptr && !has_constant) return std::nullopt;
  std::vector<const PlaceJson*> found;
  const auto add = [&](const PlaceJson& value) {
    WorkBudget::spend(kWorkOfValue);
    if (type == schema.end() || is_of_type(value, *type)) found.push_back(&value);
  };
  if (!has_constant)
    std::ranges::for_each(*choices, add);
  else if (choices == nullptr || holds(*choices, *constant))
    add(*constant);
  return found;
}

std::set<std::string> types_of(const PlaceJson& schema) {
  std::set<std::string> types;
  const auto add = [&](const std::string& type) { types.insert(type == "integer" ? "number" : type); };
  if (const auto constants = constants_of(schema)) {
    for (const PlaceJson* one : *constants) add(is_json_number(*one) ? "number" : one->type_name());
    return types;
  }
  const PlaceJson type = schema.value("type", PlaceJson());
  if (type.is_string()) add(type.get<std::string>());
  if (type.is_array())
    for (const PlaceJson& one : type)
      if (one.is_string()) add(one.get<std::string>());
  return types;
}

bool share_a_value(const std::vector<const PlaceJson*>& a, const std::vector<const PlaceJson*>& b) {
  return std::ranges::any_of(a, [&](const PlaceJson* one) {
    return std::ranges::any_of(b, [&](const PlaceJson* other) { return same_json(*one, *other); });
  });
}

bool is_required(const PlaceJson& schema, const std::string& name) {
  const PlaceJson* required = list_in(schema, "required");
  WorkBudget::spend(kWorkOfValue * (required != nullptr ? required->size() : 0));
  return required != nullptr && std::ranges::find(*required, PlaceJson(name)) != required->end();
}

bool are_two_disjoint(const PlaceJson& root, const PlaceJson& a, const PlaceJson& b) {
  const std::set<std::string> types = types_of(a), others = types_of(b);
  if (types.empty() || others.empty()) return false;
  if (std::ranges::none_of(types, [&](const std::string& one) { return others.contains(one); })) return true;
  const auto constants = constants_of(a), other_constants = constants_of(b);
  if (constants && other_constants) return !share_a_value(*constants, *other_constants);
  if (types != std::set<std::string>{"object"} || others != types) return false;
  const PlaceJson *properties = object_in(a, "properties"), *other_properties = object_in(b, "properties");
  if (properties == nullptr || other_properties == nullptr) return false;
  for (const auto& [name, value] : properties->items()) {
    WorkBudget::spend(kWorkOfValue + other_properties->size());
    const auto found = other_properties->find(name);
    if (found == other_properties->end() || !is_required(a, name) || !is_required(b, name)) continue;
    const PlaceJson *one = without_reference(root, value), *other = without_reference(root, *found);
    if (one == nullptr || other == nullptr) continue;
    const auto values = constants_of(*one), other_values = constants_of(*other);
    if (values && other_values && !share_a_value(*values, *other_values)) return true;
  }
  return false;
}

// What %20 and the like stand for in a fragment of a URI. A % that begins no such escape is itself.
std::string without_percent(const std::string& text) {
  std::string plain;
  for (size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const char* const digits = text.data() + at + 1;
    const bool is_escape =
        text[at] == '%' && at + 2 < text.size() && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2;
    plain += is_escape ? static_cast<char>(byte) : text[at];
    if (is_escape) at += 2;
  }
  return plain;
}

}  // namespace

std::vector<PlaceJson> schema_constants(const PlaceJson& schema, const std::string& place) {
  if (schema.contains("enum") && (!schema["enum"].is_array() || schema["enum"].empty()))
    refuse_schema_kind(place, "enum", schema["enum"], "a list of at least one value");
  std::vector<PlaceJson> values;
  for (const PlaceJson* one : constants_of(schema).value_or(std::vector<const PlaceJson*>())) values.push_back(*one);
  if (!values.empty()) return values;
  if (schema.contains("type"))
    refuse_schema(place, fmt::format("none of its values is of type {}", json_text(schema["type"])));
  refuse_schema(place, "'const' is not in 'enum'");
}

int64_t schema_count(const PlaceJson& schema, const std::string& place, const char* key, int64_t most,
                     int64_t otherwise) {
  if (!schema.contains(key)) return otherwise;
  const std::optional<int64_t> count = whole_number(schema[key]);
  if (!count || *count < 0 || *count > most)
    refuse_schema(place, fmt::format("'{}' is {}, expected 0 to {}", key, json_text(schema[key]), most));
  return *count;
}

void refuse_schema(const std::string& place, const std::string& what) {
  throw Error({.doing = "read JSON schema",
               .object = first_of(place, kLongestPlace),
               .detail = first_of(what, kLongestReason),
               .fault = Fault::usage});
}

void refuse_schema_kind(const std::string& place, const std::string& key, const PlaceJson& found,
                        const char* expected) {
  const bool is_empty = found.is_structured() && found.empty();
  refuse_schema(place,
                fmt::format("'{}' is {}, expected {}", key,
                            is_empty ? "empty" : fmt::format("{} {}", json_kind(found), json_text(found)), expected));
}

std::string within_schema_work(const std::function<std::string()>& read) {
  const WorkBudget budget(kMostSchemaWork);
  try {
    return read();
  } catch (const WorkExceeded&) {
    if (budget.spent() <= kMostSchemaWork) throw;  // the caller's own budget
    refuse_schema("#", fmt::format("it takes more than {} units of work; fewer values, or shorter names and numbers",
                                   kMostSchemaWork));
  }
}

void spend_on_schema(const std::string& place, size_t text_bytes) {
  WorkBudget::spend(kWorkOfValue + (place.size() + text_bytes) / kBytesOfWork);
}

const std::set<std::string>& silent_schema_keys() {
  static const std::set<std::string> keys = {"title",        "description",     "default",         "example",
                                             "examples",     "$schema",         "$comment",        "$id",
                                             "$vocabulary",  "readOnly",        "writeOnly",       "deprecated",
                                             "externalDocs", "contentEncoding", "contentMediaType"};
  return keys;
}

const PlaceJson& referred_schema(const PlaceJson& root, const PlaceJson& path, const std::string& place) {
  WorkBudget::spend(kWorkOfValue);
  if (!path.is_string() || !path.get_ref<const std::string&>().starts_with('#'))
    refuse_schema(place, fmt::format("'$ref' is {}, expected # and a place in the schema", json_text(path)));
  try {
    PlaceJson::json_pointer pointer(without_percent(path.get_ref<const std::string&>().substr(1)));
    const PlaceJson& found = root.at(pointer);
    for (uint64_t below = 1; !pointer.empty(); ++below) {  // keys are looked for one after the other
      pointer.pop_back();
      WorkBudget::spend(below * root.at(pointer).size());
    }
    return found;
  } catch (const PlaceJson::exception&) {
    refuse_schema(place, fmt::format("'$ref' {} leads to nothing in the schema", json_text(path)));
  }
}

std::string endless_reference(const PlaceJson& root) { return Endings(root).endless(); }

bool are_disjoint(const PlaceJson& root, const PlaceJson& options) {
  std::vector<const PlaceJson*> schemas;
  for (const PlaceJson& option : options) {
    schemas.push_back(without_reference(root, option));
    if (schemas.back() == nullptr) return false;
  }
  for (size_t i = 0; i < schemas.size(); ++i)
    for (size_t j = i + 1; j < schemas.size(); ++j)
      if (!are_two_disjoint(root, *schemas[i], *schemas[j])) return false;
  return true;
}

}  // namespace nodewright
