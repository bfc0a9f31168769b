#include "text/grammar/schema_place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "runtime/error.h"

namespace nodewright {
namespace {

using PlaceJson = nlohmann::ordered_json;

constexpr int kLongestReferences = 64;  // that lead to one another
constexpr size_t kMostReferences = 256;

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
    if (!schema.is_object()) return true;
    if (const auto reference = schema.find("$ref"); reference != schema.end())
      return ending_.contains(reference->get<std::string>());
    for (const char* key : {"anyOf", "oneOf", "allOf"})
      if (const PlaceJson* options = list_in(schema, key))
        return std::ranges::any_of(*options, [&](const PlaceJson& one) { return can_end(one); });
    // Of a list of types one that is simple is enough.
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

// The values of a schema that lists them.
std::optional<PlaceJson> constants_of(const PlaceJson& schema) {
  if (schema.contains("const")) return PlaceJson::array({schema["const"]});
  if (schema.contains("enum") && schema["enum"].is_array()) return schema["enum"];
  return std::nullopt;
}

std::set<std::string> types_of(const PlaceJson& schema) {
  std::set<std::string> types;
  const auto add = [&](const std::string& type) { types.insert(type == "integer" ? "number" : type); };
  if (const auto constants = constants_of(schema)) {
    for (const PlaceJson& one : *constants) add(one.is_number() ? "number" : one.type_name());
    return types;
  }
  const PlaceJson type = schema.value("type", PlaceJson());
  if (type.is_string()) add(type.get<std::string>());
  if (type.is_array())
    for (const PlaceJson& one : type)
      if (one.is_string()) add(one.get<std::string>());
  return types;
}

bool share_a_value(const PlaceJson& a, const PlaceJson& b) {
  return std::ranges::any_of(a, [&](const PlaceJson& one) { return std::ranges::find(b, one) != b.end(); });
}

bool is_required(const PlaceJson& schema, const std::string& name) {
  const PlaceJson* required = list_in(schema, "required");
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
    const auto found = other_properties->find(name);
    if (found == other_properties->end() || !is_required(a, name) || !is_required(b, name)) continue;
    const PlaceJson *one = without_reference(root, value), *other = without_reference(root, *found);
    if (one == nullptr || other == nullptr) continue;
    const auto values = constants_of(*one), other_values = constants_of(*other);
    if (values && other_values && !share_a_value(*values, *other_values)) return true;
  }
  return false;
}

}  // namespace

void refuse_schema(const std::string& place, const std::string& what) {
  throw Error({.doing = "read JSON schema", .object = place, .detail = what, .fault = Fault::usage});
}

const std::set<std::string>& silent_schema_keys() {
  static const std::set<std::string> keys = {"title",    "description", "default",  "examples",  "$schema",
                                             "$comment", "$id",         "readOnly", "writeOnly", "deprecated"};
  return keys;
}

const PlaceJson& referred_schema(const PlaceJson& root, const PlaceJson& path, const std::string& place) {
  if (!path.is_string() || !path.get_ref<const std::string&>().starts_with('#'))
    refuse_schema(place, fmt::format("'$ref' is {}, expected # and a place in the schema", path.dump()));
  try {
    return root.at(PlaceJson::json_pointer(path.get<std::string>().substr(1)));
  } catch (const PlaceJson::exception&) {
    refuse_schema(place, fmt::format("'$ref' {} leads to nothing in the schema", path.dump()));
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
