// Byte-pair encoding of one word: its bytes or characters become token ids, then pairs are merged by (rank, leftmost
// position). Knows no regular expression, no added token and no file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokens/byte_fallback.h"
#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

class Bpe {
 public:
  // Buffers that live from word to word, so that a text costs few allocations. One per thread.
  struct Scratch {
    struct Symbol {
      TokenId id;               // kNoToken: merged into its left neighbour
      std::int32_t prev, next;  // positions, -1: none
    };
    struct Candidate {
      std::uint64_t order;  // rank << 32 | position of the left symbol: the smallest merges first
      TokenId merged;
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  // A word starts as its characters, not its bytes. A character without a token becomes the tokens of its UTF-8 bytes
  // if each of those has one, else `unknown`; without an unknown token it vanishes.
  struct Characters {
    ByteTokens token_of_byte = no_byte_tokens();  // <0x00> to <0xFF>
    TokenId unknown = kNoToken;
    bool fuse_unknown = false;  // unknown characters in a row are one token
    std::string prefix;         // in the spelling of a character that is not the first of its word: "##"
    std::string suffix;         // in that of the last: "</w>"
  };
  void start_from_characters(Characters characters) { characters_ = std::move(characters); }

  // Makes room for this many tokens and merges.
  void reserve(std::size_t tokens, std::size_t merges);

  // A token that a word may become. A byte without a one-byte token vanishes from words, as in the oracle.
  void add_token(std::string_view bytes, TokenId id);

  // A pair that merges; each call has the next rank. Of two merges of one pair the later counts.
  void add_merge(TokenId left, TokenId right, TokenId merged);

  // A word that is a token as a whole becomes it, whatever the merges say.
  void set_ignore_merges(bool ignore) { ignore_merges_ = ignore; }

  // Appends the ids of `word` (any bytes, or valid UTF-8 if it starts as characters; fewer than 2^31). O(n log n) in
  // its length. Thread-safe. Source: BPE::tokenize, BPE::merge_word and Word::merge_all of the `tokenizers` library,
  // dropout 0.
  void append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const;

  std::optional<TokenId> token(std::string_view bytes) const;

 private:
  struct Merge {
    std::uint64_t pair = kNoPair;
    std::uint32_t rank = 0;
    TokenId merged = kNoToken;
  };
  static constexpr std::uint64_t kNoPair = ~std::uint64_t{0};

  void append_bytes(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  void append_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  std::size_t slot_of(std::uint64_t pair) const;
  void grow(std::size_t merges);
  const Merge* find_merge(TokenId left, TokenId right) const;
  void push_candidate(Scratch& scratch, std::int32_t left, std::int32_t right) const;
  void merge_all(Scratch& scratch) const;

  ByteTokens token_of_byte_ = no_byte_tokens();
  std::optional<Characters> characters_;
  TokenMap tokens_;
  std::vector<Merge> merges_;  // a hash table: a power of two of them, at most half taken
  std::size_t merge_count_ = 0;
  std::uint32_t next_rank_ = 0;
  bool ignore_merges_ = false;
};

}  // namespace nodewright
