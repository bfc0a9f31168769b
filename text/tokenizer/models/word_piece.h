// The models WordPiece and WordLevel: the longest token that a word starts with, or the whole word, or the unknown
// token.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

// Source: tokenizers/src/models/wordpiece/mod.rs of the `tokenizers` library.
class WordPiece {
 public:
  struct Options {
    TokenId unknown = kNoToken;         // what a word becomes that the tokens do not cover
    std::string prefix = "##";          // before the spelling of a token inside a word
    std::size_t most_characters = 100;  // a longer word is unknown
  };

  // `longest`: bytes of the longest of `tokens`.
  WordPiece(TokenMap tokens, std::size_t longest, Options options);

  // Appends the ids of `word`, valid UTF-8. Looks up as many strings for each of its tokens as the longest token has
  // characters. Thread-safe.
  void append_ids(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  TokenMap tokens_;
  std::size_t longest_;
  Options options_;
};

// Source: tokenizers/src/models/wordlevel/mod.rs of the `tokenizers` library.
class WordLevel {
 public:
  WordLevel(TokenMap tokens, TokenId unknown) : tokens_(std::move(tokens)), unknown_(unknown) {}

  // Appends the id of `word`. Thread-safe.
  void append_ids(std::string_view word, std::vector<TokenId>& ids) const {
    ids.push_back(tokens_.find(word).value_or(unknown_));
  }

 private:
  TokenMap tokens_;
  TokenId unknown_;
};

}  // namespace nodewright
