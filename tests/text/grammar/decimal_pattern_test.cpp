// Numbers of a range and strings of a format as expressions: random numbers against the bounds, and texts of each
// format.
#include "text/grammar/patterns/decimal_pattern.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

#include "tests/support/error_text.h"
#include "tests/text/tokenizer_goldens.h"
#include "text/grammar/grammar.h"
#include "text/grammar/patterns/string_formats.h"
#include "text/grammar/schema/json_schema.h"

namespace nodewright {
namespace {

bool matches_pattern(const std::string& pattern, std::string_view text) {
  static const auto bytes = std::make_shared<GrammarVocabulary>(load(byte_tokenizer()), 256);
  Grammar grammar(bytes, pattern);
  int32_t state = grammar.start();
  for (const char c : text)
    if (state = grammar.after(state, static_cast<uint8_t>(c)); state < 0) return false;
  return grammar.is_complete(state);
}

// Thousandths, so that comparing is exact.
std::string decimal_text(int64_t thousandths, int digits) {
  std::string text =
      fmt::format("{}{}.{:03}", thousandths < 0 ? "-" : "", std::abs(thousandths) / 1000, std::abs(thousandths) % 1000);
  text.resize(text.size() - static_cast<size_t>(3 - digits));
  if (text.ends_with('.')) text.pop_back();
  return text;
}

TEST(DecimalPattern, HoldsTheNumbersOfItsRange) {
  std::mt19937_64 random(3);
  const auto number = [&](int64_t most) { return static_cast<int64_t>(random() % (2 * most + 1)) - most; };
  const int64_t steps[] = {1000, 100, 10, 1};
  for (int i = 0; i < 400; ++i) {
    const int64_t most = std::vector<int64_t>{1500, 12'000, 2'000'000}[random() % 3];
    const auto bound = [&] {
      const size_t digits = random() % 4;
      return number(most) / steps[digits] * steps[digits];
    };
    const int64_t ends[2] = {bound(), bound()};
    const bool has_least = random() % 4 != 0, has_most = !has_least || random() % 4 != 0;
    const bool excluded[2] = {random() % 2 == 0, random() % 2 == 0};
    const auto end = [&](bool there, int which) {
      return there ? decimal_bound(decimal_text(ends[which], 3), excluded[which]) : std::nullopt;
    };
    const std::string pattern = decimal_pattern(end(has_least, 0), end(has_most, 1));
    const auto holds = [&](int64_t value) {
      return (!has_least || value > ends[0] || (value == ends[0] && !excluded[0])) &&
             (!has_most || value < ends[1] || (value == ends[1] && !excluded[1]));
    };
    if (pattern.empty()) {
      EXPECT_TRUE(has_least && has_most && (ends[0] > ends[1] || (ends[0] == ends[1] && (excluded[0] || excluded[1]))));
      continue;
    }
    for (int k = 0; k < 40; ++k) {
      int64_t value = k < 6 ? ends[k % 2] + k / 2 - 1 : number(most);
      const int digits = static_cast<int>(random() % 4);
      value = value / steps[digits] * steps[digits];
      const std::string text = decimal_text(value, digits);
      if (value == 0 && text.starts_with('-')) continue;
      ASSERT_EQ(matches_pattern(pattern, text), holds(value))
          << text << " of " << (has_least ? decimal_text(ends[0], 3) : "") << (excluded[0] ? " (" : " [") << " to "
          << (has_most ? decimal_text(ends[1], 3) : "") << (excluded[1] ? ")" : "]") << "\n"
          << pattern;
    }
  }
}

TEST(DecimalPattern, ReadsNumbersAsJsonWritesThem) {
  const auto text = [](std::string_view number) {
    const auto bound = decimal_bound(number, false);
    return !bound ? "none" : fmt::format("{}{}.{}", bound->is_negative ? "-" : "", bound->whole, bound->fraction);
  };
  EXPECT_EQ(text("0"), "0.");
  EXPECT_EQ(text("-0.0"), "0.");
  EXPECT_EQ(text("-12.50"), "-12.5");
  EXPECT_EQ(text("1e-05"), "0.00001");
  EXPECT_EQ(text("1.25e+3"), "1250.");
  EXPECT_EQ(text("1.5e2"), "150.");
  EXPECT_EQ(text("123456789012345678"), "123456789012345678.");
  EXPECT_EQ(text("1234567890123456789"), "none");
  EXPECT_EQ(text("1e300"), "none");
  EXPECT_EQ(text("1e-30"), "none");
}

TEST(DecimalPattern, BoundsOfNumbersAndFormatsAreInTheSubset) {
  const auto pattern = [](const char* schema) { return json_schema_pattern(nlohmann::ordered_json::parse(schema)); };
  EXPECT_TRUE(matches_pattern(pattern(R"({"type":"number","minimum":-0.5,"maximum":1})"), "0.75"));
  EXPECT_FALSE(matches_pattern(pattern(R"({"type":"number","minimum":-0.5,"maximum":1})"), "1.01"));
  EXPECT_TRUE(
      matches_pattern(pattern(R"({"type":"string","format":"uuid"})"), R"("01234567-89ab-cdef-0123-456789abcdef")"));
  EXPECT_FALSE(matches_pattern(pattern(R"({"type":"number","minimum":1,"exclusiveMinimum":2})"), "2"));
  EXPECT_TRUE(matches_pattern(pattern(R"({"type":"number","minimum":1,"exclusiveMinimum":2})"), "2.5"));
  expect_error([&] { pattern(R"({"type":"string","format":"uuid","minLength":2})"); }, {"'minLength'", "'format'"});
  expect_error([&] { pattern(R"({"type":"object"})"); }, {"'properties'"});
}

TEST(StringFormats, HoldTheirTexts) {
  const std::tuple<const char*, std::vector<std::string>, std::vector<std::string>> cases[] = {
      {"date", {"2024-02-28", "1999-12-31"}, {"2024-02-30", "2023-02-29", "2024-04-31", "24-01-01"}},
      {"time", {"23:59:59Z", "00:00:00.5+01:30"}, {"24:00:00Z", "12:60:00Z", "12:00:00"}},
      {"date-time", {"2024-01-31T12:00:00Z"}, {"2024-01-31 12:00:00Z", "2024-01-31"}},
      {"duration", {"P1Y2M3D", "PT5M", "P3W", "P1DT12H"}, {"P", "PT", "P1H", "1D", "P1Y3D"}},
      {"uuid", {"01234567-89ab-cdef-0123-456789abcdef"}, {"0123456789abcdef0123456789abcdef"}},
      {"email", {"a.b+c@example.org"}, {"a@b", "@example.org", "a..b@example.org"}},
      {"hostname", {"localhost", "a-b.example.org"}, {"-a", "a..b", "a_b"}},
      {"ipv4", {"0.0.0.0", "255.249.10.1"}, {"256.0.0.1", "1.2.3", "01.2.3.4"}},
      {"ipv6", {"1:2:3:4:5:6:7:ffff"}, {"1:2:3", "g:2:3:4:5:6:7:8"}},
      {"uri", {"https://example.org/a?b=c#d", "ftp://host:21"}, {"example.org", "https://"}},
  };
  for (const auto& [format, in, out] : cases) {
    for (const std::string& text : in)
      EXPECT_TRUE(matches_pattern(string_format_pattern(format), text)) << format << text;
    for (const std::string& text : out)
      EXPECT_FALSE(matches_pattern(string_format_pattern(format), text)) << format << text;
    EXPECT_NE(known_string_formats().find(format), std::string::npos);
  }
  EXPECT_EQ(string_format_pattern("regex"), "");
}

}  // namespace
}  // namespace nodewright
