// A regular expression whose repetitions are short: xgrammar fails to compile one of more than 128 within a string.
#pragma once

#include <string>

namespace nodewright {

inline constexpr int kLongestRepetition = 128;

// `pattern`, of the syntax of parse_byte_pattern, with the same texts: [a-z]{300} becomes
// [a-z]{128}[a-z]{128}[a-z]{44}.
std::string split_repetitions(const std::string& pattern);

}  // namespace nodewright
