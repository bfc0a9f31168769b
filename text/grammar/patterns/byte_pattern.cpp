#include "text/grammar/patterns/byte_pattern.h"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "base/work_budget.h"
#include "runtime/error.h"
#include "text/grammar/patterns/code_ranges.h"
#include "text/grammar/patterns/pattern_syntax.h"

namespace nodewright {
namespace {

constexpr size_t kMostPatternStates = 200'000;
// Nodes that repetitions visit, and edges: a repetition of what makes no state would otherwise never end.
constexpr size_t kMostPatternWork = 4'000'000;

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
      refuse_size(fmt::format("it needs more than {} states", kMostPatternStates));
    result_.states.emplace_back();
    return static_cast<int32_t>(result_.states.size() - 1);
  }
  void work(size_t amount) {
    work_ += amount;
    WorkBudget::spend(amount);
    if (work_ > kMostPatternWork)
      refuse_size(fmt::format("its repetitions take more than {} steps to write out", kMostPatternWork));
  }
  [[noreturn]] void refuse_size(const std::string& detail) const {
    throw Error({.doing = "read regular expression",
                 .object = std::string(text_.substr(0, 200)),
                 .detail = detail,
                 .advice = "fewer or smaller repetitions",
                 .fault = Fault::usage});
  }
  BytePattern::State& at(int32_t id) { return result_.states[static_cast<size_t>(id)]; }

  // Where the text is after `node`, from `from`.
  int32_t add(const PatternNode& node, int32_t from) {
    work(1);
    switch (node.kind) {
      case Kind::characters: {
        std::vector<ByteRanges> all;
        for (const CodeRange& r : node.characters) append_byte_ranges(r, all);
        work(all.size());
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

  // Each part once: it begins where none came before it, or after what is between.
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
  size_t work_ = 0;
};

}  // namespace

BytePattern parse_byte_pattern(std::string_view pattern) {
  return PatternCompiler(pattern).compile(parse_pattern(pattern));
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
