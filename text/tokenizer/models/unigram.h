// The Unigram model: of all ways to cut a word into tokens, the one with the largest sum of scores.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokens/byte_fallback.h"
#include "text/tokenizer/tokens/prefix_tree.h"
#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

class Unigram {
 public:
  struct Piece {
    std::string spelling;
    double score = 0;  // a logarithm
    TokenId id = kNoToken;
  };

  // Buffers that live from word to word. One per thread.
  struct Scratch {
    struct End {
      double score = 0;
      std::size_t begin = kNowhere;  // of the best piece that ends here
      TokenId id = kNoToken;
    };
    static constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);
    std::vector<End> ends;
    std::vector<std::size_t> cuts;  // where the pieces of the best way end, the last first
  };

  struct Options {
    TokenId unknown = kNoToken;     // what a character without a piece becomes; a run of them is one
    double unknown_score = 0;       // of such a character
    bool byte_fallback = false;     // before that: the tokens of its bytes
    bool single_precision = false;  // sums are rounded to float, as SentencePiece does
  };

  // `pieces`: what a word may become. `bytes`: tokens of single bytes, kNoToken where there is none.
  Unigram(const std::vector<Piece>& pieces, const ByteTokens& bytes, Options options);

  // Appends the ids of `word`, valid UTF-8. Time is linear in its length. Throws Error for a character without a piece
  // where there is no unknown token. Thread-safe.
  // Source: Unigram::encode_optimized of the `tokenizers` library, EncodeOptimized of SentencePiece.
  void append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const;

 private:
  void find_best(std::string_view word, Scratch& scratch) const;
  void append_unknown(std::string_view text, std::vector<TokenId>& ids) const;

  PrefixTree tree_;             // of pieces_
  std::vector<double> scores_;  // [index of a piece]
  std::vector<TokenId> ids_;    // [index of a piece]
  TokenMap id_of_piece_;
  ByteTokens bytes_;
  Options options_;
};

}  // namespace nodewright
