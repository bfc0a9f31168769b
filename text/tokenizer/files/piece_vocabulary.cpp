#include "text/tokenizer/files/piece_vocabulary.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json_file.h"

namespace nodewright {
namespace {

ModelForm::Piece piece_of(PieceType type) {
  switch (type) {
    case PieceType::normal:
      return ModelForm::Piece::normal;
    case PieceType::user_defined:
      return ModelForm::Piece::user_defined;
    case PieceType::unused:
      return ModelForm::Piece::unused;
    default:
      return ModelForm::Piece::other;
  }
}

}  // namespace

void PieceVocabulary::add(std::string spelling, double score, PieceType type) {
  ModelForm& form = out_.model;
  const auto id = static_cast<TokenId>(form.vocab.size());
  if (!std::isfinite(score))
    reader_.fail(fmt::format("the score of piece {} is {}, not a finite number", in_quotes(spelling), score));
  if (spellings_.insert(spelling, id) != id) reader_.fail(fmt::format("piece {} appears twice", in_quotes(spelling)));
  if (type == PieceType::unknown && !form.unknown_id) form.unknown_id = id;
  if (type == PieceType::unknown || type == PieceType::control)
    out_.added_tokens.push_back({.id = id, .content = spelling, .special = true});
  form.pieces.push_back(piece_of(type));
  form.scores.push_back(score);
  form.vocab.emplace_back(std::move(spelling), id);
}

void PieceVocabulary::finish(PieceText text) {
  ModelForm& form = out_.model;
  if (!form.unknown_id) reader_.fail("it has no unknown piece");
  form.single_precision = true;
  std::vector<std::pair<std::string_view, std::int32_t>> kept;
  for (const auto& [spelling, id] : form.vocab)
    if (form.pieces[static_cast<std::size_t>(id)] == ModelForm::Piece::user_defined) kept.emplace_back(spelling, id);
  text.kept = PrefixTree(std::move(kept));
  if (text.escape_spaces) out_.decoder.add(Replacement{"\u2581", " "});
  out_.decoder.set_bytes(form.byte_fallback ? TokenDecoder::Bytes::pieces : TokenDecoder::Bytes::none);
  if (text.add_prefix && !text.spaces_are_suffixes) out_.decoder.set_strip({.start = 1});
  out_.normalizer.add(std::move(text));
}

}  // namespace nodewright
