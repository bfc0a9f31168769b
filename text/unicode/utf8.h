// UTF-8 as a tokenizer needs it: one decoder that tells truncated bytes from invalid ones, and the lossy conversion
// built on it. Not a Unicode library: properties and normal forms come from Oniguruma and utf8proc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace nodewright {

enum class Utf8Kind {
  complete,   // `size` bytes are one character
  invalid,    // `size` bytes are one maximal ill-formed subpart: no later byte can mend them
  truncated,  // all `size` bytes begin a character that the input ends before
};

struct Utf8Step {
  Utf8Kind kind;
  std::uint32_t size;   // bytes, 1 to 4
  char32_t code_point;  // U+FFFD unless complete
};

// Reads what stands at the start of `bytes`, which must not be empty. Never fails.
// The maximal subparts are those of Unicode 15 section 3.9 (table 3-7), as Python's errors='replace' and Rust's
// String::from_utf8_lossy use them.
Utf8Step read_utf8(std::string_view bytes);

// The last character of valid UTF-8 that is not empty.
std::string_view last_character(std::string_view text);

// Appends the UTF-8 form of a scalar value (no surrogate, at most U+10FFFF).
void append_utf8(char32_t code_point, std::string& text);

// The UTF-8 form of one scalar value.
std::string in_utf8(char32_t code_point);

// Appends every complete character of `bytes`, and U+FFFD for each invalid subpart. Returns the number of bytes used:
// what remains, at most 3 bytes, is a truncated character.
std::size_t append_complete_utf8(std::string_view bytes, std::string& text);

// All of `bytes` as valid UTF-8: U+FFFD stands for each invalid subpart and for a truncated end.
std::string to_valid_utf8(std::string_view bytes);

// The Unicode property White_Space (PropList.txt), which is \s in the regular expressions of the Rust crate `regex`.
bool is_white_space(char32_t code_point);

// Bytes of the white space that valid UTF-8 starts with, or ends in.
std::size_t white_space_at_start(std::string_view text);
std::size_t white_space_at_end(std::string_view text);

}  // namespace nodewright
