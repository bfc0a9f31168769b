#include "text/grammar/patterns/pattern_syntax.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>

#include "base/work_budget.h"
#include "runtime/error.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr int kMostRepeats = 10'000;
constexpr int kDeepestPattern = 200;
// About 100 bytes each. Every character of a pattern makes a state at least, of which there may be fewer.
constexpr size_t kMostPatternNodes = 400'000;

class PatternParser {
 public:
  explicit PatternParser(std::string_view pattern) : pattern_(pattern) {}

  PatternNode parse() {
    if (peek() == U'^') take();
    PatternNode node = choice(0);
    if (peek()) refuse("an unmatched )");
    return node;
  }

 private:
  using Kind = PatternNode::Kind;

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error({.doing = "read regular expression",
                 .object = std::string(pattern_.substr(0, 200)),
                 .detail = fmt::format("{} at byte {}", what, at_),
                 .fault = Fault::usage});
  }

  std::optional<char32_t> peek() const {
    if (at_ == pattern_.size()) return std::nullopt;
    const Utf8Step step = read_utf8(pattern_.substr(at_));
    if (step.kind != Utf8Kind::complete) refuse("invalid UTF-8");
    return step.code_point;
  }
  char32_t take() {
    const std::optional<char32_t> c = peek();
    if (!c) refuse("an end that is too early");
    at_ += read_utf8(pattern_.substr(at_)).size;
    return *c;
  }

  void count() {
    if (++counted_ > kMostPatternNodes) refuse(fmt::format("more than {} characters and groups", kMostPatternNodes));
    WorkBudget::spend(1);
  }

  PatternNode choice(int depth) {
    if (depth > kDeepestPattern) refuse(fmt::format("more than {} nested groups", kDeepestPattern));
    PatternNode node{.kind = Kind::choice, .characters = {}, .parts = {}};
    do node.parts.push_back(sequence(depth));
    while (peek() == U'|' && take());
    if (node.parts.size() > 1) return node;
    PatternNode only = std::move(node.parts[0]);
    return only;
  }

  PatternNode sequence(int depth) {
    count();
    PatternNode node;
    while (peek() && *peek() != U'|' && *peek() != U')') {
      if (*peek() == U'$' && at_ + 1 == pattern_.size()) {
        take();
        break;
      }
      node.parts.push_back(repeated(atom(depth)));
    }
    return node;
  }

  PatternNode atom(int depth) {
    count();
    const char32_t c = take();
    switch (c) {
      case U'(': {
        bool joins = false;
        if (peek() == U'?') {
          take();
          joins = peek() == U',';
          if (!joins && peek() != U':') refuse("a group that begins with (? and is not (?: or (?,");
          take();
        }
        PatternNode inside = choice(depth + 1);
        if (peek() != U')') refuse("a group without its )");
        take();
        if (!joins) return inside;
        if (inside.kind != Kind::choice) refuse("a (?, group that joins nothing");
        inside.kind = Kind::joined;
        return inside;
      }
      case U'[':
        return characters(char_class());
      case U'.':
        return characters(all_but({{U'\n', U'\n'}}));
      case U'\\':
        return characters(escape());
      case U'*':
      case U'+':
      case U'?':
      case U'{':
        refuse("a repetition of nothing");
      case U'^':
      case U'$':
        refuse("an anchor inside");
      default:
        return characters({{c, c}});
    }
  }

  static PatternNode characters(CodeRanges ranges) {
    return {.kind = Kind::characters, .characters = normalized(std::move(ranges)), .parts = {}};
  }

  PatternNode repeated(PatternNode node) {
    int least = 0, most = -1;
    switch (peek().value_or(0)) {
      case U'*':
        break;
      case U'+':
        least = 1;
        break;
      case U'?':
        most = 1;
        break;
      case U'{':
        take();
        least = most = number();
        if (peek() == U',') {
          take();
          most = peek() == U'}' ? -1 : number();
        }
        if (peek() != U'}') refuse("a repetition without its }");
        if (most >= 0 && most < least) refuse("a repetition whose end is before its start");
        break;
      default:
        return node;
    }
    take();
    if (peek() == U'?' || peek() == U'*' || peek() == U'+' || peek() == U'{') refuse("a repetition of a repetition");
    PatternNode repeat{.kind = Kind::repeat, .characters = {}, .parts = {}, .least = least, .most = most};
    repeat.parts.push_back(std::move(node));
    return repeat;
  }

  int number() {
    int value = -1;
    while (peek() && *peek() >= U'0' && *peek() <= U'9') {
      value = std::max(value, 0) * 10 + static_cast<int>(take() - U'0');
      if (value > kMostRepeats) refuse(fmt::format("more than {} repetitions", kMostRepeats));
    }
    if (value < 0) refuse("a repetition without its number");
    return value;
  }

  CodeRanges char_class() {
    const bool negated = peek() == U'^';
    if (negated) take();
    CodeRanges ranges;
    for (bool first = true; first || peek() != U']'; first = false) {
      if (peek() == U'[') refuse("a [ within a class, without \\,");
      count();
      CodeRanges item = class_item();
      const bool single = item.size() == 1 && item[0].first == item[0].last;
      if (single && peek() == U'-' && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != ']') {
        take();
        const CodeRanges end = class_item();
        if (end.size() != 1 || end[0].first != end[0].last || end[0].first < item[0].first)
          refuse("a range of characters that ends before it starts");
        item[0].last = end[0].first;
      }
      ranges.insert(ranges.end(), item.begin(), item.end());
    }
    take();
    if (negated) {
      ranges.push_back({0xd800, 0xdfff});  // surrogates, which no text has
      ranges = all_but(ranges);
    }
    if (ranges.empty()) refuse("a class of no character");
    return ranges;
  }

  CodeRanges class_item() {
    const char32_t c = take();
    if (c == U'\\') return escape();
    return {{c, c}};
  }

  char32_t hex(int digits) {
    char32_t value = 0;
    for (int i = 0; i < digits; ++i) {
      const char32_t c = take();
      const bool digit = c >= U'0' && c <= U'9', letter = (c | 32) >= U'a' && (c | 32) <= U'f';
      if (!digit && !letter) refuse("a hexadecimal digit is missing");
      value = value * 16 + (digit ? c - U'0' : (c | 32) - U'a' + 10);
    }
    return value;
  }

  CodeRanges escape() {
    const char32_t c = take();
    const CodeRanges digits = {{U'0', U'9'}}, words = {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}},
                     spaces = {{U'\t', U'\r'}, {U' ', U' '}};
    const auto one = [](char32_t code) { return CodeRanges{{code, code}}; };
    switch (c) {
      case U'd':
        return digits;
      case U'D':
        return all_but(digits);
      case U'w':
        return words;
      case U'W':
        return all_but(words);
      case U's':
        return spaces;
      case U'S':
        return all_but(spaces);
      case U'n':
        return one(U'\n');
      case U'r':
        return one(U'\r');
      case U't':
        return one(U'\t');
      case U'f':
        return one(U'\f');
      case U'v':
        return one(U'\v');
      case U'0':
        return one(0);
      case U'x':
        return one(hex(2));
      case U'u': {
        const char32_t code = hex(4);
        if (code >= 0xd800 && code <= 0xdfff) refuse("a surrogate");
        return one(code);
      }
      default:
        if ((c >= U'0' && c <= U'9') || ((c | 32) >= U'a' && (c | 32) <= U'z'))
          refuse(fmt::format("\\{}, which is not supported,", static_cast<char>(c)));
        return one(c);
    }
  }

  std::string_view pattern_;
  size_t at_ = 0, counted_ = 0;
};

}  // namespace

PatternNode parse_pattern(std::string_view pattern) { return PatternParser(pattern).parse(); }

}  // namespace nodewright
