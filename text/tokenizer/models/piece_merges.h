// The BPE of SentencePiece: neighbours merge if together they spell a piece, the largest score first. Unlike bpe.h it
// knows no list of merges.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/models/unigram.h"
#include "text/tokenizer/tokens/byte_fallback.h"
#include "text/tokenizer/tokens/prefix_tree.h"
#include "text/tokenizer/tokens/token_map.h"

namespace nodewright {

class PieceMerges {
 public:
  // Buffers that live from word to word. One per thread.
  struct Scratch {
    struct Symbol {
      std::string_view text;    // empty: merged into its left neighbour
      std::int32_t prev, next;  // positions, -1: none
      bool frozen;              // a user-defined piece merges with nothing
    };
    struct Candidate {
      float score;
      std::int32_t left, right;
      std::size_t size;  // bytes of both together when they were found
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
    std::unordered_map<std::string_view, std::pair<std::string_view, std::string_view>> halves;  // of unused pieces
  };

  struct Pieces {
    std::vector<Unigram::Piece> pieces;  // normal, user-defined and unused ones
    std::vector<bool> unused;            // [index of a piece]: it is cut again where it remains
    PrefixTree user_defined;
    ByteTokens bytes = no_byte_tokens();  // if each byte of an unknown character has one, they replace it
    TokenId unknown = kNoToken;           // what a run of unknown characters becomes
    bool from_bytes = false;              // tiktoken: words start as bytes, and one that is a piece becomes it at once
  };
  explicit PieceMerges(Pieces pieces);

  // Appends the ids of `word`, valid UTF-8 (any bytes if they are where it starts) of fewer than 2^31 bytes. O(n log n)
  // in its length. Thread-safe. Source: Model::SampleEncode of sentencepiece/src/bpe_model.cc,
  // PopulateSentencePieceText of its processor.
  void append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const;

 private:
  void start(std::string_view word, Scratch& scratch) const;
  void add_candidate(Scratch& scratch, std::int32_t left, std::int32_t right) const;
  void merge_all(Scratch& scratch) const;
  void append_piece(std::string_view piece, const Scratch& scratch, std::vector<TokenId>& ids,
                    bool& after_unknown) const;

  TokenMap index_of_piece_;
  std::vector<float> scores_;  // [index of a piece]
  std::vector<TokenId> ids_;   // [index of a piece]
  std::vector<bool> unused_;   // [index of a piece]
  PrefixTree user_defined_;
  ByteTokens bytes_;
  TokenId unknown_;
  bool from_bytes_;
};

}  // namespace nodewright
