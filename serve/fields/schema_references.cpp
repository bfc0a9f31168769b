#include "serve/fields/schema_references.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/json_depth.h"
#include "base/work_budget.h"
#include "text/grammar/schema/schema_place.h"

namespace nodewright {
namespace {

constexpr size_t kMostValues = 20000, kDeepestReference = 32;
// A reference puts a definition into the place that refers to it.
constexpr int kDeepestSchemaJson = 2 * kDeepestRequestJson;
// Bytes of names, texts and constants, and 16 for each value: each reference copies what it refers to.
constexpr size_t kMostCopiedBytes = size_t{4} << 20, kBytesOfValue = 16;

class References {
 public:
  explicit References(const RequestJson& schema) : schema_(schema) {}

  // `names`: whether the keys of this object are names that the schema's author chose, not keywords.
  RequestJson replaced(const RequestJson& value, int depth, bool names = false) {
    if (depth > kDeepestSchemaJson)
      throw std::invalid_argument(fmt::format("the schema is nested deeper than {} levels", kDeepestSchemaJson));
    if (value.is_structured()) count_value();
    if (value.is_array()) {
      RequestJson list = RequestJson::array();
      for (const RequestJson& one : value) list.push_back(replaced(one, depth + 1));
      return list;
    }
    if (!value.is_object()) return count_copy(value), value;
    if (!names && value.contains("$ref")) return definition(value, depth);
    RequestJson object = RequestJson::object();
    for (const auto& [key, one] : value.items()) {
      if (!names && (key == "$defs" || key == "definitions")) continue;
      WorkBudget::spend(object.size());  // which are compared with the new key
      count_bytes(key.size());
      const bool is_data = !names && (key == "enum" || key == "const" || silent_schema_keys().contains(key));
      if (is_data) count_copy(one);
      object[key] = is_data ? one : replaced(one, depth + 1, !names && key == "properties");
    }
    return object;
  }

 private:
  void count_value() {
    if (++values_ > kMostValues)
      throw std::invalid_argument(
          fmt::format("the schema has more than {} values when each $ref is what it stands for", kMostValues));
  }
  void count_bytes(size_t bytes) {
    WorkBudget::spend(bytes);
    copied_bytes_ += bytes;
    if (copied_bytes_ > kMostCopiedBytes)
      throw std::invalid_argument(fmt::format(
          "the schema's names, texts and constants take more than {} bytes when each $ref is what it stands for",
          kMostCopiedBytes));
  }
  void count_copy(const RequestJson& value) {
    count_value();
    count_bytes(kBytesOfValue);
    if (value.is_string()) count_bytes(value.get_ref<const std::string&>().size());
    if (value.is_binary()) count_bytes(value.get_binary().size());
    if (value.is_structured())
      for (const auto& [key, one] : value.items()) {
        if (value.is_object()) count_bytes(key.size());
        count_copy(one);
      }
  }

  RequestJson definition(const RequestJson& reference, int depth) {
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
    RequestJson definition = replaced(target, depth + 1);
    open_.pop_back();
    return definition;
  }

  const RequestJson& schema_;
  std::vector<const RequestJson*> open_;  // what the references within which we are lead to
  size_t values_ = 0, copied_bytes_ = 0;
};

}  // namespace

RequestJson without_references(const RequestJson& schema) {
  return schema.is_object() ? References(schema).replaced(schema, 0) : schema;
}

}  // namespace nodewright
