// The character map of SentencePiece ("precompiled_charsmap"): strings and what they become, as a double-array trie.
// Two readings: longest match, as SentencePiece has it, and that of the Precompiled normalizer of `tokenizers`.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokens/marked_text.h"

namespace nodewright {

class CharacterMap {
 public:
  CharacterMap() = default;  // maps nothing

  // `bytes` are the map as SentencePiece writes it; empty bytes map nothing. Throws Error naming `file` if they are
  // cut.
  CharacterMap(std::string_view bytes, const std::string& file);

  // What becomes of the longest start of `text` that the map knows: `size` bytes (0: none) become `to`.
  struct Match {
    std::size_t size = 0;
    std::string_view to;
  };
  Match longest(std::string_view text) const { return match(text, true); }

  // `text` (valid UTF-8) as the Precompiled normalizer leaves it: a grapheme of fewer than 6 bytes becomes what its
  // shortest known start becomes, other characters go one by one; a grapheme ends at a barrier. Throws Error if the
  // result is longer than 1 GiB.
  // Source: normalizers/precompiled.rs of `tokenizers`, and the crate spm_precompiled.
  MarkedText apply(const MarkedText& text) const;

  bool empty() const { return units_.empty(); }

 private:
  Match match(std::string_view text, bool longest) const;
  void write_grapheme(std::size_t size, MarkedWriter& to) const;

  std::vector<std::uint32_t> units_;  // of the trie
  std::string results_;               // strings, each with a zero byte after it
};

}  // namespace nodewright
