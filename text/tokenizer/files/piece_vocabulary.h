// The pieces of a SentencePiece model, which its own file and a GGUF file hold with the same types.
#pragma once

#include <cstdint>
#include <string>

#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/files/tokenizer_file.h"

namespace nodewright {

// sentencepiece_model.proto; llama.cpp's token_type has the same numbers.
enum class PieceType : std::uint64_t { normal = 1, unknown, control, user_defined, unused, byte };

class PieceVocabulary {
 public:
  // Fills the model, the added tokens, the decoder and the normalizer of `out`.
  PieceVocabulary(const SectionReader& reader, TokenizerFile& out) : reader_(reader), out_(out) {}

  // The piece with the next id. The first unknown one is the model's, unless that has one. Throws Error for a score
  // that is not finite and a spelling that appears twice.
  void add(std::string spelling, double score, PieceType type);
  // Once all are there. Throws Error where none is the unknown one.
  void finish(PieceText text);

 private:
  const SectionReader& reader_;
  TokenizerFile& out_;
  TokenMap spellings_;
};

}  // namespace nodewright
