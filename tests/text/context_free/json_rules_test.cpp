// JSON schemas as rules: which texts they hold, what they refuse, random texts against the schema, and schemas made to
// do harm.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <random>

#include "tests/support/error_text.h"
#include "tests/support/processor_time.h"
#include "tests/text/context_free/byte_texts.h"
#include "text/grammar/schema/json_schema_rules.h"

namespace nodewright::test {
namespace {

using Json = nlohmann::ordered_json;

ContextFreeCompiler& byte_compiler() {
  static ContextFreeCompiler compiler(single_bytes());
  return compiler;
}

struct SchemaTexts {
  const char* schema;
  std::vector<std::string> in, out;
};

void expect_texts(const SchemaTexts& texts) {
  const std::string rules = json_schema_rules(Json::parse(texts.schema));
  ByteReader reader(byte_compiler(), rules);
  for (const std::string& text : texts.in)
    EXPECT_TRUE(reader.matches(text)) << texts.schema << " and " << text << "\n" << rules;
  for (const std::string& text : texts.out)
    EXPECT_FALSE(reader.matches(text)) << texts.schema << " and " << text << "\n" << rules;
}

TEST(JsonRules, HoldTheTextsOfTheSchema) {
  const SchemaTexts cases[] = {
      {"{}",
       {"1", "\"a\"", "[1, {\"a\":null}]", "{\"x\": [true,false]}", "[]", "{}"},
       {"", "01", "[1,]", "{1:2}", "nul"}},
      {"true", {"-0.5e+3"}, {"+1", ".5"}},
      {R"({"type":"object"})", {"{}", R"({"a":1,"b": {"c":[]}})"}, {"[]", "1", R"({"a"})"}},
      {R"({"type":"array"})", {"[]", "[1,\"a\"]"}, {"{}"}},
      {R"({"type":"object","properties":{}})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", R"({"a":1})", R"({"a\n":1, "é":-2})"},
       {R"({"a":"x"})", R"({"a":1,})"}},
      {R"({"properties":{"a":{"type":"integer"},"ab":{"type":"null"},"é":{"type":"null"}},"required":["ab"],
           "additionalProperties":{"type":"boolean"}})",
       {R"({"ab":null})", R"({"a":1,"ab":null})", R"({"ab":null,"é":null,"b":true,"abc": false,"":true,"è":true})"},
       {"{}", R"({"ab":true})", R"({"ab":null,"a":true})", R"({"ab":null,"é":true})", R"({"ab":null,"\u0061":true})",
        R"({"b":true,"ab":null})"}},
      {R"({"type":"object","properties":{"a":{"const":1},"b":{"const":2},"c":{"const":3}},"required":["b"]})",
       {R"({"b":2})", R"({"a":1,"b": 2})", R"({"a":1, "b":2,"c":3})", R"({"b":2,"c":3})"},
       {"{}", R"({"a":1})", R"({"c":3,"b":2})", R"({"a":1,"b":2,"b":2})"}},
      {R"({"type":"object","required":["k"],"additionalProperties":{"type":"null"}})",
       {R"({"k":null})", R"({"k":null,"x":null})"},
       {"{}", R"({"x":null})"}},
      {R"({"type":"string","minLength":2,"maxLength":3})",
       {R"("ab")", R"("é€")", R"("a\n\u0041")"},
       {R"("a")", R"("abcd")", "\"a\tb\"", "\"a\x01\"", R"("\ud800a")"}},
      {R"({"type":"string","pattern":"^[a-z]+-\\d{2,3}$"})",
       {R"("ab-12")", R"("x-123")"},
       {R"("ab-1")", R"("-12")", "ab-12"}},
      {R"({"type":"string","pattern":"[^x]*"})",
       {R"("abc")", "\"é\""},
       {R"("axb")", R"("a"b")", "\"a\nb\"", R"("a\")"}},
      {R"({"type":"string","pattern":"a.c|\\S\\W"})",
       {R"("abc")", R"("a€c")", R"("x ")"},
       {R"("a"c")", R"(""!")", "\"a\nc\""}},
      {R"({"type":"string","format":"date"})", {R"("2024-02-28")"}, {R"("2024-02-30")", R"("2024-13-01")", R"("x")"}},
      {R"({"type":"number","minimum":0.5,"exclusiveMaximum":2})",
       {"0.5", "1.99", "1"},
       {"0.49", "2", "2.0", "-1", "1e0"}},
      {R"({"type":"integer","minimum":3})", {"3", "1000"}, {"2", "-3", "3.0"}},
      {R"({"type":["string","null","array"],"items":{"type":"integer"},"maxItems":1})",
       {R"("")", "null", "[]", "[5]"},
       {"[5,5]", "5", R"(["a"])"}},
      {R"({"items":{"enum":["a\"b",1,{"x":[]}]},"minItems":2,"maxItems":3})",
       {R"(["a\"b", 1])", R"([1,1,{"x":[]}])"},
       {"[1]", "[]", "[1,1,1,1]", "[2,1]"}},
      {R"({"anyOf":[{"type":"integer"},{"allOf":[{"type":"string"}]}]})", {"1", R"("a")"}, {"null"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"string"},{"type":"object"}]})", {"1", R"("a")", "{}"}, {"null", "[]"}},
      {R"({"oneOf":[{"$ref":"#/$defs/a"},{"$ref":"#/$defs/b"}],"discriminator":{"propertyName":"t"},"$defs":{
           "a":{"type":"object","properties":{"t":{"const":"a"}},"required":["t"]},
           "b":{"type":"object","properties":{"t":{"enum":["b","c"]},"x":{}},"required":["t"]}}})",
       {R"({"t":"a"})", R"({"t":"c","x":[1]})"},
       {R"({"t":"d"})", "{}", R"({"t":"a","x":1})"}},
      {R"({"type":"integer","enum":[1,"a",2.5]})", {"1"}, {"2.5", R"("a")"}},
      {R"({"const":"a/b"})", {R"("a/b")"}, {R"("a\/b")"}},
  };
  for (const SchemaTexts& one : cases) expect_texts(one);
}

TEST(JsonRules, ReferencesMayBeRecursive) {
  const char* const tree = R"({"$ref":"#/$defs/node","$defs":{"node":{"type":"object","properties":{
    "name":{"type":"string"},"children":{"type":"array","items":{"$ref":"#/$defs/node"}}},"required":["name"]}}})";
  expect_texts({tree,
                {R"({"name":"a"})", R"({"name":"a","children":[]})",
                 R"({"name":"a", "children":[{"name":"b","children":[{"name":"c"}]}, {"name":"d"}]})"},
                {R"({"name":"a","children":[{}]})", R"({"name":"a","children":[{"name":"b"})"}});
  expect_texts({R"({"anyOf":[{"type":"null"},{"type":"array","items":{"$ref":"#"},"minItems":1}]})",
                {"null", "[null]", "[[null,[null]], null]"},
                {"[]", "[[]]"}});
  expect_texts({R"({"type":"object","properties":{"a/b~":{"type":"integer"},"c":{"$ref":"#/properties/a~1b~0"}},
                 "required":["c"]})",
                {R"({"c":5})"},
                {R"({"c":"x"})"}});
  expect_texts({R"({"anyOf":[{"$ref":"#"},{"type":"integer"}]})", {"5"}, {"x"}});
  for (
      const char* endless :
      {R"({"$ref":"#"})",
       R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"anyOf":[{"$ref":"#/$defs/a"},{"type":"null"}]})",
       R"({"type":"object","properties":{"a":{"$ref":"#"}},"required":["a"]})",
       R"({"type":"array","items":{"$ref":"#"},"minItems":1})"})
    expect_error([&] { json_schema_rules(Json::parse(endless)); }, {"endless", "$ref"});
}

TEST(JsonRules, RefuseWhatTheyWouldNotKeepByNameAndPlace) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {"false", {"a boolean, expected an object"}},
      {R"({"type":"array","uniqueItems":true})", {"'uniqueItems'", "#"}},
      {R"({"type":"array","contains":{}})", {"'contains'"}},
      {R"({"type":"array","prefixItems":[{}]})", {"'prefixItems'"}},
      {R"({"type":"number","multipleOf":0.5})", {"'multipleOf'"}},
      {R"({"type":"integer","multipleOf":2})", {"'multipleOf'"}},
      {R"({"type":"object","patternProperties":{}})", {"'patternProperties'"}},
      {R"({"type":"object","propertyNames":{}})", {"'propertyNames'"}},
      {R"({"type":"object","minProperties":1})", {"'minProperties'"}},
      {R"({"type":"object","dependentRequired":{}})", {"'dependentRequired'"}},
      {R"({"type":"object","properties":{"a":{"not":{}}}})", {"'not'", "#/properties/a"}},
      {R"({"if":{},"then":{}})", {"'if'"}},
      {R"-({"type":"string","pattern":"(?=a)"})-", {"(?"}},
      {R"({"type":"string","pattern":"a","maxLength":5})", {"'maxLength'", "'pattern'"}},
      {R"({"type":"string","pattern":"((a{1000}){1000}){1000}"})", {"states"}},
      {R"({"type":"string","pattern":"é"})", {"ASCII"}},
      {R"({"type":"string","format":"date","maxLength":5})", {"'maxLength'", "'format'"}},
      {R"({"type":"string","format":"regex"})", {"'format'", "date-time"}},
      {R"({"type":"string","maxLength":100000})", {"'maxLength'", "5000"}},
      {R"({"type":"string","minLength":3,"maxLength":2})", {"'maxLength'", "less"}},
      {R"({"type":"string","minimum":3})", {"'minimum'"}},
      {R"({"type":"number","minimum":3,"maximum":2})", {"no number"}},
      {R"({"type":"number","minimum":"3"})", {"'minimum'"}},
      {R"({"type":"color"})", {"color"}},
      {R"({"type":5})", {"'type'"}},
      {R"({"type":[]})", {"'type'"}},
      {R"({"anyOf":[]})", {"'anyOf'"}},
      {R"({"anyOf":[{}],"type":"object"})", {"'type'"}},
      {R"({"allOf":[{},{}]})", {"'allOf'"}},
      {R"({"oneOf":[{"type":"integer"},{"type":"number"}]})", {"'oneOf'"}},
      {R"({"oneOf":[{"type":"object"},{"type":"object"}]})", {"'oneOf'"}},
      {R"({"oneOf":[{},{"type":"object"}]})", {"'oneOf'"}},
      {R"({"enum":[]})", {"'enum'"}},
      {R"({"type":"string","enum":[1]})", {"none of its values"}},
      {R"({"$ref":"#/$defs/a"})", {"#/$defs/a"}},
      {R"({"$ref":"http://example.org/a"})", {"http://example.org/a"}},
      {R"({"$ref":5})", {"5"}},
      {R"({"$ref":"#/$defs/a","minimum":5,"$defs":{"a":{"type":"integer"}}})", {"'minimum'"}},
      {R"({"type":"object","properties":{"a":{}},"required":["b"]})", {"\"b\""}},
      {R"({"type":"object","required":[5],"additionalProperties":true})", {"5"}},
      {R"({"type":"object","properties":5})", {"'properties'"}},
  };
  for (const auto& [schema, words] : cases) {
    const std::string message = error_of([&] { json_schema_rules(Json::parse(schema)); });
    EXPECT_NE(message, "") << schema;
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in " << message;
  }
}

// Random walks from byte to byte: what they spell is JSON, and of the schema.
TEST(JsonRules, WhatTheirMasksAllowIsJson) {
  const std::string rules = json_schema_rules(Json::parse(R"({"type":"object","properties":{
    "s":{"type":"string","maxLength":4},"n":{"type":"number","minimum":-1.5,"maximum":12.25},"p":{"type":"string","pattern":"\\S{1,3}"},
    "any":{}},"required":["s","n","p"],"additionalProperties":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"string"}]},
    "$defs":{"list":{"type":"array","items":{"anyOf":[{"$ref":"#/$defs/list"},{"type":"integer"}]}}}})"));
  const auto grammar = byte_compiler().compile(rules);
  int complete = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    std::mt19937_64 random(seed);
    ContextFreeText text(grammar);
    std::string bytes;
    while (bytes.size() < 400 && !text.is_final()) {
      std::vector<uint32_t> mask(8, 0);
      text.add_allowed(mask);
      std::vector<int32_t> allowed;
      for (int32_t byte = 0; byte < 256; ++byte)
        if (mask[static_cast<size_t>(byte) / 32] >> (byte % 32) & 1) {
          const int weight = std::strchr("\"]}", byte) != nullptr && byte != 0 ? 40 : 1;  // so that texts end
          allowed.insert(allowed.end(), static_cast<size_t>(weight), byte);
        }
      ASSERT_FALSE(allowed.empty()) << bytes;
      const int32_t byte = allowed[random() % allowed.size()];
      text.push(byte);
      bytes += static_cast<char>(byte);
    }
    if (!text.is_final()) continue;
    ++complete;
    const Json value = Json::parse(bytes, nullptr, false);
    ASSERT_FALSE(value.is_discarded()) << bytes;
    EXPECT_LE(-1.5, value["n"].get<double>()) << bytes;
    EXPECT_GE(12.25, value["n"].get<double>()) << bytes;
    EXPECT_TRUE(value["s"].is_string() && value["p"].is_string()) << bytes;
    for (const auto& [key, one] : value.items())
      EXPECT_TRUE(one.is_string() || one.is_array() || key == "n" || key == "any") << bytes;
  }
  EXPECT_GT(complete, 30);
}

TEST(JsonRules, SchemasMadeToDoHarmEndSoon) {
  Json deep{{"type", "null"}}, wide{{"type", "object"}, {"additionalProperties", true}}, chain{{"$ref", "#/$defs/a0"}};
  for (int i = 0; i < 300; ++i) deep = {{"type", "array"}, {"items", deep}};
  for (int i = 0; i < 3000; ++i) wide["properties"][fmt::format("property{}", i * 7919 % 3001)] = {{"type", "integer"}};
  for (int i = 0; i < 3000; ++i) chain["$defs"][fmt::format("a{}", i)] = {{"$ref", fmt::format("#/$defs/a{}", i + 1)}};
  Json shallow{{"type", "null"}}, names{{"enum", Json::array()}}, counts{{"type", "string"}, {"maxLength", 1000}};
  for (int i = 0; i < 55; ++i) shallow = {{"type", "array"}, {"items", shallow}, {"maxItems", 1000}};
  for (int i = 0; i < 15000; ++i) names["enum"].push_back(fmt::format("value {}", i));
  for (int i = 0; i < 8; ++i) counts = {{"type", "array"}, {"items", counts}, {"minItems", 1000}, {"maxItems", 1000}};
  Json graph{{"$ref", "#/$defs/a0"}};
  for (int i = 0; i < 200; ++i)
    for (int k = 0; k < 40; ++k)
      graph["$defs"][fmt::format("a{}", i)]["anyOf"].push_back(
          {{"$ref", fmt::format("#/$defs/a{}", (i * 31 + k * 7) % 200)}});
  graph["$defs"]["a199"] = {{"type", "integer"}};
  ContextFreeCompiler compiler(
      std::make_shared<GrammarVocabulary>(Tokenizer::from_file(source_dir() / "models/demo/tokenizer.json"), 2048));
  for (const Json* schema : {&deep, &wide, &chain, &shallow, &names, &counts, &graph}) {
    std::string message;
    const double seconds = test::seconds_of([&] {
      message = error_of([&] {
        ContextFreeText text(compiler.compile(json_schema_rules(*schema)));
        std::vector<uint32_t> mask(64);
        text.add_allowed(mask);
      });
    });
    if (std::getenv("NODEWRIGHT_SHOW_TIMES") != nullptr)
      fmt::print("{:.3f} s  {}  {}\n", seconds, schema->dump().substr(0, 50), message.substr(0, 100));
    EXPECT_LT(seconds, test::allowed_seconds(10)) << schema->dump().substr(0, 60);
  }
}

}  // namespace
}  // namespace nodewright::test
