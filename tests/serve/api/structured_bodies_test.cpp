// Bodies that say which texts an answer may be, by a schema, an expression, a choice or a grammar, and those that
// cannot be.
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "base/work_budget.h"
#include "serve/fields/schema_references.h"
#include "tests/serve/api/fake_engine.h"
#include "text/grammar/context_free.h"

namespace nodewright::test {
namespace {

class StructuredBodies : public testing::Test {
 protected:
  static void SetUpTestSuite() { served_ = new ServedCase(demo_folder()); }
  static void TearDownTestSuite() { delete std::exchange(served_, nullptr); }
  static ApiError completions_error(const std::string& body) {
    return error_of([&] { served_->api.completions(body); });
  }
  static Json prompt() { return {{"prompt", "Once"}}; }
  static AskedRequest asked(const Json& more) {
    Json body = prompt();
    body.update(more);
    return std::move(served_->api.completions(body.dump())->submissions()[0].asked);
  }
  static ServedCase* served_;
};
ServedCase* StructuredBodies::served_ = nullptr;

TEST_F(StructuredBodies, StructuresAreForcedInEveryForm) {
  const auto forces = [&](const Json& more) { return asked(more).outputs[0].choice.options.allow != nullptr; };
  const Json schema{{"type", "object"},
                    {"properties", {{"a", {{"type", "integer"}}}}},
                    {"required", {"a"}},
                    {"additionalProperties", false}};
  EXPECT_TRUE(
      forces({{"response_format",
               {{"type", "json_schema"}, {"json_schema", {{"name", "a"}, {"schema", schema}, {"strict", true}}}}}}));
  EXPECT_TRUE(forces({{"structured_outputs", {{"json", schema}}}}));
  EXPECT_TRUE(forces({{"structured_outputs", {{"json", schema.dump()}}}}));
  EXPECT_TRUE(forces({{"structured_outputs", {{"regex", "[0-9]+"}, {"json", nullptr}, {"json_object", false}}}}));
  EXPECT_TRUE(forces({{"structured_outputs", {{"choice", {"yes.", "no (never)"}}}}}));
  EXPECT_TRUE(forces({{"guided_json", schema}}));
  EXPECT_TRUE(forces({{"guided_regex", "a+"}}));
  EXPECT_TRUE(forces({{"guided_choice", {"a", "b"}}}));
  EXPECT_FALSE(forces({{"response_format", {{"type", "text"}}}}));
  EXPECT_TRUE(forces({{"structured_outputs", {{"regex", "a"}, {"disable_fallback", true}, {"_backend", "auto"}}}}));
  EXPECT_FALSE(forces({{"structured_outputs", Json::object()}}));
}

// docs/requests.md says 20 000, and what is beyond is refused in the words of schemas.
TEST_F(StructuredBodies, AnEnumerationMayHaveNearlyTwentyThousandValues) {
  const auto schema_of = [](int count) {
    Json values = Json::array();
    for (int i = 0; i < count; ++i) values.push_back("value-" + std::to_string(i));
    return Json{{"type", "object"}, {"properties", {{"k", {{"enum", values}}}}}, {"required", {"k"}}};
  };
  EXPECT_NO_THROW(asked({{"guided_json", schema_of(19'990)}}));
  Json open = schema_of(19'000);
  open["additionalProperties"] = true;  // no expression says this
  if (has_context_free_grammars()) {
    EXPECT_NO_THROW(asked({{"guided_json", open}}));
  }
  for (const Json& schema : {schema_of(20'001), schema_of(60'000)}) {
    const ApiError error = error_of([&] { asked({{"guided_json", schema}}); });
    EXPECT_EQ(error.param(), "guided_json");
    EXPECT_NE(error.message().find("20000"), std::string::npos) << error.message();
    EXPECT_EQ(error.message().find("regular expression"), std::string::npos) << error.message();
  }
  Json long_values = Json::array();
  for (int i = 0; i < 9'000; ++i) long_values.push_back(std::to_string(i * 7919) + std::string(200, 'a'));
  const Json texts{{"type", "object"}, {"properties", {{"k", {{"enum", long_values}}}}}};
  const ApiError error = error_of([&] { asked({{"guided_json", texts}}); });
  EXPECT_NE(error.message().find("#/properties/k"), std::string::npos) << error.message();
  EXPECT_EQ(error.message().find("regular expression"), std::string::npos) << error.message();
}

// As pydantic writes a model with others in it.
TEST_F(StructuredBodies, ReferencesToDefinitionsArePutInPlace) {
  const auto pattern = [](const char* schema) { return without_references(Json::parse(schema)); };
  EXPECT_EQ(pattern(R"({"$defs":{"City":{"type":"object","properties":{"$ref":{"type":"string"}},"title":"City"}},
    "type":"object","properties":{"from":{"$ref":"#/$defs/City","description":"d"},
    "all":{"type":"array","items":{"$ref":"#/$defs/City"}},"kind":{"const":{"$ref":"data"}}}})"),
            Json::parse(R"({"type":"object","properties":{
    "from":{"type":"object","properties":{"$ref":{"type":"string"}},"title":"City"},
    "all":{"type":"array","items":{"type":"object","properties":{"$ref":{"type":"string"}},"title":"City"}},
    "kind":{"const":{"$ref":"data"}}}})"));
  EXPECT_EQ(pattern(R"({"definitions":{"A":{"type":"null"}},"$ref":"#/definitions/A"})"),
            Json::parse(R"({"type":"null"})"));
  for (const char* schema :
       {R"({"$ref":5})", R"({"$ref":"#"})", R"({"$ref":"#/$defs/A"})", R"({"$defs":5,"$ref":"#/$defs/A"})",
        R"({"$defs":{"B":{}},"$ref":"#/$defs/A"})", R"({"$defs":{"A":{"$ref":"#/$defs/A"}},"$ref":"#/$defs/A"})",
        R"({"$defs":{"A":{"anyOf":[{"$ref":"#/$defs/A"}]}},"type":"object","properties":{"a":{"$ref":"#/$defs/A"}}})",
        R"({"$defs":{"A":{"type":"null"}},"$ref":"#/$defs/A","minimum":5})"})
    EXPECT_ANY_THROW(pattern(schema)) << schema;
  Json doubling{{"$ref", "#/$defs/a40"}, {"$defs", {{"a0", {{"type", "null"}}}}}};
  for (int i = 1; i <= 40; ++i) {
    const Json before{{"$ref", "#/$defs/a" + std::to_string(i - 1)}};
    doubling["$defs"]["a" + std::to_string(i)] = {{"anyOf", Json::array({before, before})}};
  }
  EXPECT_ANY_THROW(without_references(doubling));
  doubling["$ref"] = "#/$defs/a20";
  EXPECT_ANY_THROW(without_references(doubling));
  // Constants and names are copied for each reference to them: gigabytes, here.
  Json numbers = Json::array(), references = Json::array();
  for (int i = 0; i < 20'000; ++i) numbers.push_back(i);
  for (int i = 0; i < 10'000; ++i) references.push_back({{"$ref", "#/$defs/e"}});
  const std::string name(300'000, 'n');
  for (const Json& repeated : {Json{{"enum", numbers}}, Json{{"const", name}}, Json{{"description", name}},
                               Json{{"type", "object"}, {"properties", {{name, {{"type", "null"}}}}}}}) {
    const WorkBudget budget(10'000'000);
    EXPECT_THROW(without_references({{"$defs", {{"e", repeated}}}, {"anyOf", references}}), std::invalid_argument);
  }
  EXPECT_NE(asked({{"guided_json", Json::parse(R"({"$defs":{"A":{"type":"integer"}},"type":"object",
    "properties":{"a":{"$ref":"#/$defs/A"}},"required":["a"]})")}})
                .outputs[0]
                .choice.options.allow,
            nullptr);
}

// What no expression is equal to: with xgrammar it is forced, without it refused by name.
TEST_F(StructuredBodies, StructuresBeyondExpressionsNeedXgrammar) {
  const Json tree = Json::parse(R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},
    "required":["children"],"additionalProperties":false})");
  const Json tag = Json::parse(R"({"type":"structural_tag","format":{"type":"tag","begin":"<a>","end":"</a>",
    "content":{"type":"json_schema","json_schema":{"type":"object"}}}})");
  const Json older = Json::parse(R"({"type":"structural_tag","triggers":["<a"],"structures":[{"begin":"<a>","schema":
    {"type":"object","properties":{"b":{"type":"integer"}}},"end":"</a>"}]})");
  const std::tuple<const char*, Json, const char*> cases[] = {
      {"response_format", {{"type", "json_object"}}, "json_object"},
      {"response_format", tag, "structural_tag"},
      {"response_format", older, "structural_tag"},
      {"response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", tree}}}}, "$ref"},
      {"structured_outputs", {{"json_object", true}}, "json_object"},
      {"structured_outputs", {{"grammar", "root ::= \"a\" root | \"b\""}}, "grammar"},
      {"structured_outputs", {{"structural_tag", tag.dump()}}, "structural_tag"},
      {"guided_grammar", "root ::= \"a\" root | \"b\"", "guided_grammar"},
      {"guided_json", {{"type", "object"}}, "properties"},
  };
  for (const auto& [field, value, word] : cases) {
    Json body = prompt();
    body[field] = value;
    if (has_context_free_grammars()) {
      EXPECT_NE(asked(Json{{field, value}}).outputs[0].choice.options.allow, nullptr) << body;
      continue;
    }
    const ApiError error = completions_error(body.dump());
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), field) << error.message();
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  }
}

// Each of them is refused with or without xgrammar.
TEST_F(StructuredBodies, GrammarsAndTagsThatCannotBeAreRefused) {
  for (const auto& [field, value] : {
           std::pair<const char*, Json>{"structured_outputs", {{"grammar", "root ::= other"}}},
           {"structured_outputs", {{"grammar", 5}}},
           {"structured_outputs", {{"json_object", "yes"}}},
           {"structured_outputs", {{"structural_tag", "{}"}}},
           {"structured_outputs", {{"structural_tag", "[]"}}},
           {"structured_outputs", {{"structural_tag", {{"format", {{"type", "token"}, {"token", 5}}}}}}},
           {"structured_outputs", {{"structural_tag", {{"format", {{"type", "qwen_xml_parameter"}}}}}}},
           {"structured_outputs",
            {{"structural_tag",
              {{"format", {{"type", "json_schema"}, {"json_schema", {{"type", "array"}, {"uniqueItems", true}}}}}}}}},
           {"structured_outputs",
            {{"structural_tag", {{"format", {{"type", "sequence"}, {"elements", {{{"type", "const_string"}}}}}}}}}},
           {"response_format", {{"type", "structural_tag"}, {"structures", 5}}},
           {"guided_grammar", "root ::="},
       }) {
    Json body = prompt();
    body[field] = value;
    const ApiError error = completions_error(body.dump());
    EXPECT_EQ(error.status(), 400) << value;
    EXPECT_EQ(error.param(), field) << error.message();
  }
}

TEST_F(StructuredBodies, AChoiceIsLiteral) {
  const AskedRequest one = asked({{"guided_choice", {"a.b", "c"}}});
  const auto may = [&](std::string_view text) {
    std::vector<uint32_t> mask(64);
    one.outputs[0].choice.options.allow({}, mask);
    const int32_t id = served_->ids(text)[0];
    return (mask[static_cast<size_t>(id) / 32] >> (id % 32) & 1) != 0;
  };
  EXPECT_TRUE(may("a"));
  EXPECT_TRUE(may("c"));
  EXPECT_FALSE(may("b"));
}

TEST_F(StructuredBodies, StructuresBeyondOurAutomatonAreRefusedByName) {
  const auto refused = [&](const std::string& field, const Json& value, const std::string& word) {
    Json body = prompt();
    body[field] = value;
    const ApiError error = completions_error(body.dump());
    EXPECT_EQ(error.status(), 400);
    EXPECT_EQ(error.param(), field) << error.message();
    EXPECT_NE(error.message().find(word), std::string::npos) << error.message();
  };
  refused("response_format", Json::object(), "response_format.type is missing");
  refused("response_format", {{"type", "json_schema"}}, "json_schema");
  refused("response_format", {{"type", "json_schema"}, {"json_schema", Json::object()}}, "schema");
  refused("response_format", {{"type", "json_schema"}, {"json_schema", {{"schema", {{"$ref", "#"}}}}}}, "$ref");
  refused("structured_outputs", {{"json", {{"type", "array"}, {"uniqueItems", true}}}}, "uniqueItems");
  refused("structured_outputs", {{"json", {{"type", "number"}, {"multipleOf", 0.5}}}}, "multipleOf");
  refused("structured_outputs", {{"regex", "(?=a)"}}, "a");
  refused("structured_outputs", {{"regex", 5}}, "5");
  refused("structured_outputs", {{"choice", Json::array()}}, "choice");
  refused("structured_outputs", {{"choice", {""}}}, "choice");
  refused("structured_outputs", {{"json", {{"type", "integer"}}}, {"regex", "a"}}, "structure");
  refused("structured_outputs", {{"jsno", {{"type", "integer"}}}}, "has \"jsno\", expected one of json, regex");
  Json body = prompt();
  body.update({{"guided_regex", "a"}, {"guided_choice", {"a"}}});
  EXPECT_EQ(completions_error(body.dump()).status(), 400);
}

}  // namespace
}  // namespace nodewright::test
