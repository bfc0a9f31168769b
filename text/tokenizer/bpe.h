// Byte-pair encoding of one word: its bytes or characters become token ids, then pairs are merged by (rank, leftmost
// position). Knows no regular expression, no added token and no file.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace nodewright {

using TokenId = std::int32_t;  // 0 and up
inline constexpr TokenId kNoToken = -1;

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

  // A word starts as its characters, not its bytes. One that is no token becomes the tokens of its UTF-8 bytes if
  // each of those has one, else `unknown`; without that it vanishes.
  struct Characters {
    std::array<TokenId, 256> token_of_byte;  // <0x00> to <0xFF>, kNoToken where there is none
    TokenId unknown = kNoToken;
    bool fuse_unknown = false;  // unknown characters in a row are one token
  };
  void start_from_characters(const Characters& characters) { characters_ = characters; }

  // A token that a word may become. A byte without a one-byte token vanishes from words, as in the oracle.
  void add_token(std::string bytes, TokenId id);

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
    std::uint32_t rank;
    TokenId merged;
  };
  struct BytesHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view bytes) const { return std::hash<std::string_view>{}(bytes); }
  };
  struct PairHash {
    std::size_t operator()(std::uint64_t pair) const {  // Fibonacci hashing: 2^64 / golden ratio
      return static_cast<std::size_t>((pair * 0x9E3779B97F4A7C15u) >> 20);
    }
  };

  void append_bytes(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  void append_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const;
  const Merge* find_merge(TokenId left, TokenId right) const;
  void push_candidate(Scratch& scratch, std::int32_t left, std::int32_t right) const;
  void merge_all(Scratch& scratch) const;

  std::array<TokenId, 256> token_of_byte_ = [] {
    std::array<TokenId, 256> none{};
    none.fill(kNoToken);
    return none;
  }();
  std::optional<Characters> characters_;
  std::unordered_map<std::string, TokenId, BytesHash, std::equal_to<>> tokens_;
  std::unordered_map<std::uint64_t, Merge, PairHash> merges_;
  std::uint32_t next_rank_ = 0;
  bool ignore_merges_ = false;
};

}  // namespace nodewright
