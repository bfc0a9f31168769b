// A byte trie, walked from each position of the text. Walks are as deep as the longest token at most.
#include "text/tokenizer/tokens/added_tokens.h"

#include <algorithm>

#include "text/unicode/character_kinds.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

std::uint64_t edge(std::uint32_t node, char byte) {
  return static_cast<std::uint64_t>(node) << 8 | static_cast<unsigned char>(byte);
}

std::size_t white_space_at_end(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const auto character = last_character(text);
    if (!is_white_space(read_utf8(character).code_point)) break;
    text.remove_suffix(character.size());
  }
  return size - text.size();
}

// No word character on either side.
bool stands_alone(std::string_view before, std::string_view after) {
  return (before.empty() || !is_word(read_utf8(last_character(before)).code_point)) &&
         (after.empty() || !is_word(read_utf8(after).code_point));
}

std::size_t white_space_at_start(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const Utf8Step step = read_utf8(text);
    if (!is_white_space(step.code_point)) break;
    text.remove_prefix(step.size);
  }
  return size - text.size();
}

}  // namespace

void AddedTokens::add(const AddedToken& token, std::string_view pattern) {
  if (pattern.empty()) return;
  std::uint32_t node = 0;
  for (const char byte : pattern) {
    const auto [child, is_new] =
        child_of_node_.try_emplace(edge(node, byte), static_cast<std::uint32_t>(token_of_node_.size()));
    if (is_new) token_of_node_.push_back(-1);
    node = child->second;
  }
  if (token_of_node_[node] >= 0) return;
  token_of_node_[node] = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text) const {
  Match longest;
  std::uint32_t node = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto child = child_of_node_.find(edge(node, text[i]));
    if (child == child_of_node_.end()) break;
    node = child->second;
    if (token_of_node_[node] >= 0) longest = {i + 1, &tokens_[token_of_node_[node]]};
  }
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
