#include "serve/fields/schema_references.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "text/grammar/schema_place.h"

namespace nodewright {
namespace {

constexpr size_t kMostValues = 20000, kDeepestReference = 32;

class References {
 public:
  explicit References(const RequestJson& schema) : schema_(schema) {}

  // `names`: whether the keys of this object are names that the schema's author chose, not keywords.
  RequestJson replaced(const RequestJson& value, bool names = false) {
    if (++values_ > kMostValues)
      throw std::invalid_argument(
          fmt::format("the schema has more than {} values when each $ref is what it stands for", kMostValues));
    if (value.is_array()) {
      RequestJson list = RequestJson::array();
      for (const RequestJson& one : value) list.push_back(replaced(one));
      return list;
    }
    if (!value.is_object()) return value;
    if (!names && value.contains("$ref")) return definition(value);
    RequestJson object = RequestJson::object();
    for (const auto& [key, one] : value.items()) {
      if (!names && (key == "$defs" || key == "definitions")) continue;
      const bool is_data = !names && (key == "enum" || key == "const" || silent_schema_keys().contains(key));
      object[key] = is_data ? one : replaced(one, !names && key == "properties");
    }
    return object;
  }

 private:
  RequestJson definition(const RequestJson& reference) {
    for (const auto& [key, one] : reference.items())
      if (!key.starts_with('$') && key != "definitions" && !silent_schema_keys().contains(key))
        throw std::invalid_argument(fmt::format("the schema has {} beside $ref, which is not supported", key));
    const RequestJson& path = reference["$ref"];
    const RequestJson& target = referred_schema(schema_, path, "#");
    if (std::ranges::count(open_, &target) > 0)
      throw std::invalid_argument(fmt::format("the schema's $ref {} leads back to itself", shown(path)));
    if (open_.size() == kDeepestReference)
      throw std::invalid_argument(fmt::format("the schema's references nest deeper than {} levels", kDeepestReference));
    open_.push_back(&target);
    RequestJson definition = replaced(target);
    open_.pop_back();
    return definition;
  }

  const RequestJson& schema_;
  std::vector<const RequestJson*> open_;  // what the references within which we are lead to
  size_t values_ = 0;
};

}  // namespace

RequestJson without_references(const RequestJson& schema) {
  return schema.is_object() ? References(schema).replaced(schema) : schema;
}

}  // namespace nodewright
