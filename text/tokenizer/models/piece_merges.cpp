#include "text/tokenizer/models/piece_merges.h"

#include <algorithm>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr auto piece_merges_later = [](const PieceMerges::Scratch::Candidate& a,
                                       const PieceMerges::Scratch::Candidate& b) {
  return a.score < b.score || (a.score == b.score && a.left > b.left);
};

}  // namespace

PieceMerges::PieceMerges(Pieces pieces)
    : unused_(std::move(pieces.unused)),
      user_defined_(std::move(pieces.user_defined)),
      bytes_(pieces.bytes),
      unknown_(pieces.unknown),
      from_bytes_(pieces.from_bytes) {
  unused_.resize(pieces.pieces.size());
  index_of_piece_.reserve(pieces.pieces.size());
  for (const auto& piece : pieces.pieces) {
    index_of_piece_.insert(piece.spelling, static_cast<TokenId>(scores_.size()));
    scores_.push_back(static_cast<float>(piece.score));
    ids_.push_back(piece.id);
  }
}

void PieceMerges::append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const {
  if (from_bytes_) {
    if (const auto whole = index_of_piece_.find(word)) return ids.push_back(ids_[static_cast<std::size_t>(*whole)]);
  }
  start(word, scratch);
  merge_all(scratch);
  bool after_unknown = false;
  for (const auto& symbol : scratch.symbols) {
    if (!symbol.text.empty()) append_piece(symbol.text, scratch, ids, after_unknown);
  }
}

void PieceMerges::start(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  scratch.halves.clear();
  while (!word.empty()) {
    const std::size_t whole = user_defined_.longest(word);
    const std::size_t size = whole > 0 ? whole : from_bytes_ ? 1 : read_utf8(word).size;
    const auto at = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({word.substr(0, size), at - 1, at + 1, whole > 0});
    word.remove_prefix(size);
  }
  if (!symbols.empty()) symbols.back().next = -1;
  for (std::int32_t i = 1; i < static_cast<std::int32_t>(symbols.size()); ++i) add_candidate(scratch, i - 1, i);
}

void PieceMerges::add_candidate(Scratch& scratch, std::int32_t left, std::int32_t right) const {
  if (left < 0 || right < 0) return;
  const auto& a = scratch.symbols[static_cast<std::size_t>(left)];
  const auto& b = scratch.symbols[static_cast<std::size_t>(right)];
  if (a.frozen || b.frozen) return;
  const std::string_view both(a.text.data(), a.text.size() + b.text.size());
  const auto piece = index_of_piece_.find(both);
  if (!piece) return;
  scratch.heap.push_back({scores_[static_cast<std::size_t>(*piece)], left, right, both.size()});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), piece_merges_later);
  if (unused_[static_cast<std::size_t>(*piece)]) scratch.halves[both] = {a.text, b.text};
}

void PieceMerges::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), piece_merges_later);
    const auto candidate = heap.back();
    heap.pop_back();
    auto& left = symbols[static_cast<std::size_t>(candidate.left)];
    auto& right = symbols[static_cast<std::size_t>(candidate.right)];
    if (left.text.empty() || right.text.empty() || left.text.size() + right.text.size() != candidate.size) continue;
    left.text = {left.text.data(), candidate.size};
    left.next = right.next;
    right.text = {};
    if (left.next >= 0) symbols[static_cast<std::size_t>(left.next)].prev = candidate.left;
    add_candidate(scratch, left.prev, candidate.left);
    add_candidate(scratch, candidate.left, left.next);
  }
}

void PieceMerges::append_piece(std::string_view piece, const Scratch& scratch, std::vector<TokenId>& ids,
                               bool& after_unknown) const {
  std::vector<std::string_view> waiting = {piece};
  while (!waiting.empty()) {
    const std::string_view one = waiting.back();
    waiting.pop_back();
    const auto index = index_of_piece_.find(one);
    if (index && unused_[static_cast<std::size_t>(*index)]) {
      if (const auto halves = scratch.halves.find(one); halves != scratch.halves.end()) {
        waiting.push_back(halves->second.second);
        waiting.push_back(halves->second.first);
        continue;
      }
    }
    const TokenId id = index ? ids_[static_cast<std::size_t>(*index)] : unknown_;
    const auto token_of = [&](char byte) { return bytes_[static_cast<unsigned char>(byte)]; };
    const bool unknown = id == unknown_;
    if (id == kNoToken) continue;
    if (unknown && std::all_of(one.begin(), one.end(), [&](char b) { return token_of(b) != kNoToken; })) {
      for (const char byte : one) ids.push_back(token_of(byte));
    } else if (!unknown || !after_unknown) {
      ids.push_back(id);
    }
    after_unknown = unknown;
  }
}

}  // namespace nodewright
