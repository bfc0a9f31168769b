// Tokens that are cut out of the text before anything else looks at it: leftmost, and of those the longest.
// Knows what each one may touch (words, white space); knows nothing of normalizing, which its caller does.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/tokens/prefix_tree.h"
#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

// One entry of "added_tokens" in tokenizer.json.
struct AddedToken {
  TokenId id = kNoToken;
  std::string content;
  bool single_word = false;  // only where no word character stands before or after
  bool lstrip = false;       // swallows the white space before it
  bool rstrip = false;       // swallows the white space after it
  bool normalized = false;   // looked for in normalized text, in its own normalized form
  bool special = false;      // never made from plain text, left out of decoded text if asked
};

class AddedTokens {
 public:
  struct Piece {
    std::string_view text;  // ordinary text, or empty
    TokenId id = kNoToken;  // an added token, or kNoToken
  };

  using Spelled = std::pair<std::string, AddedToken>;  // how a token is spelled in the text, and the token

  AddedTokens() = default;  // finds none

  // An empty spelling never matches; of two equal ones the first counts.
  explicit AddedTokens(std::vector<Spelled> tokens);

  // Where special tokens may be found in a text: nowhere, or outside the bytes that `plain` marks with something other
  // than 0 (as long as the text, or empty: none is marked).
  struct Special {
    bool parse = false;
    std::string_view plain;
  };

  // Appends the pieces of `text` (valid UTF-8), in order. A special token where none may be found is ordinary text, and
  // so is all that it covers. Thread-safe.
  // Source: AddedVocabulary::find_matches of the `tokenizers` library.
  void append_pieces(std::string_view text, Special special, std::vector<Piece>& pieces) const;

 private:
  struct Match {
    std::size_t size = 0;  // bytes, 0: none
    const AddedToken* token = nullptr;
  };

  Match longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  PrefixTree tree_;  // spelling to index into tokens_
};

}  // namespace nodewright
