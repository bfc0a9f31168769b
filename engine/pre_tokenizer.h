// Cuts text into the words that byte-pair encoding works on: any number of regular expressions, then the byte level.
// Sees one piece of text between two added tokens; knows no vocabulary.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/regex.h"

namespace nodewright {

// The component "pre_tokenizer" of tokenizer.json, as far as it is supported.
struct PreTokenizerForm {
  std::vector<std::string> splits;  // regular expressions of Split(Isolated), applied one after the other
  bool add_prefix_space = false;    // ByteLevel: a space before each piece that has none
  bool use_regex = false;           // ByteLevel: cut with GPT-2's own expression, too
};

class PreTokenizer {
 public:
  // Compiles the expressions. Throws Error naming `file` and the expression that does not compile.
  PreTokenizer(const PreTokenizerForm& form, const std::string& file);

  // Calls `use` for each word of `text` (valid UTF-8), in order; none is empty. Thread-safe.
  // Throws Error if a regular expression gives up.
  void for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  std::vector<Regex> splits_;
  std::vector<Regex> byte_level_;  // GPT-2's expression, or none
  bool add_prefix_space_;
};

}  // namespace nodewright
