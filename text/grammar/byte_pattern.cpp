#include "text/grammar/byte_pattern.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <optional>

#include "runtime/error.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr size_t kMostPatternStates = 200'000;
constexpr int kMostRepeats = 10'000;
constexpr int kDeepestPattern = 200;
constexpr char32_t kLastCodePoint = 0x10ffff;

struct CodeRange {
  char32_t first, last;
};
using CodeRanges = std::vector<CodeRange>;

// In order, without overlaps.
CodeRanges normalized(CodeRanges ranges) {
  std::ranges::sort(ranges, {}, &CodeRange::first);
  CodeRanges merged;
  for (const CodeRange& r : ranges)
    if (!merged.empty() && r.first <= merged.back().last + 1)
      merged.back().last = std::max(merged.back().last, r.last);
    else
      merged.push_back(r);
  return merged;
}

CodeRanges all_but(const CodeRanges& ranges) {
  CodeRanges rest;
  char32_t next = 0;
  for (const CodeRange& r : normalized(ranges)) {
    if (r.first > next) rest.push_back({next, r.first - 1});
    next = r.last + 1;
  }
  if (next <= kLastCodePoint) rest.push_back({next, kLastCodePoint});
  return rest;
}

// One byte range for each byte of the characters of a range, whose encodings differ in nothing else.
using ByteRanges = std::vector<std::pair<uint8_t, uint8_t>>;

// After Russ Cox, "Regular expression matching in the wild" (2010), UTF-8: a range is cut where the number of bytes
// changes, then until the bytes vary independently.
void append_byte_ranges(CodeRange r, std::vector<ByteRanges>& all) {
  if (r.first > r.last) return;
  if (r.first <= 0xdfff && r.last >= 0xd800) {  // surrogates have no encoding
    if (r.first < 0xd800) append_byte_ranges({r.first, 0xd7ff}, all);
    return append_byte_ranges({0xe000, r.last}, all);
  }
  for (const char32_t end : {0x7fu, 0x7ffu, 0xffffu})
    if (r.first <= end && r.last > end) {
      append_byte_ranges({r.first, end}, all);
      return append_byte_ranges({end + 1, r.last}, all);
    }
  for (int bits = 6; bits <= 18 && r.first > 0x7f; bits += 6) {
    const char32_t low = (1u << bits) - 1;
    if ((r.first & ~low) == (r.last & ~low)) continue;
    if ((r.first & low) != 0) {
      append_byte_ranges({r.first, r.first | low}, all);
      return append_byte_ranges({(r.first | low) + 1, r.last}, all);
    }
    if ((r.last & low) != low) {
      append_byte_ranges({r.first, (r.last & ~low) - 1}, all);
      return append_byte_ranges({r.last & ~low, r.last}, all);
    }
  }
  std::string first, last;
  append_utf8(r.first, first);
  append_utf8(r.last, last);
  ByteRanges bytes;
  for (size_t i = 0; i < first.size(); ++i)
    bytes.emplace_back(static_cast<uint8_t>(first[i]), static_cast<uint8_t>(last[i]));
  all.push_back(std::move(bytes));
}

struct PatternNode {
  enum class Kind { characters, sequence, choice, repeat, joined } kind = Kind::sequence;
  CodeRanges characters;
  std::vector<PatternNode> parts;  // of a joined one: what is between, then what is joined
  int least = 0, most = -1;        // of a repeat; -1: without end
};

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
    if (negated) ranges = all_but(ranges);
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
  size_t at_ = 0;
};

// Thompson's construction.
class PatternCompiler {
 public:
  explicit PatternCompiler(std::string_view pattern) : text_(pattern) {}

  BytePattern compile(const PatternNode& node) {
    result_.start = state();
    result_.accept = add(node, result_.start);
    return std::move(result_);
  }

 private:
  using Kind = PatternNode::Kind;

  int32_t state() {
    if (result_.states.size() >= kMostPatternStates)
      throw Error({.doing = "read regular expression",
                   .object = std::string(text_.substr(0, 200)),
                   .detail = fmt::format("it needs more than {} states", kMostPatternStates),
                   .advice = "fewer or smaller repetitions",
                   .fault = Fault::usage});
    result_.states.emplace_back();
    return static_cast<int32_t>(result_.states.size() - 1);
  }
  BytePattern::State& at(int32_t id) { return result_.states[static_cast<size_t>(id)]; }

  // Where the text is after `node`, from `from`.
  int32_t add(const PatternNode& node, int32_t from) {
    switch (node.kind) {
      case Kind::characters: {
        std::vector<ByteRanges> all;
        for (const CodeRange& r : node.characters) append_byte_ranges(r, all);
        const int32_t to = state();
        for (const ByteRanges& bytes : all) {
          int32_t here = from;
          for (size_t i = 0; i < bytes.size(); ++i) {
            const int32_t next = i + 1 == bytes.size() ? to : state();
            at(here).edges.push_back({bytes[i].first, bytes[i].second, next});
            here = next;
          }
        }
        return to;
      }
      case Kind::sequence:
        for (const PatternNode& part : node.parts) from = add(part, from);
        return from;
      case Kind::choice: {
        const int32_t to = state();
        for (const PatternNode& part : node.parts) {
          const int32_t start = state();
          at(from).free.push_back(start);
          const int32_t end = add(part, start);
          at(end).free.push_back(to);
        }
        return to;
      }
      case Kind::repeat:
        return repeat(node, from);
      case Kind::joined:
        return joined(node, from);
    }
    return from;
  }

  // Each part once: it begins where none came before it, or behind what is between.
  int32_t joined(const PatternNode& node, int32_t from) {
    int32_t some = -1;  // at least one part came
    for (size_t i = 1; i < node.parts.size(); ++i) {
      const int32_t start = state();
      at(from).free.push_back(start);
      if (some >= 0) {
        const int32_t between = add(node.parts[0], some);
        at(between).free.push_back(start);
      }
      const int32_t end = add(node.parts[i], start), after = state();
      at(end).free.push_back(after);
      if (some >= 0) at(some).free.push_back(after);
      some = after;
    }
    return some;
  }

  int32_t repeat(const PatternNode& node, int32_t from) {
    for (int i = 0; i < node.least; ++i) from = add(node.parts[0], from);
    const int32_t to = state();
    at(from).free.push_back(to);
    if (node.most < 0) {
      const int32_t again = state();
      at(from).free.push_back(again);
      const int32_t end = add(node.parts[0], again);
      at(end).free.push_back(again);
      at(end).free.push_back(to);
      return to;
    }
    for (int i = node.least; i < node.most; ++i) {
      const int32_t start = state();
      at(from).free.push_back(start);
      from = add(node.parts[0], start);
      at(from).free.push_back(to);
    }
    return to;
  }

  std::string_view text_;
  BytePattern result_;
};

}  // namespace

BytePattern parse_byte_pattern(std::string_view pattern) {
  const PatternNode node = PatternParser(pattern).parse();
  return PatternCompiler(pattern).compile(node);
}

std::string literal_pattern(std::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (std::string_view("\\.[]()|*+?{}^$").find(c) != std::string_view::npos) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

}  // namespace nodewright
