// One of many texts, as an expression or as rules: a tree by their beginnings, so that an automaton at any place of a
// text meets the characters that may come and not every text that is left.
#pragma once

#include <string>
#include <vector>

namespace nodewright {

// An expression of text/grammar/patterns/byte_pattern.h that matches each of `texts`, valid UTF-8 and at least one, and
// nothing else. It stands alone.
std::string literals_pattern(std::vector<std::string> texts);

// The same in the rules of text/grammar/context_free.h.
std::string literals_rule(std::vector<std::string> texts);

}  // namespace nodewright
