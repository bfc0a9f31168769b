// Token ids by spelling: a hash table without an allocation for each entry, since vocabularies have 256 thousand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright {

using TokenId = std::int32_t;  // 0 and up
inline constexpr TokenId kNoToken = -1;

class TokenMap {
 public:
  // Makes room for this many tokens.
  void reserve(std::size_t tokens);

  // The id that `spelling` has from now on: `id`, or the one that it had. Not thread-safe.
  TokenId insert(std::string_view spelling, TokenId id);

  // Gives `spelling` this id, whatever it had. Not thread-safe.
  void assign(std::string_view spelling, TokenId id);

  // Thread-safe while nothing is inserted.
  std::optional<TokenId> find(std::string_view spelling) const;
  bool contains(std::string_view spelling) const { return find(spelling).has_value(); }

  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    std::size_t begin, size;  // in spellings_
    TokenId id;
  };

  std::size_t slot_of(std::string_view spelling) const;  // of its entry, or of none
  void grow(std::size_t entries);

  std::string spellings_;
  std::vector<Entry> entries_;
  std::vector<std::uint32_t> slots_;  // 1 + index of an entry, 0: none; a power of two of them, at most half taken
};

}  // namespace nodewright
