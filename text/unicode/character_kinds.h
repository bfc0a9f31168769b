// Kinds of characters as the components of a tokenizer.json know them: tables of `tokenizers` 0.23, which come from
// several versions of Unicode. What its regular expressions know is Oniguruma's (text/tokenizer/steps/regex.h).
#pragma once

#include <span>
#include <string>

namespace nodewright {

// Digits: general category N.
bool is_number(char32_t code_point);

// Punctuation and BertPreTokenizer: category P, and the ASCII symbols.
bool is_punctuation(char32_t code_point);

// Whitespace, and single_word of added tokens: \w of the Rust crate `regex` (Unicode TR18, annex C).
bool is_word(char32_t code_point);

// StripAccents: category M.
bool is_mark(char32_t code_point);

// BertNormalizer, strip_accents: category Mn.
bool is_nonspacing_mark(char32_t code_point);

// BertNormalizer, clean_text: what it removes, U+0000 and U+FFFD excepted.
bool is_control(char32_t code_point);

// Appends the lower case of one character: two characters for U+0130, else one.
void append_lower_case(char32_t code_point, std::string& text);

// First and last code point.
struct CodePointRange {
  char32_t first, last;
};

// Whether one of the sorted `ranges` holds the code point.
bool is_within(std::span<const CodePointRange> ranges, char32_t code_point);

}  // namespace nodewright
