#include "text/tokenizer/tokens/token_map.h"

#include <bit>
#include <functional>

namespace nodewright {

void TokenMap::reserve(std::size_t tokens) {
  entries_.reserve(tokens);
  if (tokens * 2 > slots_.size()) grow(tokens);
}

TokenId TokenMap::insert(std::string_view spelling, TokenId id) {
  if ((entries_.size() + 1) * 2 > slots_.size()) grow(entries_.size() + 1);
  std::uint32_t& slot = slots_[slot_of(spelling)];
  if (slot != 0) return entries_[slot - 1].id;
  entries_.push_back({spellings_.size(), spelling.size(), id});
  spellings_ += spelling;
  slot = static_cast<std::uint32_t>(entries_.size());
  return id;
}

void TokenMap::assign(std::string_view spelling, TokenId id) {
  insert(spelling, id);
  entries_[slots_[slot_of(spelling)] - 1].id = id;
}

std::optional<TokenId> TokenMap::find(std::string_view spelling) const {
  if (slots_.empty()) return std::nullopt;
  const std::uint32_t slot = slots_[slot_of(spelling)];
  return slot == 0 ? std::nullopt : std::optional(entries_[slot - 1].id);
}

std::size_t TokenMap::slot_of(std::string_view spelling) const {
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = std::hash<std::string_view>{}(spelling)&mask;; at = (at + 1) & mask) {
    if (slots_[at] == 0) return at;
    const Entry& entry = entries_[slots_[at] - 1];
    if (std::string_view(spellings_).substr(entry.begin, entry.size) == spelling) return at;
  }
}

void TokenMap::grow(std::size_t entries) {
  slots_.assign(std::bit_ceil(entries * 2 + 16), 0);
  for (std::size_t i = 0; i < entries_.size(); ++i) {
    const std::string_view spelling = std::string_view(spellings_).substr(entries_[i].begin, entries_[i].size);
    slots_[slot_of(spelling)] = static_cast<std::uint32_t>(i + 1);
  }
}

}  // namespace nodewright
