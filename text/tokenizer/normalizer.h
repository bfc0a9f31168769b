// What a tokenizer does to text before it is cut into words: Unicode normal form C (Qwen2, Qwen3), and replacing one
// string by another (Gemma, " " by U+2581). Knows no file.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace nodewright {

// The NFC of valid UTF-8, by the tables of Unicode 9 as in `tokenizers` 0.23. O(n log n) whatever the text.
std::string to_nfc(std::string_view text);

// Every `from`, left to right, replaced by `to`. `from` is not empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

struct Replacement {
  std::string from;  // not empty
  std::string to;
};

// The component "normalizer" of tokenizer.json, as far as it is supported: steps, one after the other.
class Normalizer {
 public:
  void add_nfc() { steps_.push_back({}); }
  void add_replacement(Replacement replacement) { steps_.push_back(std::move(replacement)); }

  // `text` is valid UTF-8. Throws Error if the result would be longer than 1 GiB. Thread-safe.
  std::string apply(std::string_view text) const;

 private:
  std::vector<Replacement> steps_;  // an empty `from`: NFC
};

}  // namespace nodewright
