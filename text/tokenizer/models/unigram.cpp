#include "text/tokenizer/models/unigram.h"

#include <algorithm>

#include "runtime/error.h"
#include "text/unicode/utf8.h"

namespace nodewright {

Unigram::Unigram(const std::vector<Piece>& pieces, const ByteTokens& bytes, Options options)
    : bytes_(bytes), options_(options) {
  std::vector<std::pair<std::string_view, std::int32_t>> strings;
  strings.reserve(pieces.size());
  id_of_piece_.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    strings.emplace_back(piece.spelling, static_cast<std::int32_t>(scores_.size()));
    scores_.push_back(piece.score);
    ids_.push_back(piece.id);
    id_of_piece_.assign(piece.spelling, piece.id);
  }
  tree_ = PrefixTree(std::move(strings));
}

void Unigram::append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const {
  if (word.empty()) return;
  find_best(word, scratch);
  auto& cuts = scratch.cuts;
  cuts.clear();
  for (std::size_t end = word.size(); end > 0; end = scratch.ends[end].begin) cuts.push_back(end);

  std::size_t begin = 0;          // of the piece
  std::size_t unknown_begin = 0;  // of a run of unknown characters that ends at `begin`
  while (!cuts.empty()) {
    const std::size_t end = cuts.back();
    cuts.pop_back();
    const TokenId id = scratch.ends[end].id;
    if (id != options_.unknown) {
      if (unknown_begin < begin) append_unknown(word.substr(unknown_begin, begin - unknown_begin), ids);
      ids.push_back(id);
      unknown_begin = end;
    }
    begin = end;
  }
  if (unknown_begin < begin) append_unknown(word.substr(unknown_begin), ids);
}

// Fills scratch.ends: the best way to each place between two characters, found from left to right.
void Unigram::find_best(std::string_view word, Scratch& scratch) const {
  auto& ends = scratch.ends;
  ends.assign(word.size() + 1, {});
  for (std::size_t begin = 0; begin < word.size();) {
    const std::size_t character = read_utf8(word.substr(begin)).size;
    const double before = ends[begin].score;
    bool has_piece = false;  // of this character alone
    const auto reach = [&](std::size_t size, double score, TokenId id) {
      auto& end = ends[begin + size];
      const double sum = options_.single_precision ? static_cast<float>(score + before) : score + before;
      if (end.begin != Scratch::kNowhere && sum <= end.score) return;
      end = {sum, begin, id};
    };
    tree_.for_each_start(word.substr(begin), [&](std::size_t size, std::int32_t piece) {
      reach(size, scores_[static_cast<std::size_t>(piece)], ids_[static_cast<std::size_t>(piece)]);
      has_piece |= size == character;
    });
    if (!has_piece) {
      if (options_.unknown == kNoToken) {
        throw Error({.doing = "tokenize text",
                     .object = std::string(word.substr(begin, character)),
                     .detail = "the vocabulary has neither this character nor a token for unknown ones"});
      }
      reach(character, options_.unknown_score, options_.unknown);
    }
    begin += character;
  }
}

void Unigram::append_unknown(std::string_view text, std::vector<TokenId>& ids) const {
  if (const auto whole = id_of_piece_.find(text)) return ids.push_back(*whole);
  const auto token_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
  if (options_.byte_fallback &&
      std::all_of(text.begin(), text.end(), [&](char b) { return token_of(b) != kNoToken; })) {
    for (const char byte : text) ids.push_back(token_of(byte));
  } else {
    ids.push_back(options_.unknown);
  }
}

}  // namespace nodewright
