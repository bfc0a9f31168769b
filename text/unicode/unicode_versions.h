// Where the Unicode tables that the `tokenizers` library was built with are older or newer than those of the libraries
// here, so that the same text gives the same ids. Its normalizer knows Unicode 9, its Oniguruma Unicode 16; Debian's
// utf8proc 2.8 knows 15 and its Oniguruma 6.9.8 knows 14.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

// A character that Unicode 9 did not have and that has a combining class since: to the oracle it starts a new sequence,
// and nothing composes with it.
bool is_newer_mark(char32_t code_point);

// The one character that decomposes since a version later than 9 (U+11938), and the second half of it.
inline constexpr char32_t kNewerComposite = 0x11938, kNewerCompositeEnd = 0x11930;

// `text` (valid UTF-8) with each letter, number and mark that came after Unicode 14 replaced by an old one of as many
// bytes and of its kind (\p{L}, \p{N}, \p{M}; not of its case): what an expression finds in one it finds in the
// other.
std::string with_older_characters(std::string_view text);

}  // namespace nodewright
