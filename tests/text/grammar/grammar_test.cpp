// Regular expressions and JSON schemas as masks over a vocabulary: what they allow against Oniguruma and JSON itself,
// every mask against the automaton token by token.
#include "text/grammar/grammar.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "base/work_budget.h"
#include "base/written_number.h"
#include "engine/sampling/grammar_choice.h"
#include "tests/support/error_text.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/grammar/schema/json_schema.h"
#include "text/tokenizer/steps/regex.h"

namespace nodewright {
namespace {

// Whether the expression matches at the first byte.
bool begins_with_match(const Regex& regex, const std::string& text) {
  std::vector<Regex::Piece> pieces;
  regex.append_pieces(text, pieces);
  return !pieces.empty() && pieces.front().is_match;
}

// Ids are bytes, but for one special token: then a text is its own list of tokens.
std::shared_ptr<const GrammarVocabulary> byte_words() {
  auto file = byte_tokenizer();
  file["added_tokens"] = nlohmann::json::array({added_token(256, "<end>", true)});
  return std::make_shared<GrammarVocabulary>(load(file), 260);
}

bool matches(Grammar& grammar, std::string_view text) {
  int32_t state = grammar.start();
  for (const char c : text)
    if (state = grammar.after(state, static_cast<uint8_t>(c)); state < 0) return false;
  return grammar.is_complete(state);
}

TEST(BytePattern, MatchesWhatTheLanguageOfTheExpressionHolds) {
  const auto words = byte_words();
  const struct {
    const char* pattern;
    std::vector<std::string> in, out;
  } cases[] = {
      {"(ab)*", {"", "ab", "abab"}, {"a", "ba", "aba"}},
      {"^a|b{2,3}|c{2}d{0,}$", {"a", "bb", "bbb", "cc", "ccddd"}, {"", "b", "bbbb", "c", "ab"}},
      {"[a-c\\d_-]+[^x]?", {"a", "0-_", "cé", "c\n"}, {"", "x", "ax", "\xff"}},
      {".",
       {"a", "é", "\u07ff", "\u0915", "\u20ac", "\U0001f600"},
       {"", "\n", "ab", "\xc3", "\xe0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80"}},
      {"[à-ÿ\u2000-\U0001f600]",
       {"à", "ÿ", "\u2fff", "\uffff", "\U00010000", "\U0001f600"},
       {"\u00df", "\u1fff", "\U0001f601", "\xc3"}},
      {R"(\x41\u00e9\.\n\s\S\w\W(?:x|)y)", {"A\u00e9.\n\t!_-xy", "A\u00e9.\n zZ\u00e9y"}, {"A\u00e9.\n zZzy"}},
      {"(a?){3}(b*c+)*", {"", "aaa", "c", "abccbc"}, {"aaaa", "b"}},
      {"(?,-|ab|c?)d", {"abd", "ab-cd", "ab-d", "cd", "d"}, {"-cd", "ab-", "c-abd", "abcd", "ab-c-d"}},
      {"", {""}, {"a"}},
  };
  for (const auto& [pattern, in, out] : cases) {
    Grammar grammar(words, pattern);
    for (const std::string& text : in) EXPECT_TRUE(matches(grammar, text)) << pattern << " and " << text;
    for (const std::string& text : out) EXPECT_FALSE(matches(grammar, text)) << pattern << " and " << text;
  }
}

// No UTF-8 spells them: a text that came here could neither go on nor end.
constexpr const char* kOnlySurrogates = "a[^\\x00-\ud7ff\ue000-\U0010ffff]";

TEST(BytePattern, RefusesWhatIsNotItsSyntaxWithThePlace) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {{"a(b", {"without its )", "byte 3"}},
                                                                    {"ab)", {"unmatched )"}},
                                                                    {"*a", {"repetition of nothing", "byte 1"}},
                                                                    {"a**", {"repetition of a repetition"}},
                                                                    {"a+?", {"repetition"}},
                                                                    {"a{3,2}", {"before its start"}},
                                                                    {"a{99999}", {"10000"}},
                                                                    {"((a{1000}){1000}){1000}", {"states"}},
                                                                    {"(?=a)", {"(?"}},
                                                                    {"(?,a)", {"joins nothing"}},
                                                                    {"\\bx", {"\\b, which"}},
                                                                    {"[z-a]", {"ends before"}},
                                                                    {"[", {"early"}},
                                                                    {"a^", {"anchor"}},
                                                                    {"\\p{L}", {"\\p, which"}},
                                                                    {"\xff", {"UTF-8"}},
                                                                    {"[^\\d\\D]", {"no character"}},
                                                                    {kOnlySurrogates, {"no character"}},
                                                                    {"\\ud800", {"surrogate"}}};
  for (const auto& [pattern, named] : cases)
    for (const std::string& word : named) expect_words(error_of([&] { parse_byte_pattern(pattern); }), {word});
  expect_words(error_of([&] { parse_byte_pattern(std::string(300, '(')); }), {"nested"});
}

std::string written_times(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

// Each would be written out for minutes, or take gigabytes, without a state too many.
TEST(BytePattern, RefusesWhatTakesTooMuchWork) {
  WorkBudget budget(20'000'000);
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"(((" + written_times("()", 500) + "){10000}){10000}){10000}", {"steps to write out", "fewer or smaller"}},
      {"((((){10000}){10000}){10000}){10000}", {"steps"}},
      {"(((|){0,10000}){10000}){10000}", {"states"}},
      {"(?:(?,()|()|()){10000}){10000}", {"states"}},
      {written_times("()", 500'000), {"more than 400000"}},
      {written_times("|", 500'000), {"more than 400000"}},
      {"[" + written_times("a", 500'000) + "]", {"more than 400000"}},
      {written_times("[!#%')+;=?ACEGIKMOQSUWY_acegikmoqsuwy{}]{9999}", 30), {"steps"}}};
  for (const auto& [pattern, named] : cases)
    for (const std::string& word : named)
      expect_words(error_of([&, &pattern = pattern] { parse_byte_pattern(pattern); }), {word});
}

// Random walks over the vocabularies of two golden tokenizers, one of bytes, one of characters: each mask is what the
// automaton says of every token, and where the text is complete Oniguruma agrees.
TEST(Grammar, AllowsExactlyTheTokensThatMayFollow) {
  const char* const patterns[] = {"(ab|the )*[0-9]{1,3}", R"(\{"name": "[a-z ]{1,12}", "n": -?[0-9]+\})",
                                  "(?:the|then|there)( [A-Za-z]+)+!"};
  std::mt19937 random(5);
  size_t masks = 0, complete = 0;
  for (const char* family : {"llama3", "gemma"}) {
    const Tokenizer tokenizer = Tokenizer::from_file(golden_tokenizer(family));
    const auto columns = static_cast<int64_t>(tokenizer.vocab_size()) + 70;
    const auto words = std::make_shared<GrammarVocabulary>(tokenizer, columns);
    for (const char* pattern : patterns) {
      Grammar grammar(words, pattern);
      const Regex expected(R"(\A(?:)" + std::string(pattern) + R"()\z)", "the test");
      for (int walk = 0; walk < 12; ++walk) {
        int32_t state = grammar.start();
        std::string text;
        for (int step = 0; step < 12 && !grammar.is_final(state); ++step) {
          const std::vector<uint32_t> mask = grammar.allowed(state);
          std::vector<int32_t> allowed;
          for (int32_t t = 0; t < columns; ++t) {
            const bool bit = mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1;
            const bool special = tokenizer.has(t) && tokenizer.is_special(t);
            if (walk == 0 || bit) {
              ASSERT_EQ(bit, !special && grammar.after(state, t) >= 0) << "token " << t;
            }
            if (bit) allowed.push_back(t);
          }
          ++masks;
          ASSERT_FALSE(allowed.empty());
          const int32_t token = allowed[random() % allowed.size()];
          state = grammar.after(state, token);
          text += tokenizer.id_to_bytes(token);
          ASSERT_EQ(grammar.is_complete(state), begins_with_match(expected, text)) << text;
          complete += grammar.is_complete(state);
        }
      }
    }
  }
  EXPECT_GT(masks, 300u);
  EXPECT_GT(complete, 20u);
}

TEST(Grammar, AllowsTheEndExactlyWhereTheTextIsComplete) {
  const auto grammar = std::make_shared<SharedGrammar>(byte_words(), "ab?c?");
  const ChoiceOptions options = constrained_to(grammar, {256});
  std::vector<int32_t> outputs;
  const auto allowed = [&] {
    std::vector<uint32_t> mask(9, 0);
    options.allow(outputs, mask);
    std::string tokens;
    for (int32_t t = 0; t < 260; ++t)
      if (mask[static_cast<size_t>(t) / 32] >> (t % 32) & 1) tokens += t == 256 ? '$' : static_cast<char>(t);
    return tokens;
  };
  EXPECT_EQ(allowed(), "a");
  EXPECT_EQ(options.ends('a'), std::nullopt);
  outputs.push_back('a');
  EXPECT_EQ(allowed(), "bc$");
  EXPECT_EQ(options.ends('c'), EndReason::complete);
  EXPECT_ANY_THROW(options.ends('c')) << "a token that no mask allowed";
}

// After each of the texts of a and b of some length another set of a's after it is possible: 2^size states.
std::string exponential(int size) { return fmt::format("[ab]*a[ab]{{{}}}", size); }

TEST(Grammar, RefusesAStepThatTakesTooMuchWork) {
  const auto words = std::make_shared<GrammarVocabulary>(Tokenizer::from_file(golden_tokenizer("llama3")), 128);
  const auto step = [&](uint64_t most) {
    Grammar grammar(words, "(?:[ -~]?){300}", {.step_work = most});
    grammar.allowed(grammar.start());
    return grammar.work();
  };
  const uint64_t needed = step(UINT32_MAX);
  EXPECT_GT(needed, 30'000u);
  expect_words(error_of([&] { step(needed / 4); }), {"one step takes more work", "fewer or smaller"});
  expect_words(error_of([&] { SharedGrammar(words, "(?:[ -~]?){300}", {.step_work = needed / 4}); }), {"one step"});
}

TEST(Grammar, HoldsItsMasksToItsBytesAndMakesThemAgain) {
  const Tokenizer tokenizer = Tokenizer::from_file(golden_tokenizer("llama3"));
  const auto words = std::make_shared<GrammarVocabulary>(tokenizer, 128'000);  // masks of 16 kB
  Grammar roomy(words, "[ab]{40}"), tight(words, "[ab]{40}", {.bytes = 120'000});
  size_t largest = 0;
  for (int round = 0; round < 2; ++round) {
    int32_t a = roomy.start(), b = tight.start();
    for (int i = 0; i < 40; ++i) {
      ASSERT_EQ(roomy.allowed(a), tight.allowed(b)) << i;
      largest = std::max(largest, tight.bytes());
      const auto token = tokenizer.token_to_id(i % 3 == 0 ? "a" : "b");
      ASSERT_TRUE(token);
      a = roomy.after(a, *token), b = tight.after(b, *token);
    }
    EXPECT_TRUE(tight.is_final(b));
  }
  EXPECT_GT(roomy.bytes(), 40u * 16'000);
  EXPECT_LE(largest, 120'000u);
}

TEST(Grammar, IsWornBeforeItRefusesAndThenGivesWayToANewOne) {
  SharedGrammar shared(byte_words(), exponential(12), {.states = 100});
  const std::shared_ptr<Grammar> first = shared.of_this_thread();
  EXPECT_EQ(shared.of_this_thread(), first);
  std::mt19937 random(3);
  int32_t state = first->start();
  while (!first->is_worn()) state = first->after(state, random() % 2 == 0 ? 'a' : 'b');
  EXPECT_LT(first->states(), 100u);
  const std::shared_ptr<Grammar> second = shared.of_this_thread();
  EXPECT_NE(second, first);
  EXPECT_LT(second->states(), first->states());
  EXPECT_GE(first->after(state, 'a'), 0) << "a reader in a state of the first goes on there";
  expect_words(error_of([&] {
                 for (int i = 0; i < 1000; ++i) state = first->after(state, random() % 2 == 0 ? 'a' : 'b');
               }),
               {"more than 100 states"});
}

TEST(Grammar, OfTwoThreadsAreTwoAutomata) {
  SharedGrammar shared(byte_words(), exponential(10));
  const std::shared_ptr<Grammar> ours = shared.of_this_thread();
  std::shared_ptr<Grammar> theirs;
  const auto walk = [](Grammar& grammar, uint32_t seed) {
    std::mt19937 random(seed);
    int32_t state = grammar.start();
    for (int i = 0; i < 2000; ++i) state = grammar.after(state, random() % 2 == 0 ? 'a' : 'b');
    grammar.allowed(state);
  };
  std::thread other([&] {
    theirs = shared.of_this_thread();
    walk(*theirs, 1);
  });
  walk(*ours, 2);
  other.join();
  EXPECT_NE(ours, theirs);
  EXPECT_EQ(shared.of_this_thread(), ours);
  EXPECT_GE(shared.bytes(), ours->bytes() + theirs->bytes());
}

std::string pattern_of(const char* schema) { return json_schema_pattern(nlohmann::ordered_json::parse(schema)); }

TEST(JsonSchema, AllowsTheTextsThatFollowIt) {
  const auto words = byte_words();
  const struct {
    const char* schema;
    std::vector<std::string> in, out;
  } cases[] = {
      {R"({"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
           "required": ["age", "name"], "additionalProperties": false, "title": "person"})",
       {R"({"name": "Ada", "age": 36})", R"({"name":"","age":-1})", R"({"name": "\"\u00e9é\n\\", "age": 0})"},
       {R"({"age": 36, "name": "Ada"})", R"({"name": "Ada"})", R"({"name": "Ada", "age": 036})", "{}",
        "{\"name\": \"\n\", \"age\": 1}", R"({"name": "\ud800", "age": 1})"}},
      {R"({"type": "array", "items": {"type": "number"}, "minItems": 1, "maxItems": 3})",
       {"[1]", "[1, 2.5,-3e+7]"},
       {"[]", "[1, 2, 3, 4]", "[1,]", "[.5]", "[01]"}},
      {R"({"type": "array", "items": {"type": ["boolean", "null"]}})", {"[]", "[true, null,false]"}, {"[True]", "[,]"}},
      {R"({"type": "array", "items": {"type": "null"}, "maxItems": 0})", {"[]"}, {"[null]"}},
      {R"({"enum": ["a.b", 3, null, {"x": [1]}]})", {R"("a.b")", "3", "null", R"({"x":[1]})"}, {R"("a_b")", "4"}},
      {R"({"anyOf": [{"const": "yes"}, {"type": "string", "minLength": 2, "maxLength": 3}]})",
       {R"("yes")", R"("ab")", R"("é\nz")"},
       {R"("a")", R"("abcd")"}},
      {R"({"type": "object", "additionalProperties": false})", {"{}"}, {"{ }"}},
      {R"({"type": "object", "properties": {}})", {"{}"}, {"{ }"}},
  };
  for (const auto& [schema, in, out] : cases) {
    Grammar grammar(words, pattern_of(schema));
    for (const std::string& text : in) {
      EXPECT_TRUE(matches(grammar, text)) << schema << " and " << text;
      EXPECT_TRUE(nlohmann::json::accept(text)) << text;
    }
    for (const std::string& text : out) EXPECT_FALSE(matches(grammar, text)) << schema << " and " << text;
  }
}

// Every keyword that is taken counts, in every spelling of its meaning.
TEST(JsonSchema, MeansTheSameInEverySpelling) {
  const auto words = byte_words();
  const struct {
    const char* schema;
    std::vector<std::string> in, out;
  } cases[] = {
      {R"({"enum": [1, "a", null, 2.5, 3.0], "type": "integer"})", {"1", "3.0"}, {"\"a\"", "null", "2.5"}},
      {R"({"enum": [1, "a", null, 2.5], "type": ["string", "number"]})", {"1", "\"a\"", "2.5"}, {"null"}},
      {R"({"enum": [1, 2, 3], "const": 2.0, "type": "number"})", {"2.0"}, {"1", "2", "3"}},
      {R"({"const": 123456789012345678901234567890})", {"123456789012345678901234567890"}, {"1.2345678901234568e+29"}},
      {R"({"const": {"a": [1.50, 1e5]}})", {R"({"a":[1.50,1e5]})"}, {R"({"a":[1.5,100000.0]})"}},
      {R"({"type": "integer", "minimum": 0.0, "maximum": 1e1})", {"0", "10"}, {"-1", "11"}},
      {R"({"type": "integer", "minimum": 0.5, "maximum": 2.5})", {"1", "2"}, {"0", "3"}},
      {R"({"type": "integer", "minimum": -2.5, "exclusiveMaximum": -0.5})", {"-2", "-1"}, {"-3", "0"}},
      {R"({"type": "integer", "minimum": 3, "exclusiveMinimum": true, "maximum": 5, "exclusiveMaximum": false})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"type": "integer", "format": "uint8"})", {"0", "255"}, {"-1", "256"}},
      {R"({"type": "integer", "format": "int32", "minimum": 7})", {"7", "2147483647"}, {"6", "2147483648"}},
      {R"({"type": "integer", "maximum": 18446744073709551615, "minimum": 9223372036854775807})",
       {"9223372036854775807", "9999999999999999999"},
       {"9223372036854775806"}},
      {R"({"type": "number", "minimum": 1, "exclusiveMinimum": 1.0, "maximum": 1.7976931348623157e308})",
       {"1.5", "2"},
       {"1", "1.0", "0"}},
      {R"({"type": "number", "minimum": 2, "exclusiveMinimum": 1, "exclusiveMaximum": 5, "maximum": 3})",
       {"2", "3"},
       {"1.5", "3.5"}},
      {R"({"type": ["integer", "null", "string"], "minimum": 5, "maxLength": 1.0, "format": "int64"})",
       {"5", "null", "\"a\""},
       {"4", "\"ab\""}},
      {R"({"$id": "a", "$comment": "c", "type": "null", "readOnly": true, "deprecated": true, "example": 1})",
       {"null"},
       {"1"}},
      {R"({"allOf": [{"type": "null"}], "description": "d"})", {"null"}, {"1"}},
      {R"({"oneOf": [{"type": "null"}, {"type": "boolean"}]})", {"null", "true"}, {"1"}},
  };
  for (const auto& [schema, in, out] : cases) {
    Grammar grammar(words, json_schema_pattern(parse_as_written(schema)));
    for (const std::string& text : in) EXPECT_TRUE(matches(grammar, text)) << schema << " and " << text;
    for (const std::string& text : out) EXPECT_FALSE(matches(grammar, text)) << schema << " and " << text;
  }
}

// Properties a to e, of which the bits of `required` must be there. All texts of up to four properties, in any order
// and more than once, with every comma that a text could have wrongly.
TEST(JsonSchema, AllowsEverySubsetOfOptionalPropertiesInTheirOrder) {
  const auto words = byte_words();
  const auto property = [](int i) { return fmt::format("\"{}\":{}", static_cast<char>('a' + i), i); };
  for (const unsigned required : {0b00000u, 0b00001u, 0b10000u, 0b00100u, 0b01010u}) {
    nlohmann::ordered_json schema = {{"type", "object"}, {"required", nlohmann::json::array()}};
    for (int i = 0; i < 5; ++i) {
      schema["properties"][std::string(1, static_cast<char>('a' + i))] = {{"const", i}};
      if (required >> i & 1) schema["required"].push_back(std::string(1, static_cast<char>('a' + i)));
    }
    Grammar grammar(words, json_schema_pattern(schema));
    int accepted = 0;
    for (int word = 0; word < 6 * 6 * 6 * 6; ++word) {  // digit 5: nothing
      std::vector<int> chosen;
      unsigned present = 0;
      std::string text, no_comma;
      for (int rest = word, digit = 0; digit < 4; ++digit, rest /= 6) {
        if (rest % 6 == 5) continue;
        chosen.push_back(rest % 6);
        present |= 1u << rest % 6;
        text += (text.empty() ? "" : ",") + property(rest % 6);
        no_comma += property(rest % 6);
      }
      const bool expected =
          std::ranges::adjacent_find(chosen, std::greater_equal{}) == chosen.end() && (present & required) == required;
      ASSERT_EQ(matches(grammar, "{" + text + "}"), expected) << text << " where " << required << " are required";
      if (!expected) continue;
      ++accepted;
      for (const std::string& wrong : {"{," + text + "}", "{" + text + ",}", "{ " + text + "}"})
        ASSERT_FALSE(matches(grammar, wrong)) << wrong;
      ASSERT_FALSE(chosen.size() > 1 && matches(grammar, "{" + no_comma + "}")) << no_comma;
    }
    EXPECT_GT(accepted, 4) << required;
    EXPECT_EQ(matches(grammar, "{}"), required == 0);
  }
}

TEST(JsonSchema, GrowsWithTheNumberOfOptionalPropertiesAndNotWithThatOfSubsets) {
  const auto states = [](int properties) {
    nlohmann::ordered_json schema = {{"type", "object"}};
    for (int i = 0; i < properties; ++i) schema["properties"][fmt::format("p{:03}", i)] = {{"type", "boolean"}};
    return static_cast<int64_t>(parse_byte_pattern(json_schema_pattern(schema)).states.size());
  };
  const int64_t ten = states(10), twenty = states(20);
  EXPECT_EQ(states(100) - twenty, 8 * (twenty - ten));
}

TEST(JsonSchema, HoldsIntegersToTheirBounds) {
  const auto words = byte_words();
  const auto accepts = [&](std::optional<int64_t> least, std::optional<int64_t> most, const char* exclusive) {
    nlohmann::ordered_json schema = {{"type", "integer"}};
    const std::string prefix = *exclusive ? "exclusiveM" : "m";
    if (least) schema[prefix + "inimum"] = *least - (*exclusive ? 1 : 0);
    if (most) schema[prefix + "aximum"] = *most + (*exclusive ? 1 : 0);
    return Grammar(words, json_schema_pattern(schema));
  };
  for (const auto& [least, most] : std::vector<std::pair<int, int>>{
           {0, 0}, {-1, 1}, {3, 17}, {-17, -3}, {95, 105}, {-1000, 999}, {110, 119}, {-1100, -99}, {9, 1000}, {7, 7}})
    for (const char* exclusive : {"", "exclusive"}) {
      Grammar both = accepts(least, most, exclusive), below = accepts(least, {}, exclusive),
              above = accepts({}, most, exclusive);
      for (int i = -1200; i <= 1200; ++i) {
        ASSERT_EQ(matches(both, std::to_string(i)), least <= i && i <= most) << i << " of " << least << ".." << most;
        ASSERT_EQ(matches(below, std::to_string(i)), least <= i) << i << " from " << least;
        ASSERT_EQ(matches(above, std::to_string(i)), i <= most) << i << " to " << most;
        ASSERT_FALSE(matches(both, fmt::format("0{}", std::abs(i)))) << i;
      }
      EXPECT_TRUE(matches(below, std::string(19, '9')));
      EXPECT_FALSE(matches(above, std::string(19, '9')));
      EXPECT_TRUE(matches(above, "-" + std::string(19, '9')));
      EXPECT_FALSE(matches(below, std::string(20, '9')));
    }
}

TEST(JsonSchema, RefusesWhatItDoesNotKnowByName) {
  const std::pair<const char*, std::vector<std::string>> cases[] = {
      {R"({"type": "string", "pattern": "a"})", {"#", "'pattern'"}},
      {R"({"type": "object", "properties": {"a": {"type": "number", "multipleOf": 3}}, "required": ["a"]})",
       {"#/properties/a", "'multipleOf'"}},
      {R"({"type": "object"})", {"'properties'"}},
      {R"({"type": "integer", "minimum": "2"})", {"'minimum' is \"2\""}},
      {R"({"type": "integer", "maximum": -1e19})", {"'maximum'", "18 digits"}},
      {R"({"type": "integer", "minimum": 18446744073709551615})", {"'minimum'", "18 digits"}},
      {R"({"type": "number", "minimum": 1e-30})", {"'minimum'", "18 digits"}},
      {R"({"type": "integer", "format": "int4"})", {"'format'", "int32"}},
      {R"({"enum": [1, "a"], "type": "boolean"})", {"none of its values", "boolean"}},
      {R"({"const": 1.5, "type": "integer"})", {"none of its values"}},
      {R"({"const": 1, "enum": [2]})", {"'const'", "'enum'"}},
      {R"({"type": "integer", "exclusiveMinimum": 3, "maximum": 3})", {"at least 4", "at most 3"}},
      {R"({"type": ["string", "null"], "minimum": 1})", {"'minimum'"}},
      {R"({"type": "object", "properties": {}, "required": ["b"]})", {"\"b\"", "no property"}},
      {R"({"type": "object", "additionalProperties": true})", {"additionalProperties"}},
      {R"({"$ref": "#"})", {"no type"}},
      {R"({"type": "date"})", {"\"date\""}},
      {R"({"type": "array"})", {"items"}},
      {R"({"type": "array", "items": {"type": "null"}, "minItems": 3, "maxItems": 2})", {"maxItems"}},
      {R"({"type": "string", "maxLength": -1})", {"maxLength", "-1"}},
      {R"({"type": ["object", "null"]})", {"anyOf"}},
      {R"({"enum": []})", {"'enum'", "empty"}},
      {"[]", {"a list, expected an object"}}};
  for (const auto& [schema, named] : cases)
    for (const std::string& word : named) expect_words(error_of([&] { pattern_of(schema); }), {word});
  std::string deep = R"({"type": "null"})";
  for (int i = 0; i < 40; ++i) deep = R"({"type": "array", "items": )" + deep + "}";
  expect_words(error_of([&] { pattern_of(deep.c_str()); }), {"deeper than 32"});
}

}  // namespace
}  // namespace nodewright
