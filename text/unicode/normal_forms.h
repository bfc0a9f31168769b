// The four Unicode normal forms, by the tables of Unicode 9 as in `tokenizers` 0.23.
#pragma once

#include <string>
#include <string_view>

namespace nodewright {

enum class NormalForm { nfc, nfd, nfkc, nfkd };

// Valid UTF-8 in a normal form. O(n log n) whatever the text.
std::string to_normal_form(std::string_view text, NormalForm form);

}  // namespace nodewright
