// Cuts text into the words that a model works on: the component "pre_tokenizer" of tokenizer.json, as steps, each of
// which cuts the words of the one before. Sees one piece of text between two added tokens; knows no vocabulary.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/steps/regex.h"

namespace nodewright {

// What a split makes of its matches, by the names of tokenizer.json.
enum class SplitBehavior {
  removed,               // "Removed": they are left out
  isolated,              // "Isolated": each is a word
  merged_with_previous,  // "MergedWithPrevious": each ends the word before it
  merged_with_next,      // "MergedWithNext": each begins the word after it
  contiguous,            // "Contiguous": those in a row are a word
};

// Split, Digits, Punctuation, Whitespace and their like: looks for an expression, a kind of character, or a character.
struct SplitStep {
  std::variant<Regex, bool (*)(char32_t), char32_t> pattern;
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;  // what lies between two matches is a match
};

struct MetaspaceStep {
  enum class Prefix { always, first, never };
  std::string replacement = "\u2581";  // for a space: one character
  Prefix prefix = Prefix::always;      // where a word gets one that has none: `first` where the text begins
  bool split = true;                   // before each of them
};

struct ByteLevelStep {
  bool add_prefix_space = false;  // before a word that has none
  bool use_regex = true;          // cut with GPT-2's own expression, too
};

struct FixedLengthStep {
  std::size_t length = 1;  // characters of a word, at least 1
};

using PreTokenizerStep = std::variant<SplitStep, MetaspaceStep, ByteLevelStep, FixedLengthStep>;

class PreTokenizer {
 public:
  void add(PreTokenizerStep step);

  // Whether words are bytes after these steps, in the letters of byte_level.h: some step is ByteLevel, and those
  // after it only cut.
  bool ends_in_bytes() const { return has_byte_level_ && only_cuts_behind_; }
  // Whether some step leaves out what it finds.
  bool drops_text() const;

  // Words come as raw bytes, not as their letters. Only if ends_in_bytes().
  void set_raw_bytes(bool raw) { raw_bytes_ = raw; }

  // Buffers that live from text to text. One per thread.
  struct Scratch {
    struct Word {
      std::string_view text;
      bool at_start;  // of the text that the user gave
    };
    std::vector<Word> words, cut;
    std::vector<Regex::Piece> pieces;
    std::deque<std::string> changed;  // texts that some step has written
  };

  // Calls `use` for each word of `text` (valid UTF-8), in order; none is empty. `at_start`: the text begins the one
  // that the user gave. Thread-safe. Throws Error if a regular expression gives up.
  void for_each_word(std::string_view text, bool at_start, Scratch& scratch,
                     const std::function<void(std::string_view)>& use) const;

 private:
  using Word = Scratch::Word;
  void cut(const SplitStep& step, const Word& word, Scratch& scratch) const;
  void cut(const MetaspaceStep& step, const Word& word, Scratch& scratch) const;
  void cut(const ByteLevelStep& step, const Word& word, Scratch& scratch) const;
  void cut(const FixedLengthStep& step, const Word& word, Scratch& scratch) const;

  std::vector<PreTokenizerStep> steps_;
  SplitStep gpt2_{U' '};  // GPT-2's expression, once a step asks for it
  bool has_byte_level_ = false, only_cuts_behind_ = true, raw_bytes_ = false;
  std::size_t byte_level_ = 0;  // the last such step
};

}  // namespace nodewright
