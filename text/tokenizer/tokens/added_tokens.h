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

  // Where special tokens may be found in a text: nowhere, or outside the bytes that `marks` calls the user's
  // (kUsersByte of marked_text.h; as long as the text, or empty: none is).
  struct Special {
    bool parse = false;
    std::string_view marks;
  };

  // Appends the pieces of `text` (valid UTF-8), in order. A special token where none may be found is ordinary text, and
  // so is all that it covers; no token that reaches into the user's text takes the place of one that the template
  // wrote. What a normalizer puts before a token may stand for the user's: a space. Thread-safe.
  // Source: AddedVocabulary::find_matches of the `tokenizers` library.
  void append_pieces(std::string_view text, Special special, std::vector<Piece>& pieces) const;

  // Bytes `begin` to `end` of a text.
  struct Span {
    std::size_t begin, end;
  };
  // The special tokens in what the template wrote, each stretch of it by itself. Thread-safe.
  std::vector<Span> specials_of_template(std::string_view text, std::string_view marks) const;

  bool has_special() const { return has_special_; }

 private:
  struct Match {
    std::size_t size = 0;  // bytes, 0: none
    const AddedToken* token = nullptr;
    std::size_t lead = 0;  // of the bytes
  };

  Match longest_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;
  std::vector<std::size_t> leads_;  // [tokens_], bytes that a normalizer puts before a token, as "\u2581" of Prepend
  PrefixTree tree_;                 // spelling to index into tokens_
  bool has_special_ = false;
};

}  // namespace nodewright
