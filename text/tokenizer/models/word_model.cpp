#include "text/tokenizer/models/word_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/json_file.h"
#include "text/tokenizer/load_error.h"
#include "text/tokenizer/tokens/byte_level.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using Model = std::variant<Bpe, Unigram, WordPiece, WordLevel, PieceMerges>;
using Vocabulary = WordModel::Vocabulary;

constexpr double kUnknownPenalty = 10;  // below the smallest score; SentencePiece, unigram_model.cc, kUnkPenalty

// The unknown token, or kNoToken where the form names none.
TokenId unknown_of(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file) {
  if (!form.unknown_token) return kNoToken;
  const auto known = vocabulary.ids.find(*form.unknown_token);
  if (!known) fail_load(file, fmt::format("unk_token {} is not in the vocabulary", in_quotes(*form.unknown_token)));
  return *known;
}

ByteTokens bytes_of(const ModelForm& form, const TokenMap& ids) {
  ByteTokens tokens = no_byte_tokens();
  for (int byte = 0; form.byte_fallback && byte < 256; ++byte)
    tokens[static_cast<std::size_t>(byte)] =
        ids.find(fallback_token_of_byte(static_cast<char>(byte))).value_or(kNoToken);
  return tokens;
}

bool is_one_character(std::string_view text) { return !text.empty() && read_utf8(text).size == text.size(); }

void add_merges(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file, Bpe& bpe) {
  const auto known = [&](std::string_view spelling, const auto& merge) {
    const auto found = vocabulary.ids.find(spelling);
    if (!found) {
      fail_load(file, fmt::format("merge '{} {}' needs token {}, which is not in the vocabulary", merge.first,
                                  merge.second, in_quotes(spelling)));
    }
    return *found;
  };
  std::string merged;
  for (const auto& merge : form.merges) {
    const TokenId left = known(merge.first, merge);
    const TokenId right = known(merge.second, merge);
    merged.assign(merge.first).append(merge.second, std::min(form.prefix.size(), merge.second.size()));
    const TokenId both = known(merged, merge);
    if (!vocabulary.special.contains(merged)) bpe.add_merge(left, right, both);
  }
}

Model bpe_of(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file) {
  Bpe bpe;
  bpe.set_ignore_merges(form.ignore_merges);
  // Without it whole words are not looked up: what words start from is enough.
  const bool all = form.ignore_merges || !form.prefix.empty() || !form.suffix.empty();
  bpe.reserve(all ? form.vocab.size() : 0, form.merges.size());
  for (const auto& [spelling, id] : form.vocab) {
    const bool special = vocabulary.special.contains(spelling);
    if (vocabulary.raw_bytes) {
      if (!all && spelling.size() > 2) continue;  // no letter of a byte is longer
      const auto bytes = bytes_of_token(spelling);
      if (!bytes || (!all && bytes->size() != 1)) continue;
      if (special && bytes->size() == 1)
        fail_load(file, fmt::format("special token {} is a single byte", in_quotes(spelling)));
      if (!special) bpe.add_token(*bytes, id);
    } else if (!special && (all || is_one_character(spelling))) {
      bpe.add_token(spelling, id);
    }
  }
  if (!vocabulary.raw_bytes)
    bpe.start_from_characters({bytes_of(form, vocabulary.ids), unknown_of(form, vocabulary, file), form.fuse_unknown,
                               form.prefix, form.suffix});
  add_merges(form, vocabulary, file, bpe);
  return bpe;
}

// `place`: in the vocabulary, whose places are the ids of SentencePiece.
ModelForm::Piece kind_of(const ModelForm& form, std::size_t place) {
  return form.pieces.empty() ? ModelForm::Piece::normal : form.pieces[place];
}
ModelForm::Piece kind_of(const ModelForm& form, const Unigram::Piece& piece) {
  return kind_of(form, static_cast<std::size_t>(piece.id));
}

// The pieces that words may become.
std::vector<Unigram::Piece> reachable_pieces(const ModelForm& form, const Vocabulary& vocabulary) {
  std::vector<Unigram::Piece> pieces;
  pieces.reserve(form.vocab.size());
  for (std::size_t i = 0; i < form.vocab.size(); ++i) {
    const auto& [spelling, id] = form.vocab[i];
    if (vocabulary.special.contains(spelling)) continue;
    if (kind_of(form, i) == ModelForm::Piece::other) continue;
    pieces.push_back({form.from_bytes ? decoded_bytes(spelling) : spelling, form.scores[i], id});
  }
  return pieces;
}

Model unigram_of(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file) {
  double lowest = std::numeric_limits<double>::infinity(), highest = -lowest;
  for (std::size_t i = 0; i < form.vocab.size(); ++i) {
    if (kind_of(form, i) != ModelForm::Piece::normal) continue;
    lowest = std::min(lowest, form.scores[i]);
    highest = std::max(highest, form.scores[i]);
  }
  auto pieces = reachable_pieces(form, vocabulary);
  if (!form.pieces.empty()) {  // SentencePiece: unused pieces are out, and nothing beats a user-defined one
    std::erase_if(pieces, [&](const auto& piece) { return kind_of(form, piece) == ModelForm::Piece::unused; });
    for (auto& piece : pieces)
      if (kind_of(form, piece) == ModelForm::Piece::user_defined)
        piece.score = static_cast<float>(piece.spelling.size()) * static_cast<float>(highest) - 0.1;
  }
  const TokenId unknown = form.unknown_id.value_or(kNoToken);
  if (unknown != kNoToken && static_cast<std::size_t>(unknown) >= form.vocab.size())
    fail_load(file, fmt::format("unk_id is {}, the vocabulary has {} tokens", unknown, form.vocab.size()));
  return Unigram(pieces, bytes_of(form, vocabulary.ids),
                 {unknown, lowest - kUnknownPenalty, form.byte_fallback, form.single_precision});
}

Model piece_merges_of(const ModelForm& form, const Vocabulary& vocabulary) {
  PieceMerges::Pieces pieces;
  pieces.pieces = reachable_pieces(form, vocabulary);
  std::vector<std::pair<std::string_view, std::int32_t>> user_defined;
  for (const auto& piece : pieces.pieces) {
    const auto kind = kind_of(form, piece);
    pieces.unused.push_back(kind == ModelForm::Piece::unused);
    if (kind == ModelForm::Piece::user_defined) user_defined.emplace_back(piece.spelling, piece.id);
  }
  pieces.user_defined = PrefixTree(std::move(user_defined));
  pieces.bytes = bytes_of(form, vocabulary.ids);
  pieces.unknown = form.unknown_id.value_or(kNoToken);
  pieces.from_bytes = form.from_bytes;
  return PieceMerges(std::move(pieces));
}

TokenMap whole_words_of(const ModelForm& form, const Vocabulary& vocabulary) {
  TokenMap tokens;
  tokens.reserve(form.vocab.size());
  for (const auto& [spelling, id] : form.vocab)
    if (!vocabulary.special.contains(spelling)) tokens.insert(spelling, id);
  return tokens;
}

std::size_t longest_word_of(const ModelForm& form) {
  std::size_t longest = 0;
  for (const auto& [spelling, id] : form.vocab) longest = std::max(longest, spelling.size());
  return longest;
}

Model model_of(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file) {
  switch (form.kind) {
    case ModelForm::Kind::bpe:
      break;
    case ModelForm::Kind::unigram:
      return unigram_of(form, vocabulary, file);
    case ModelForm::Kind::piece_merges:
      return piece_merges_of(form, vocabulary);
    case ModelForm::Kind::word_level:
      return WordLevel(whole_words_of(form, vocabulary), unknown_of(form, vocabulary, file));
    case ModelForm::Kind::word_piece:
      return WordPiece(whole_words_of(form, vocabulary), longest_word_of(form),
                       {unknown_of(form, vocabulary, file), form.prefix, form.most_characters});
  }
  return bpe_of(form, vocabulary, file);
}

}  // namespace

WordModel::WordModel(const ModelForm& form, const Vocabulary& vocabulary, const std::string& file)
    : model_(model_of(form, vocabulary, file)) {}

void WordModel::append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const {
  if (const auto* bpe = std::get_if<Bpe>(&model_)) return bpe->append_ids(word, ids, scratch.bpe);
  if (const auto* unigram = std::get_if<Unigram>(&model_)) return unigram->append_ids(word, ids, scratch.unigram);
  if (const auto* pieces = std::get_if<PieceMerges>(&model_)) return pieces->append_ids(word, ids, scratch.pieces);
  if (const auto* pieces = std::get_if<WordPiece>(&model_)) return pieces->append_ids(word, ids);
  std::get<WordLevel>(model_).append_ids(word, ids);
}

bool takes_raw_bytes(const ModelForm& form) {
  if (form.kind == ModelForm::Kind::piece_merges) return form.from_bytes;
  if (form.kind != ModelForm::Kind::bpe || form.byte_fallback || !form.prefix.empty() || !form.suffix.empty())
    return false;
  if (!form.unknown_token) return true;
  int bytes = 0;
  for (const auto& [spelling, id] : form.vocab) {
    if (spelling.size() > 2) continue;
    const auto letters = bytes_of_token(spelling);
    bytes += letters && letters->size() == 1;
  }
  return bytes == 256;
}

}  // namespace nodewright
