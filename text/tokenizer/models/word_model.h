// The model of a tokenizer, whichever it is: a word becomes token ids. Built from what the file says.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <variant>
#include <vector>

#include "text/tokenizer/files/tokenizer_file.h"
#include "text/tokenizer/models/bpe.h"
#include "text/tokenizer/models/piece_merges.h"
#include "text/tokenizer/models/unigram.h"
#include "text/tokenizer/models/word_piece.h"

namespace nodewright {

class WordModel {
 public:
  // Buffers that live from word to word. One per thread.
  struct Scratch {
    Bpe::Scratch bpe;
    Unigram::Scratch unigram;
    PieceMerges::Scratch pieces;
  };

  // What the model needs beside its form. `ids` has every token of the form's vocabulary by spelling. Those of
  // `special` stay out of reach, so that no text becomes one by merging. With `raw_bytes` words are bytes whose tokens
  // are spelled in the letters of byte_level.h.
  struct Vocabulary {
    const TokenMap& ids;
    const std::unordered_set<std::string_view>& special;
    bool raw_bytes = false;
  };

  // Throws Error naming `file` and the thing: an unknown token that is not in the vocabulary, a merge of such tokens, a
  // special token that is a single byte.
  WordModel(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file);

  // Appends the ids of `word`. Thread-safe. Throws Error where no token covers a character (Unigram without unknown
  // token).
  void append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const;

 private:
  std::variant<Bpe, Unigram, WordPiece, WordLevel, PieceMerges> model_;
};

// Whether words can be raw bytes after a pre-tokenizer that ends in bytes: a byte-pair model that looks at nothing but
// pairs of tokens, and no byte is unknown.
bool takes_raw_bytes(const ModelForm& form);

}  // namespace nodewright
