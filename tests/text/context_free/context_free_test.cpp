// Context-free grammars as masks over a vocabulary: every mask against a reader of single bytes and against a stack
// machine of our own, texts that go back, the compiler's cache, and grammars made to do harm.
#include "text/grammar/context_free.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "base/work_budget.h"
#include "tests/support/error_text.h"
#include "tests/support/processor_time.h"
#include "tests/text/context_free/byte_texts.h"
#include "text/grammar/schema/json_schema_rules.h"

namespace nodewright::test {
namespace {

std::shared_ptr<const GrammarVocabulary> demo_words() {
  static const auto words = std::make_shared<GrammarVocabulary>(
      Tokenizer::from_file(source_dir() / "models/demo/tokenizer.json"), 2048 + 40);  // the model is padded
  return words;
}

// Short words over few characters, most of which lie within each other and begin with each other, and three that lie
// within each other with no word between them.
std::shared_ptr<const GrammarVocabulary> nested_words() {
  auto file = byte_tokenizer();
  int id = 256;
  for (const std::string letters = "ab\"[{"; const char a : letters)
    for (const char b : letters) {
      file["added_tokens"].push_back(added_token(id++, {a, b}, false));
      for (const char c : letters) file["added_tokens"].push_back(added_token(id++, {a, b, c}, false));
    }
  for (const char* word : {"xy", "xzxy", "xzzxy"}) file["added_tokens"].push_back(added_token(id++, word, false));
  return std::make_shared<GrammarVocabulary>(load(file), id);
}

bool has_bit(const std::vector<uint32_t>& mask, int32_t token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

std::vector<uint32_t> mask_of(ContextFreeText& text, size_t words) {
  std::vector<uint32_t> mask(words, 0);
  text.add_allowed(mask);
  return mask;
}

// Walks through the grammar at random, and compares each mask with `may_begin` of the text so far and each word.
void compare_masks(std::shared_ptr<const GrammarVocabulary> words, const std::string& rules,
                   const std::function<bool(std::string_view)>& may_begin, int steps, uint64_t seed) {
  ContextFreeCompiler compiler(words);
  ContextFreeText text(compiler.compile(rules));
  std::mt19937_64 random(seed);
  std::string bytes;
  for (int step = 0; step < steps; ++step) {
    const std::vector<uint32_t> mask = mask_of(text, words->mask_words());
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < static_cast<int32_t>(words->columns()); ++token) {
      const std::string_view word = words->bytes_of(token);
      const bool expected = !word.empty() && may_begin(bytes + std::string(word));
      ASSERT_EQ(has_bit(mask, token), expected) << rules << "\nbehind " << bytes << ", word '" << word << "'";
      if (expected) allowed.push_back(token);
    }
    if (allowed.empty()) {
      EXPECT_TRUE(text.is_final());
      return;
    }
    const int32_t token = allowed[random() % allowed.size()];
    text.push(token);
    bytes += words->bytes_of(token);
  }
}

const char* const kSmallGrammars[] = {
    R"-(root ::= "(" root ")" root | "a"?)-",
    R"-(root ::= [a-c]+ ("," [0-9]{2,4})* ".")-",
    R"-(root ::= sum
sum ::= product | sum "+" product
product ::= value | product "*" value
value ::= [0-9]+ | "(" sum ")" | "once" | "upon")-",
    R"-(root ::= ("Once" | "One" | "Ones upon") " " [a-z ]{0,12} ("." | "\u00e9\u20ac" | "!"))-",
    R"-(root ::= [^"a]* "\"" root?)-",
};

TEST(ContextFree, MasksOfTheDemosWordsAreThoseOfTheirBytes) {
  ContextFreeCompiler bytes(single_bytes());
  for (const char* rules : kSmallGrammars)
    for (const uint64_t seed : {1, 2}) {
      ByteReader reader(bytes, rules);
      compare_masks(
          demo_words(), rules, [&](std::string_view text) { return reader.may_begin(text); }, 5, seed);
    }
}

TEST(ContextFree, MasksOfJsonAreThoseOfItsBytes) {
  ContextFreeCompiler bytes(single_bytes());
  for (const char* schema :
       {R"({"type":"object"})", R"({"type":"string"})", R"({"type":"array","items":{"type":"string"}})",
        R"({"type":"object","properties":{"name":{"type":"string","pattern":"[a-z]+"},"n":{"type":"number"},
                              "l":{"type":"string","maxLength":3}},"required":["name","l"],"additionalProperties":{"type":"string"}})"})
    for (const uint64_t seed : {1, 2, 3}) {
      const std::string rules = json_schema_rules(nlohmann::ordered_json::parse(schema));
      ByteReader reader(bytes, rules);
      compare_masks(
          demo_words(), rules, [&](std::string_view text) { return reader.may_begin(text); }, 8, seed);
      compare_masks(
          nested_words(), rules, [&](std::string_view text) { return reader.may_begin(text); }, 8, seed);
    }
}

// xgrammar skips words that begin with one that was refused.
TEST(ContextFree, MasksOfWordsWithinWordsAreThoseOfTheirBytes) {
  ContextFreeCompiler bytes(single_bytes());
  for (const char* rules :
       {R"(root ::= "ab" | "bab" | "aab\"" | "b[a" | "abb" root)", R"(root ::= [b] root | "[a{" | "ba")",
        R"(root ::= "xzxy" root | "xw" | "xzzxy")", R"(root ::= "a" ("b" | "[" root) | "ba" ("\"" | "aa"))"})
    for (const uint64_t seed : {1, 2, 3}) {
      ByteReader reader(bytes, rules);
      compare_masks(
          nested_words(), rules, [&](std::string_view text) { return reader.may_begin(text); }, 8, seed);
    }
}

TEST(ContextFree, MasksOfBracketsAreThoseOfAStack) {
  const auto may_begin = [](std::string_view text) {
    std::string open;
    for (size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (i > 0 && open.empty()) return false;  // after the last bracket
      if (c == '[' || c == '{')
        open += c;
      else if (!open.empty() && c == (open.back() == '[' ? ']' : '}'))
        open.pop_back();
      else
        return false;
    }
    return true;
  };
  for (const uint64_t seed : {1, 2, 3, 4})
    compare_masks(nested_words(), R"(root ::= "[" root* "]" | "{" root* "}")", may_begin, 20, seed);
}

// An expression at random, in the syntax that both have.
std::string random_expression(std::mt19937_64& random, int depth) {
  if (depth == 0 || random() % 5 == 0) return std::vector<std::string>{"a", "b", "[ab]", "[^a]", "c"}[random() % 5];
  const auto part = [&] { return random_expression(random, depth - 1); };
  switch (random() % 6) {
    case 0:
      return part() + part();
    case 1:
      return part() + part() + part();
    case 2:
      return "(?:" + part() + "|" + part() + ")";
    case 3:
      return "(" + part() + ")" + std::vector<std::string>{"?", "*", "+"}[random() % 3];
    case 4:
      return "(" + part() + ")" + std::vector<std::string>{"{2}", "{0,2}", "{1,3}", "{2,}", "{0}"}[random() % 5];
    default:
      return "(?:" + part() + "|" + part() + "|)";
  }
}

// The same as a rule: letters in quotes, and nothing spelled out.
std::string as_rule(const std::string& expression) {
  std::string rule;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '[' || c == '{') {
      const size_t end = expression.find(c == '[' ? ']' : '}', i);
      rule += expression.substr(i, end + 1 - i);
      i = end;
    } else if (c == '(') {
      rule += '(';
      if (expression[i + 1] == '?') i += 2;
    } else if (std::isalpha(c) != 0) {
      rule += std::string(" \"") + c + '"';
    } else {
      rule += c == '|' && expression[i + 1] == ')' ? "| \"\"" : std::string(1, c);
    }
  }
  return rule;
}

TEST(ContextFree, ExpressionsInRulesHoldTheTextsOfOurAutomaton) {
  const auto words = single_bytes();
  ContextFreeCompiler compiler(words);
  std::mt19937_64 random(11);
  int64_t in = 0, out = 0;
  for (int i = 0; i < 400; ++i) {
    const std::string expression = random_expression(random, 4);
    Grammar grammar(words, expression);
    for (const std::string& rules :
         {"root ::=" + as_rule(expression), "root ::= Regex(" + rule_literal(expression) + ")",
          "root ::= \"<\" Regex(" + rule_literal(expression) + ", json_string=true) \">\""}) {
      const bool is_part = rules.ends_with("\">\"");
      ByteReader reader(compiler, rules);
      for (int k = 0; k < 30; ++k) {
        std::string text;
        for (size_t size = random() % 9; size > 0; --size) text += "abc"[random() % 3];
        int32_t state = grammar.start();
        for (const char c : text)
          if (state >= 0) state = grammar.after(state, c);
        const bool expected = state >= 0 && grammar.is_complete(state);
        (expected ? in : out) += 1;
        ASSERT_EQ(reader.matches(is_part ? "<" + text + ">" : text), expected) << rules << " and " << text;
      }
    }
  }
  EXPECT_GT(in, 1000);
  EXPECT_GT(out, 1000);
}

// Byte for byte as our automaton reads classes of characters, in rules and in expressions.
TEST(ContextFree, CharactersAreWellFormedUtf8) {
  const auto words = single_bytes();
  ContextFreeCompiler compiler(words);
  for (const std::string set : {"[^a]", "[^\\u00e9]", "[\\u0700-\\uffff]", "[\\u00e9-\\u00ff]"}) {
    Grammar grammar(words, set);
    for (const std::string& rules : {"root ::= " + set, "root ::= Regex(" + rule_literal(set) + ")"}) {
      const auto compiled = compiler.compile(rules);
      // All of up to four bytes, but that the last ones are at the ends of their range.
      const std::function<void(const std::string&, int32_t)> compare = [&](const std::string& text, int32_t state) {
        ContextFreeText place(compiled);
        place.follow(bytes_as_tokens(text));
        std::vector<uint32_t> mask(8, 0);
        place.add_allowed(mask);
        ASSERT_EQ(mask, grammar.allowed(state)) << rules << " behind " << ::testing::PrintToString(text);
        for (int32_t byte = 0; byte < 256; ++byte) {
          const bool is_edge = text.empty() || byte == 0x80 || byte == 0x8f || byte == 0x90 || byte == 0x9f ||
                               byte == 0xa0 || byte == 0xbf;
          if (is_edge && has_bit(mask, byte)) compare(text + static_cast<char>(byte), grammar.after(state, byte));
        }
      };
      compare("", grammar.start());
    }
  }
}

TEST(ContextFree, ATextThatGoesBackIsAsOneThatNeverWasThere) {
  const auto words = demo_words();
  ContextFreeCompiler compiler(words);
  const auto grammar = compiler.compile(json_object_rules());
  std::mt19937_64 random(7);
  ContextFreeText text(grammar);
  std::vector<int32_t> tokens;
  for (int step = 0; step < 60; ++step) {
    if (!tokens.empty() && random() % 4 == 0) tokens.resize(random() % tokens.size());  // drafts that were wrong
    text.follow(tokens);
    ContextFreeText fresh(grammar);
    fresh.follow(tokens);
    const std::vector<uint32_t> mask = mask_of(text, words->mask_words());
    ASSERT_EQ(mask, mask_of(fresh, words->mask_words()));
    ASSERT_EQ(text.is_complete(), fresh.is_complete());
    std::vector<int32_t> allowed;
    for (int32_t token = 0; token < 2048; ++token)
      if (has_bit(mask, token)) allowed.push_back(token);
    if (allowed.empty()) {
      tokens.clear();
      continue;
    }
    tokens.push_back(allowed[random() % allowed.size()]);
  }
}

TEST(ContextFree, ATokenThatMayNotComeIsAnErrorAndChangesNothing) {
  ContextFreeCompiler compiler(single_bytes());
  ContextFreeText text(compiler.compile(R"(root ::= "ab")"));
  expect_error([&] { text.push('b'); }, {"token 98 may not come here"});
  expect_error([&] { text.push(-1); }, {"token -1"});
  expect_error([&] { text.push(5000); }, {"token 5000"});
  text.push('a');
  EXPECT_FALSE(text.is_complete());
  text.push('b');
  EXPECT_TRUE(text.is_final());
  EXPECT_EQ(text.tokens(), 2u);
}

TEST(ContextFree, RulesThatCannotBeAreRefusedWithTheirPlace) {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"", {"root"}},
      {"root ::= \"a", {"read grammar"}},
      {"root ::= \"a\"\nother ::= missing", {"line 2", "missing"}},
      {"start ::= \"a\"", {"root"}},
      {"root ::= [z-a]", {"lower bound"}},
      {std::string("root ::= \"a\0\"", 12), {"zero byte"}},
      {"root[temperature=0.5] ::= \"a\"", {"temperature"}},
      {"root ::= Regex(\"(?=a)b\")", {"egex"}},
      {"root ::= Regex(\"\\\\yb\")", {"\\y"}},
      {"root ::= \"" + std::string(300 << 10, 'a') + "\"", {"307"}},
      {"root ::= " + std::string(20000, '(') + "\"a\"" + std::string(20000, ')'), {"Nest"}},
  };
  ContextFreeCompiler compiler(single_bytes());
  for (const auto& [rules, words] : cases) {
    const std::string message = error_of([&] { compiler.compile(rules); });
    EXPECT_NE(message, "") << rules.substr(0, 100);
    for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << word << " in " << message;
  }
}

TEST(ContextFree, TheCacheOfGrammarsIsBounded) {
  constexpr size_t kBytes = 256 << 10;
  ContextFreeCompiler compiler(demo_words(), kBytes);
  size_t largest = 0;
  std::vector<std::shared_ptr<const ContextFreeGrammar>> used;
  for (int i = 0; i < 60; ++i) {
    std::string rules = "root ::= \"[\" one \"]\"\none ::= ";
    for (int k = 0; k < 20; ++k) rules += fmt::format("{} \"word {} {}\"", k == 0 ? "" : "|", i, k);
    used.push_back(compiler.compile(rules));
    largest = std::max(largest, compiler.cached_bytes());
    EXPECT_EQ(compiler.compile(rules), used.back()) << "not the one in use";
  }
  EXPECT_GT(largest, kBytes / 2);
  EXPECT_LT(largest, 2 * kBytes);
  ContextFreeText text(used.front());  // lives on
  std::vector<uint32_t> mask(demo_words()->mask_words(), 0);
  text.add_allowed(mask);
  EXPECT_TRUE(std::ranges::any_of(mask, [](uint32_t word) { return word != 0; }));
  for (int i = 0; i < 200; ++i) EXPECT_THROW(compiler.compile(fmt::format("root ::= \"a\" x{}", i)), Error);
}

// Nothing stops xgrammar once it compiles: a job pays for it before, and its end is nobody's where nobody waits.
TEST(ContextFree, CompilingIsPaidForBeforeItBegins) {
  std::string rules = "root ::= r0";
  for (int i = 0; i < 300; ++i) rules += fmt::format(" | r{}", i);
  for (int i = 0; i < 300; ++i) rules += fmt::format("\nr{} ::= [a-z]* \"{}\"", i, i);
  ContextFreeCompiler compiler(demo_words());
  const size_t before = compiler.cached_bytes();
  {
    const WorkBudget budget(rules.size());
    EXPECT_THROW(compiler.compile(rules), WorkExceeded);
  }
  {
    const WorkBudget cancelled(UINT64_MAX, [] { return true; });
    EXPECT_THROW(compiler.compile(rules), WorkCancelled);
  }
  EXPECT_EQ(compiler.cached_bytes(), before) << "it was compiled";
  int looks = 0;
  {
    const WorkBudget left(UINT64_MAX, [&] { return ++looks > 2; });  // the client leaves while it compiles
    EXPECT_THROW(compiler.compile(rules), WorkCancelled);
  }
  EXPECT_GT(compiler.cached_bytes(), before);
  EXPECT_NE(compiler.compile(rules), nullptr);
}

TEST(ContextFree, ManyThreadsMayCompile) {
  ContextFreeCompiler compiler(single_bytes(), 1 << 20);
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        ContextFreeText text(compiler.compile(fmt::format("root ::= \"a{}\" [0-9]+", (i + t) % 7)));
        text.push('a');
        if (text.is_complete()) ++wrong;
        if (error_of([&] { compiler.compile("root ::= nothing"); }).empty()) ++wrong;
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

// What a client may send within the size of a body. Each is compiled and followed, or refused, in little time.
TEST(ContextFree, GrammarsMadeToDoHarmEndSoon) {
  std::string many = "root ::= r0", alternatives = "root ::= \"x\"", exponential = "root ::= r20\nr0 ::= \"a\" | \"b\"";
  for (int i = 0; i < 2000; ++i) many += fmt::format("\nr{} ::= \"a\" r{} | \"b\"", i, (i + 1) % 2000);
  for (int i = 0; i < 10000; ++i) alternatives += fmt::format(" | \"word{}\"", i * 7919 % 10007);
  for (int i = 1; i <= 20; ++i) exponential += fmt::format("\nr{} ::= r{} r{}", i, i - 1, i - 1);
  const std::string cases[] = {
      "root ::= root",
      "root ::= root root | \"a\" | \"\"",
      "root ::= (root | \"\")*",
      "root ::= ((\"a\"*)*)*",
      "root ::= ((([a-z]{0,1000}){0,1000}){0,1000}){0,1000}",
      "root ::= \"a\"{1000000}",
      "root ::= Regex(\"((a{1,100}){1,100}){1,100}\")",
      "root ::= Regex(\"(a|b)*a(a|b){18}\")",
      "root ::= a b\na ::= b a | \"\"\nb ::= a b | \"\"",
      many,
      alternatives,
      exponential,
  };
  ContextFreeCompiler compiler(demo_words());
  int32_t letter_a = 0;
  while (demo_words()->bytes_of(letter_a) != "a") ++letter_a;
  for (const std::string& rules : cases) {
    std::string message;
    const double seconds = test::seconds_of([&] {
      message = error_of([&] {
        ContextFreeText text(compiler.compile(rules));
        std::vector<uint32_t> mask(demo_words()->mask_words());
        for (int i = 0; i < 30; ++i) {
          text.add_allowed(mask);
          text.push(letter_a);
        }
      });
    });
    if (std::getenv("NODEWRIGHT_SHOW_TIMES") != nullptr)
      fmt::print("{:.3f} s  {}  {}\n", seconds, rules.substr(0, 50), message.substr(0, 100));
    EXPECT_LT(seconds, test::allowed_seconds(10)) << rules.substr(0, 100);
  }
}

}  // namespace
}  // namespace nodewright::test
