// What the reading of a JSON schema may take: it is counted, and ends at its limit, whatever the schema repeats.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/work_budget.h"
#include "tests/support/error_text.h"
#include "text/grammar/schema/json_schema.h"
#include "text/grammar/schema/json_schema_rules.h"
#include "text/grammar/schema/schema_place.h"

namespace nodewright {
namespace {

using RepeatingJson = nlohmann::ordered_json;
using ReadSchema = std::string (*)(const RepeatingJson&);

RepeatingJson repeated(int size, const std::function<RepeatingJson(int)>& one) {
  RepeatingJson list = RepeatingJson::array();
  for (int i = 0; i < size; ++i) list.push_back(one(i));
  return list;
}

// An expression has the items of an array twice.
RepeatingJson nested_arrays(int depth) {
  return depth == 0 ? RepeatingJson{{"type", "null"}}
                    : RepeatingJson{{"type", "array"}, {"items", nested_arrays(depth - 1)}};
}

RepeatingJson named(int size, const std::string& prefix, const RepeatingJson& each) {
  RepeatingJson all = RepeatingJson::object();
  for (int i = 0; i < size; ++i) all[prefix + std::to_string(i)] = each;
  return all;
}

// Each took seconds or gigabytes, and nothing was counted.
TEST(SchemaWork, IsLimitedWhateverASchemaRepeats) {
  const std::string long_name(200'000, 'n');
  const RepeatingJson numbers = repeated(6000, [](int i) { return RepeatingJson(i); });
  const std::pair<RepeatingJson, std::vector<ReadSchema>> cases[] = {
      {{{"anyOf", repeated(400, [](int) { return nested_arrays(16); })}}, {json_schema_pattern}},
      {{{"properties", {{long_name, {{"properties", named(3000, "p", {{"type", "null"}})}}}}},
        {"additionalProperties", false}},
       {json_schema_rules}},
      {{{"type", "object"},
        {"properties", {{long_name, {{"type", "object"}, {"properties", named(3000, "p", {{"type", "null"}})}}}}}},
       {json_schema_pattern}},
      {{{"type", repeated(6000, [](int) { return RepeatingJson("null"); })}, {"enum", numbers}},
       {json_schema_pattern, json_schema_rules}},
      {{{"oneOf",
         repeated(60,
                  [&](int i) {
                    return RepeatingJson{{"enum", repeated(300, [&](int j) { return RepeatingJson(300 * i + j); })}};
                  })}},
       {json_schema_pattern, json_schema_rules}},
      {{{"properties", {{std::string(100'000, 'k'), true}}}, {"additionalProperties", true}}, {json_schema_rules}},
  };
  for (const auto& [schema, readers] : cases)
    for (const ReadSchema read : readers) {
      const WorkBudget budget(kMostSchemaWork + 1'000'000);
      const std::string error = error_of([&, &schema = schema] { read(schema); });
      EXPECT_NE(error.find("JSON schema"), std::string::npos) << schema.dump().substr(0, 100) << ": " << error;
      EXPECT_LT(error.size(), 1200u);
    }
}

// Names are looked up in sets: the work grows with the size of the schema and not with its square.
TEST(SchemaWork, IsSmallForLargeSchemasWithoutRepetitions) {
  const RepeatingJson required = repeated(3000, [](int i) { return RepeatingJson("p" + std::to_string(i)); });
  const RepeatingJson object{{"type", "object"},
                             {"properties", named(3000, "p", {{"type", "null"}})},
                             {"required", required},
                             {"additionalProperties", false}};
  const RepeatingJson choices{{"enum", repeated(3000, [](int i) { return RepeatingJson(i); })}};
  for (const RepeatingJson& schema : {object, choices}) {
    const WorkBudget budget(UINT64_MAX / 2);
    EXPECT_FALSE(json_schema_pattern(schema).empty());
    EXPECT_GT(budget.spent(), 10'000u) << "it is counted";
    EXPECT_LT(budget.spent(), 1'000'000u);
  }
}

TEST(SchemaWork, EndsWithTheBudgetOfTheCaller) {
  const RepeatingJson schema{{"type", "object"}, {"properties", named(100, "p", {{"type", "null"}})}};
  for (const ReadSchema read : {ReadSchema(json_schema_pattern), ReadSchema(json_schema_rules)}) {
    {
      const WorkBudget small(1'000);
      EXPECT_THROW(read(schema), WorkExceeded);
    }
    const WorkBudget cancelled(UINT64_MAX / 2, [] { return true; });
    EXPECT_THROW(read(schema), WorkCancelled);
  }
}

}  // namespace
}  // namespace nodewright
