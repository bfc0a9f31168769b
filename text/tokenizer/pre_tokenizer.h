// Cuts text into the words that byte-pair encoding works on: any number of splits, then perhaps the byte level.
// Sees one piece of text between two added tokens; knows no vocabulary.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace nodewright {

// What Split makes of its matches, by the names of tokenizer.json.
enum class SplitBehavior {
  isolated,              // "Isolated": each is a word
  merged_with_previous,  // "MergedWithPrevious": each ends the word before it
};

// The component "pre_tokenizer" of tokenizer.json, as far as it is supported.
struct PreTokenizerForm {
  struct Split {
    std::string pattern;  // a regular expression
    SplitBehavior behavior = SplitBehavior::isolated;
  };
  std::vector<Split> splits;      // applied one after the other
  bool byte_level = false;        // words are bytes, spelled in the byte alphabet; else they are characters
  bool add_prefix_space = false;  // ByteLevel: a space before each piece that has none
  bool use_regex = false;         // ByteLevel: cut with GPT-2's own expression, too
};

class PreTokenizer {
 public:
  // Compiles the expressions. Throws Error naming `file` and the expression that does not compile.
  PreTokenizer(const PreTokenizerForm& form, const std::string& file);

  // Calls `use` for each word of `text` (valid UTF-8), in order; none is empty. Thread-safe.
  // Throws Error if a regular expression gives up.
  void for_each_word(std::string_view text, const std::function<void(std::string_view)>& use) const;

 private:
  struct Split {
    Regex regex;
    SplitBehavior behavior;
  };

  static void append_words(const Split& split, std::string_view text, std::vector<std::string_view>& words);

  std::vector<Split> splits_;
  std::vector<Split> byte_level_;  // GPT-2's expression, or none
  bool add_prefix_space_;
};

}  // namespace nodewright
