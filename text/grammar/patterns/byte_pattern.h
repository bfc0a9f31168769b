// A regular expression over text as an automaton over its UTF-8 bytes, for what a tokenizer's tokens may spell. The
// whole text must match. Its own small syntax, since Oniguruma matches text that is there and cannot say what may come:
//
//   literals  .  [a-zé]  [^"\\]  ( )  (?: )  |  *  +  ?  {2} {2,} {2,5}  \d \w \s \D \W \S (ASCII)
//   \n \r \t \f \v \0 \xHH \uHHHH, and \ before a character that is no letter or digit
//   (?,s|a|b|c)  one or more of a, b, c in this order, s between two of them: abc, ac and so on would be 2^n - 1
//   choices
//
// `.` is any character but a line feed. ^ at the start and $ at the end say what holds anyway. Lazy marks (*?) change
// no language and are refused, as are look-around, references, flags and properties.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

// Nondeterministic; every state reaches `accept`.
struct BytePattern {
  struct Edge {
    uint8_t first = 0, last = 0;  // bytes
    int32_t to = 0;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<int32_t> free;  // states reached without a byte
  };
  std::vector<State> states;
  int32_t start = 0, accept = 0;
};

// Throws Error (usage) with the place and the construct where `pattern` is not of this syntax, or is too large.
BytePattern parse_byte_pattern(std::string_view pattern);

// A pattern that matches `text` alone.
std::string literal_pattern(std::string_view text);

}  // namespace nodewright
