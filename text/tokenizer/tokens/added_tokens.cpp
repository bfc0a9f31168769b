#include "text/tokenizer/tokens/added_tokens.h"

#include <algorithm>
#include <cstdint>

#include "text/unicode/character_kinds.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// No word character on either side.
bool stands_alone(std::string_view before, std::string_view after) {
  return (before.empty() || !is_word(read_utf8(last_character(before)).code_point)) &&
         (after.empty() || !is_word(read_utf8(after).code_point));
}

}  // namespace

AddedTokens::AddedTokens(std::vector<Spelled> tokens) {
  std::vector<std::pair<std::string_view, std::int32_t>> spellings;
  for (std::size_t i = tokens.size(); i-- > 0;)  // backwards: of equal strings the tree takes the last
    spellings.emplace_back(tokens[i].first, static_cast<std::int32_t>(i));
  tree_ = PrefixTree(std::move(spellings));
  tokens_.reserve(tokens.size());
  for (auto& [spelling, token] : tokens) tokens_.push_back(std::move(token));
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text) const {
  Match longest;
  tree_.for_each_start(text, [&](std::size_t size, std::int32_t token) {
    longest = {size, &tokens_[static_cast<std::size_t>(token)]};
  });
  return longest;
}

void AddedTokens::append_pieces(std::string_view text, Special special, std::vector<Piece>& pieces) const {
  const auto may_be_special = [&](std::size_t begin, std::size_t end) {
    return special.parse &&
           special.plain.substr(std::min(begin, special.plain.size()), end - begin).find_first_not_of('\0') ==
               std::string_view::npos;
  };
  std::size_t done = 0;  // end of the last token, with what it swallowed
  for (std::size_t at = 0; at < text.size();) {
    const Match match = longest_at(text.substr(at));
    if (match.size == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + match.size;
    at = end;  // also after a match that is turned down below: matches never overlap

    const AddedToken& token = *match.token;
    if (token.special && !may_be_special(begin, end)) continue;
    if (token.single_word && !stands_alone(text.substr(0, begin), text.substr(end))) continue;
    if (token.lstrip) begin = std::max(done, begin - white_space_at_end(text.substr(0, begin)));
    if (token.rstrip) end += white_space_at_start(text.substr(end));

    // A token may start in white space that the one before has swallowed. The oracle then emits it all the same, and
    // goes on after its end.
    if (done < begin) pieces.push_back({text.substr(done, begin - done)});
    pieces.push_back({{}, token.id});
    done = end;
  }
  if (done < text.size()) pieces.push_back({text.substr(done)});
}

}  // namespace nodewright
