#include "text/grammar/patterns/split_repetitions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>
#include <vector>

#include "base/work_budget.h"

namespace nodewright {
namespace {

struct Repetition {
  int least = 0, most = 0;  // most below 0: without end
  size_t end = 0;           // after its }
};

// {n}, {n,} or {n,m} at `begin`, or nothing.
std::optional<Repetition> repetition_at(std::string_view pattern, size_t begin) {
  Repetition found;
  const char* const end = pattern.data() + pattern.size();
  const auto [after_least, least_error] = std::from_chars(pattern.data() + begin + 1, end, found.least);
  if (least_error != std::errc() || after_least == end) return {};
  const char* at = after_least;
  found.most = found.least;
  if (*at == ',') {
    found.most = -1;
    const auto [after_most, most_error] = std::from_chars(at + 1, end, found.most);
    at = most_error == std::errc() ? after_most : at + 1;
  }
  if (at == end || *at != '}') return {};
  found.end = static_cast<size_t>(at - pattern.data()) + 1;
  return found;
}

// The end of the character class that begins at `begin`.
size_t class_end(std::string_view pattern, size_t begin) {
  size_t at = begin + 1;
  if (at < pattern.size() && pattern[at] == '^') ++at;
  if (at < pattern.size() && pattern[at] == ']') ++at;
  for (; at < pattern.size() && pattern[at] != ']'; ++at)
    if (pattern[at] == '\\') ++at;
  return std::min(at + 1, pattern.size());
}

void append_repeated(std::string& to, const std::string& atom, const Repetition& of) {
  WorkBudget::spend(atom.size() * static_cast<size_t>(std::max(of.least, of.most)) / kLongestRepetition);
  for (int left = of.least; left > 0; left -= kLongestRepetition)
    to += fmt::format("{}{{{}}}", atom, std::min(left, kLongestRepetition));
  if (of.most < 0) to += atom + "*";
  for (int left = of.most - of.least; left > 0; left -= kLongestRepetition)
    to += fmt::format("{}{{0,{}}}", atom, std::min(left, kLongestRepetition));
}

}  // namespace

std::string split_repetitions(const std::string& pattern) {
  std::string split;
  std::vector<size_t> groups;  // where those that are open begin in `split`
  size_t atom = 0;             // where the last one begins there
  for (size_t at = 0; at < pattern.size();) {
    const char c = pattern[at];
    size_t end = at + 1;
    if (c == '{') {
      const std::optional<Repetition> found = repetition_at(pattern, at);
      if (found && std::max(found->least, found->most) > kLongestRepetition) {
        const std::string repeated = split.substr(atom);
        split.resize(atom);
        append_repeated(split, repeated, *found);
        at = found->end;
        continue;
      }
      if (found) end = found->end;  // it belongs to the atom before it
    } else if (c == '(') {
      groups.push_back(split.size());
      atom = split.size();
    } else if (c == ')' && !groups.empty()) {
      atom = groups.back();
      groups.pop_back();
    } else if (c != '*' && c != '+' && c != '?') {
      atom = split.size();
      if (c == '[') end = class_end(pattern, at);
      if (c == '\\') end = std::min(at + 2, pattern.size());
      // \uHHHH, \xHH and the like are one atom.
      if (c == '\\' && at + 1 < pattern.size()) {
        if (pattern[at + 1] == 'u') end = std::min(at + 6, pattern.size());
        if (pattern[at + 1] == 'x') end = std::min(at + 4, pattern.size());
      }
    }
    split.append(pattern, at, end - at);
    at = end;
  }
  return split;
}

}  // namespace nodewright
