// Merging with a binary heap over a linked list of symbols. Entries of the heap are never removed: one whose pair has
// changed since is skipped when it comes up.
#include "text/tokenizer/models/bpe.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

std::uint64_t pair_key(TokenId left, TokenId right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

void append_symbol(TokenId id, std::vector<Bpe::Scratch::Symbol>& symbols) {
  const auto at = static_cast<std::int32_t>(symbols.size());
  symbols.push_back({id, at - 1, at + 1});
}

constexpr auto merges_later = [](const Bpe::Scratch::Candidate& a, const Bpe::Scratch::Candidate& b) {
  return a.order > b.order;
};

}  // namespace

void Bpe::reserve(std::size_t tokens, std::size_t merges) {
  tokens_.reserve(tokens);
  if (merges * 2 > merges_.size()) grow(merges);
}

void Bpe::add_token(std::string_view bytes, TokenId id) {
  if (bytes.size() == 1) token_of_byte_[static_cast<unsigned char>(bytes[0])] = id;
  tokens_.assign(bytes, id);
}

void Bpe::add_merge(TokenId left, TokenId right, TokenId merged) {
  if ((merge_count_ + 1) * 2 > merges_.size()) grow(merge_count_ + 1);
  const std::uint64_t pair = pair_key(left, right);
  Merge& merge = merges_[slot_of(pair)];
  if (merge.pair == kNoPair) ++merge_count_;
  merge = {pair, next_rank_++, merged};
}

std::optional<TokenId> Bpe::token(std::string_view bytes) const { return tokens_.find(bytes); }

void Bpe::append_ids(std::string_view word, std::vector<TokenId>& ids, Scratch& scratch) const {
  if (ignore_merges_) {
    if (const auto whole = token(word)) {
      ids.push_back(*whole);
      return;
    }
  }
  auto& symbols = scratch.symbols;
  symbols.clear();
  if (characters_) {
    append_characters(word, symbols);
  } else {
    append_bytes(word, symbols);
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;

  merge_all(scratch);
  for (const auto& symbol : symbols) {
    if (symbol.id != kNoToken) ids.push_back(symbol.id);
  }
}

void Bpe::append_bytes(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  for (const char byte : word) {
    const TokenId id = token_of_byte_[static_cast<unsigned char>(byte)];
    if (id != kNoToken) append_symbol(id, symbols);
  }
}

void Bpe::append_characters(std::string_view word, std::vector<Scratch::Symbol>& symbols) const {
  const Characters& characters = *characters_;
  const bool decorated = !characters.prefix.empty() || !characters.suffix.empty();
  std::string spelled;         // a character with prefix and suffix
  bool is_first = true;        // of its word
  bool unknown_waits = false;  // bytes overtake it, as in the oracle
  while (!word.empty()) {
    std::string_view character = word.substr(0, read_utf8(word).size);
    word.remove_prefix(character.size());
    if (decorated) {
      spelled.assign(is_first ? "" : characters.prefix).append(character).append(word.empty() ? characters.suffix : "");
      character = spelled;
      is_first = false;
    }
    const auto byte_token = [&](char byte) { return characters.token_of_byte[static_cast<unsigned char>(byte)]; };
    if (const auto known = token(character)) {
      if (unknown_waits) append_symbol(characters.unknown, symbols);
      unknown_waits = false;
      append_symbol(*known, symbols);
    } else if (std::all_of(character.begin(), character.end(), [&](char b) { return byte_token(b) != kNoToken; })) {
      for (const char byte : character) append_symbol(byte_token(byte), symbols);
    } else if (characters.unknown != kNoToken) {
      if (unknown_waits && !characters.fuse_unknown) append_symbol(characters.unknown, symbols);
      unknown_waits = true;
    }
  }
  if (unknown_waits) append_symbol(characters.unknown, symbols);
}

std::size_t Bpe::slot_of(std::uint64_t pair) const {
  const std::size_t mask = merges_.size() - 1;
  const std::uint64_t hash = (pair * 0x9E3779B97F4A7C15u) >> 20;  // Fibonacci hashing: 2^64 / golden ratio
  for (std::size_t at = hash & mask;; at = (at + 1) & mask) {
    if (merges_[at].pair == pair || merges_[at].pair == kNoPair) return at;
  }
}

void Bpe::grow(std::size_t merges) {
  std::vector<Merge> old(std::bit_ceil(merges * 2 + 16));
  std::swap(old, merges_);
  for (const Merge& merge : old) {
    if (merge.pair != kNoPair) merges_[slot_of(merge.pair)] = merge;
  }
}

const Bpe::Merge* Bpe::find_merge(TokenId left, TokenId right) const {
  if (merges_.empty()) return nullptr;
  const Merge& merge = merges_[slot_of(pair_key(left, right))];
  return merge.pair == kNoPair ? nullptr : &merge;
}

// Adds the pair at these two positions to the vector, if it merges at all; the caller restores the heap.
void Bpe::push_candidate(Scratch& scratch, std::int32_t left, std::int32_t right) const {
  const auto& symbols = scratch.symbols;
  if (const Merge* merge = find_merge(symbols[left].id, symbols[right].id)) {
    const auto order = static_cast<std::uint64_t>(merge->rank) << 32 | static_cast<std::uint32_t>(left);
    scratch.heap.push_back({order, merge->merged});
  }
}

void Bpe::merge_all(Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  auto& heap = scratch.heap;
  heap.clear();
  for (std::int32_t i = 0; i + 1 < static_cast<std::int32_t>(symbols.size()); ++i) push_candidate(scratch, i, i + 1);
  std::make_heap(heap.begin(), heap.end(), merges_later);

  const auto add = [&](std::int32_t left, std::int32_t right) {
    const std::size_t before = heap.size();
    push_candidate(scratch, left, right);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), merges_later);
  };

  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), merges_later);
    const auto candidate = heap.back();
    heap.pop_back();

    const auto at = static_cast<std::int32_t>(candidate.order & 0xFFFFFFFFu);
    auto& left = symbols[at];
    if (left.id == kNoToken || left.next < 0) continue;
    auto& right = symbols[left.next];
    // The oracle compares the result only, not the rank: a pair that has changed but still makes the same token keeps
    // the place of the old one.
    const Merge* merge = find_merge(left.id, right.id);
    if (merge == nullptr || merge->merged != candidate.merged) continue;

    left.id = candidate.merged;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next >= 0) symbols[left.next].prev = at;
    if (left.prev >= 0) add(left.prev, at);
    if (left.next >= 0) add(at, left.next);
  }
}

}  // namespace nodewright
