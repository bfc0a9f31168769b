// A regular expression as a tree. byte_pattern.h defines the syntax.
#pragma once

#include <string_view>
#include <vector>

#include "text/grammar/patterns/code_ranges.h"

namespace nodewright {

struct PatternNode {
  enum class Kind { characters, sequence, choice, repeat, joined } kind = Kind::sequence;
  CodeRanges characters;
  std::vector<PatternNode> parts;  // of a joined one: what is between, then what is joined
  int least = 0, most = -1;        // of a repeat; -1: without end
};

// Throws Error (usage) with the place and the construct where `pattern` is not of this syntax, or is nested too deep.
PatternNode parse_pattern(std::string_view pattern);

}  // namespace nodewright
