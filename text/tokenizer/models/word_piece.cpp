#include "text/tokenizer/models/word_piece.h"

#include <algorithm>

#include "text/unicode/utf8.h"

namespace nodewright {

WordPiece::WordPiece(TokenMap tokens, std::size_t longest, Options options)
    : tokens_(std::move(tokens)), longest_(longest), options_(std::move(options)) {}

void WordPiece::append_ids(std::string_view word, std::vector<TokenId>& ids) const {
  const auto characters = static_cast<std::size_t>(
      std::count_if(word.begin(), word.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
  const std::size_t before = ids.size();
  const auto fail = [&] {
    ids.resize(before);
    ids.push_back(options_.unknown);
  };
  if (characters > options_.most_characters) return fail();
  std::string inside;  // prefix and rest of the word
  for (std::string_view rest = word; !rest.empty();) {
    const std::size_t prefix = ids.size() > before ? options_.prefix.size() : 0;
    inside.assign(options_.prefix, 0, prefix).append(rest.substr(0, longest_ + 1));
    std::string_view token = inside;
    while (token.size() > prefix && token.size() > longest_) token.remove_suffix(last_character(token).size());
    std::optional<TokenId> id;
    while (token.size() > prefix && !(id = tokens_.find(token))) token.remove_suffix(last_character(token).size());
    if (!id) return fail();
    ids.push_back(*id);
    rest.remove_prefix(token.size() - prefix);
  }
}

}  // namespace nodewright
