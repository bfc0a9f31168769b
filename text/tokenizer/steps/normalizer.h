// What a tokenizer does to text before it is cut into words: the component "normalizer" of tokenizer.json, as steps.
// Knows no file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/tokenizer/steps/character_map.h"
#include "text/tokenizer/steps/piece_text.h"
#include "text/tokenizer/steps/regex.h"
#include "text/tokenizer/tokens/marked_text.h"
#include "text/unicode/normal_forms.h"

namespace nodewright {

// Replace: a string, or what an expression finds.
struct Replacement {
  std::string from;  // not empty unless `pattern` is set
  std::string to;
  std::optional<Regex> pattern = std::nullopt;

  std::string apply(std::string_view text) const;  // of valid UTF-8; throws Error if the expression gives up
};

// The other steps, by the names of tokenizer.json.
struct Prepend {
  std::string text;  // before a text that is not empty
};
struct StripSpaces {  // Strip
  bool left = true, right = true;
};
struct StripAccents {};
struct Lowercase {};
struct Nmt {};
struct BertText {  // BertNormalizer
  bool clean = true, separate_chinese = true, strip_accents = true, lowercase = true;
};
struct ByteLetters {};  // ByteLevel: bytes as the letters of byte_level.h

using NormalizerStep = std::variant<NormalForm, Replacement, Prepend, StripSpaces, StripAccents, Lowercase, Nmt,
                                    BertText, ByteLetters, CharacterMap, PieceText>;

class Normalizer {
 public:
  void add(NormalizerStep step) { steps_.push_back(std::move(step)); }

  // `text` is valid UTF-8, `at_start` whether it begins the text that the user gave. Throws Error if the result would
  // be longer than 1 GiB, or if an expression gives up. Thread-safe.
  std::string apply(std::string_view text, bool at_start = true) const;

  // The same of a text with marks, which move along with it. Throws as above. Thread-safe.
  MarkedText apply(MarkedText text, bool at_start) const;

  // The most bytes of a text that may become one byte; none where any number of them may vanish.
  std::optional<std::size_t> shrinks() const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace nodewright
