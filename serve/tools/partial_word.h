// A word that may have begun at the end of a text that is still coming.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string_view>

namespace nodewright {

// The size of the longest end of `text` with which `word` may begin, less than the word.
inline size_t begun_at_end(std::string_view text, std::string_view word) {
  for (size_t size = std::min(text.size(), word.size() - 1); size > 0; --size)
    if (word.starts_with(text.substr(text.size() - size))) return size;
  return 0;
}

}  // namespace nodewright
