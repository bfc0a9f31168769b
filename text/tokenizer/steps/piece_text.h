// SentencePiece's own normalizer: character map, spaces, the space that it adds.
#pragma once

#include <string>
#include <string_view>

#include "text/tokenizer/steps/character_map.h"
#include "text/tokenizer/tokens/marked_text.h"
#include "text/tokenizer/tokens/prefix_tree.h"

namespace nodewright {

// What the NormalizerSpec of a tokenizer.model says.
struct PieceText {
  CharacterMap map;
  PrefixTree kept;                    // user-defined pieces: their text stays as it is
  bool add_prefix = true;             // a space before a text that is not empty
  bool remove_extra_spaces = true;    // at either end, and all but one of a run
  bool escape_spaces = true;          // U+2581 for a space
  bool spaces_are_suffixes = false;   // the added space goes after the text
  bool prefix_at_start_only = false;  // none for a text after an added token

  // `text` is valid UTF-8, `at_start` whether it begins the text that the user gave. Throws Error if the result would
  // be longer than 1 GiB. Thread-safe. Source: Normalizer::Normalize of sentencepiece/src/normalizer.cc.
  MarkedText apply(const MarkedText& text, bool at_start) const;
};

}  // namespace nodewright
