// A regular expression of guided decoding, then a zero byte and the bytes that choose its text. It is refused with the
// reason, or its automaton follows texts within what text/grammar promises (grammar_walk.h), and finds those complete
// that another matcher finds, which walks over characters and over the expression as a tree.
#include <algorithm>
#include <optional>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/grammar_walk.h"
#include "text/grammar/patterns/byte_pattern.h"
#include "text/grammar/patterns/pattern_syntax.h"
#include "text/unicode/utf8.h"

using namespace nodewright;

namespace {

constexpr int kMostTokens = 12;
constexpr uint64_t kManyUnits = 300'000;

// Invalid UTF-8, and a character that is cut: nothing.
std::optional<std::u32string> characters_of(std::string_view text) {
  std::u32string all;
  while (!text.empty()) {
    const Utf8Step step = read_utf8(text);
    if (step.kind != Utf8Kind::complete) return std::nullopt;
    all += step.code_point;
    text.remove_prefix(step.size);
  }
  return all;
}

class TreeMatcher {
 public:
  explicit TreeMatcher(const PatternNode& root) : root_(root) {}

  // Nothing: it would take too long to say.
  std::optional<bool> matches(const std::u32string& text) {
    text_ = text;
    steps_ = 0;
    Places start(text.size() + 1, false);
    start[0] = true;
    const Places ends = after(root_, start);
    if (steps_ > kMostSteps) return std::nullopt;
    return ends.back();
  }

 private:
  using Kind = PatternNode::Kind;
  using Places = std::vector<bool>;  // between characters
  static constexpr int kMostSteps = 3000;

  static bool is_empty(const Places& places) { return std::ranges::find(places, true) == places.end(); }
  static Places both(Places a, const Places& b) {
    for (size_t i = 0; i < a.size(); ++i) a[i] = a[i] || b[i];
    return a;
  }

  // Where the text may be after `node`, from any of these places.
  Places after(const PatternNode& node, Places from) {
    if (++steps_ > kMostSteps || is_empty(from)) return Places(from.size(), false);
    switch (node.kind) {
      case Kind::characters: {
        Places to(from.size(), false);
        for (size_t i = 0; i < text_.size(); ++i)
          to[i + 1] = from[i] && std::ranges::any_of(node.characters, [&](const CodeRange& one) {
                        return one.first <= text_[i] && text_[i] <= one.last;
                      });
        return to;
      }
      case Kind::sequence:
        for (const PatternNode& part : node.parts) from = after(part, std::move(from));
        return from;
      case Kind::choice: {
        Places to(from.size(), false);
        for (const PatternNode& part : node.parts) to = both(std::move(to), after(part, from));
        return to;
      }
      case Kind::repeat:
        return repeated(node, std::move(from));
      case Kind::joined: {
        Places some(from.size(), false);
        for (size_t i = 1; i < node.parts.size(); ++i)
          some = both(some, after(node.parts[i], both(from, after(node.parts[0], some))));
        return some;
      }
    }
    return from;
  }

  // Where one more repetition changes nothing, no more of them do.
  Places repeated(const PatternNode& node, Places from) {
    for (int i = 0; i < node.least; ++i) {
      Places next = after(node.parts[0], from);
      if (next == from) break;
      from = std::move(next);
    }
    Places all = from;
    for (int i = node.least; node.most < 0 || i < node.most; ++i) {
      from = after(node.parts[0], std::move(from));
      Places more = both(all, from);
      if (more == all) break;
      all = std::move(more);
    }
    return all;
  }

  const PatternNode& root_;
  std::u32string text_;
  int steps_ = 0;
};

void follow(const std::string& pattern, std::string_view choices) {
  const PatternNode tree = parse_pattern(pattern);
  TreeMatcher matcher(tree);
  fuzz::Script script(choices);
  fuzz::GrammarWalk walk(pattern, script);
  for (int i = 0; i < kMostTokens; ++i) {
    const auto text = characters_of(walk.text());
    const std::optional<bool> expected = text ? matcher.matches(*text) : false;
    if (expected) fuzz::require(walk.is_complete() == *expected, "a text is complete where it matches");
    if (!walk.step()) return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::TwoParts parts = fuzz::two_parts(data, size);
  const fuzz::Meter all(UINT64_MAX / 2);
  try {
    fuzz::metered("reading a pattern", {fuzz::kMostUnitsToCompile, parts.first.size()},
                  [&] { return parse_byte_pattern(parts.first).states.size(); });
    follow(std::string(parts.first), parts.second);
  } catch (const Error& error) {  // nothing else is caught: it ends the process
    fuzz::check_refusal(error);
  }
  return all.units() < kManyUnits ? 0 : -1;
}
