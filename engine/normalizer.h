// Unicode normal form C, the one normalizer that byte-level tokenizers use (Qwen2, Qwen3).
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

// The NFC of valid UTF-8. O(n log n) whatever the text. Unicode 15 (utf8proc 2.8); `tokenizers` 0.23 has the tables of
// Unicode 9, so marks that are newer (U+0D3B, U+1DF6, ...) sort among other marks here and not there.
std::string to_nfc(std::string_view text);

}  // namespace nodewright
