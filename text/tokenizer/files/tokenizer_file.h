// What the file of a tokenizer says, as plain data, after every component and flag in it was found to be supported:
// tokenizer.json here, tokenizer.model in piece_file.h, tekken.json in tekken_file.h.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/steps/pre_tokenizer.h"
#include "text/tokenizer/steps/token_decoder.h"
#include "text/tokenizer/tokens/added_tokens.h"

namespace nodewright {

struct ModelForm {
  enum class Kind { bpe, unigram, word_piece, word_level, piece_merges };
  Kind kind = Kind::bpe;
  std::vector<std::pair<std::string, TokenId>> vocab;       // in the letters of byte_level.h after a ByteLevel step
  std::vector<std::pair<std::string, std::string>> merges;  // [rank], bpe
  std::vector<double> scores;                               // [place in vocab], unigram and piece_merges
  bool ignore_merges = false, byte_fallback = false, fuse_unknown = false;
  std::optional<std::string> unknown_token;  // its spelling
  std::optional<TokenId> unknown_id;         // unigram
  std::string prefix;                        // in the spelling of a token inside a word
  std::string suffix;                        // in that of a token at the end of a word
  std::size_t most_characters = 100;         // of a word of word_piece

  // SentencePiece: what a token may be, and sums of scores as floats.
  enum class Piece : unsigned char { normal, user_defined, unused, other };
  std::vector<Piece> pieces;  // [place in vocab], empty: all are normal
  bool single_precision = false;
  bool from_bytes = false;  // piece_merges: words start as bytes, spelled in letters, and a word may be a piece
};

struct TokenizerFile {
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  ModelForm model;
  TokenDecoder decoder;
  std::vector<AddedToken> added_tokens;  // in file order
  std::vector<TokenId> prefix, suffix;   // what the post-processor puts around a text
};

// Reads a Hugging Face tokenizer.json. "truncation" and "padding" do not count, as in transformers, which sets them at
// each call. Throws Error naming the file and the thing: unreadable, not JSON, a field that is missing or of the wrong
// type, a component or flag that is not supported (by its name). Ids are checked one by one (0 to 4,194,303), not
// against each other.
TokenizerFile read_tokenizer_file(const std::filesystem::path& path);

}  // namespace nodewright
