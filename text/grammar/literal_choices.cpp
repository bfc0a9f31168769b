#include "text/grammar/literal_choices.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <string_view>
#include <utility>

#include "base/work_budget.h"
#include "text/grammar/patterns/byte_pattern.h"
#include "text/grammar/schema/json_schema_rules.h"

namespace nodewright {
namespace {

constexpr size_t kFewTexts = 32;      // that stand side by side: a tree of them would say no more
constexpr int kDeepestBranch = 48;    // groups within each other, of 200 that an expression may have
constexpr size_t kBytesOfBranch = 4;  // that a unit of WorkBudget pays for

struct ChoiceSyntax {
  std::string (*literal)(std::string_view text);
  const char *open, *close, *between, *none;  // `none`: the rest may be absent, after `close`
  const char* join;                           // a text and the choice that goes on
};

std::string pattern_literal(std::string_view text) { return literal_pattern(text); }
std::string rules_literal(std::string_view text) { return rule_literal(std::string(text)); }

constexpr ChoiceSyntax kPattern{pattern_literal, "(?:", ")", "|", "?", ""};
constexpr ChoiceSyntax kRules{rules_literal, "(", ")", " | ", "?", " "};

// Bytes that both begin with, in whole characters.
size_t same_beginning(std::string_view a, std::string_view b) {
  auto same = static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
  while (same > 0 && same < a.size() && (static_cast<unsigned char>(a[same]) & 0xc0) == 0x80) --same;
  return same;
}

class ChoiceWriter {
 public:
  explicit ChoiceWriter(const ChoiceSyntax& syntax) : syntax_(syntax) {}

  // `texts`: sorted, without their first `begin` bytes, in which all agree.
  void write(std::span<const std::string> texts, size_t begin, int depth) {
    const std::string_view first = std::string_view(texts.front()).substr(begin);
    WorkBudget::spend(1 + first.size() / kBytesOfBranch);
    if (texts.size() == 1) {
      out_ += syntax_.literal(first);
      return;
    }
    const size_t shared = same_beginning(first, std::string_view(texts.back()).substr(begin));
    if (shared > 0) out_ += syntax_.literal(first.substr(0, shared)) + syntax_.join;
    begin += shared;
    const bool ends = texts.front().size() == begin;
    if (ends) texts = texts.subspan(1);
    out_ += syntax_.open;
    const size_t start = out_.size();
    while (!texts.empty()) {
      if (out_.size() > start) out_ += syntax_.between;
      const size_t alike = depth < kDeepestBranch ? count_alike(texts, begin) : 1;
      write(texts.first(alike), begin, depth + 1);
      texts = texts.subspan(alike);
    }
    out_ += syntax_.close;
    if (ends) out_ += syntax_.none;
  }

  void write_flat(std::span<const std::string> texts) {
    out_ += syntax_.open;
    for (const std::string& text : texts) {
      if (&text != &texts.front()) out_ += syntax_.between;
      out_ += syntax_.literal(text);
    }
    out_ += syntax_.close;
  }

  std::string take() { return std::move(out_); }

 private:
  // How many of the texts have the first one's character at `begin`.
  static size_t count_alike(std::span<const std::string> texts, size_t begin) {
    const std::string_view first = texts.front();
    size_t end = begin + 1;
    while (end < first.size() && (static_cast<unsigned char>(first[end]) & 0xc0) == 0x80) ++end;
    const std::string_view beginning = first.substr(0, end);
    const auto other = std::ranges::partition_point(
        texts, [&](const std::string& text) { return std::string_view(text).starts_with(beginning); });
    return static_cast<size_t>(other - texts.begin());
  }

  const ChoiceSyntax& syntax_;
  std::string out_;
};

std::string choices_in(const ChoiceSyntax& syntax, std::vector<std::string> texts) {
  ChoiceWriter writer(syntax);
  if (texts.size() <= kFewTexts) {
    writer.write_flat(texts);
    return writer.take();
  }
  std::ranges::sort(texts);
  texts.erase(std::ranges::unique(texts).begin(), texts.end());
  writer.write(texts, 0, 0);
  return syntax.open + writer.take() + syntax.close;
}

}  // namespace

std::string literals_pattern(std::vector<std::string> texts) { return choices_in(kPattern, std::move(texts)); }

std::string literals_rule(std::vector<std::string> texts) { return choices_in(kRules, std::move(texts)); }

}  // namespace nodewright
