#include "text/tokenizer/tokens/added_tokens.h"

#include <algorithm>
#include <cstdint>

#include "text/tokenizer/tokens/marked_text.h"
#include "text/unicode/character_kinds.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// No word character on either side.
bool stands_alone(std::string_view before, std::string_view after) {
  return (before.empty() || !is_word(read_utf8(last_character(before)).code_point)) &&
         (after.empty() || !is_word(read_utf8(after).code_point));
}

bool is_users(char mark) { return (mark & kUsersByte) != 0; }

}  // namespace

AddedTokens::AddedTokens(std::vector<Spelled> tokens) {
  std::vector<std::pair<std::string_view, std::int32_t>> spellings;
  for (std::size_t i = tokens.size(); i-- > 0;)  // backwards: of equal strings the tree takes the last
    spellings.emplace_back(tokens[i].first, static_cast<std::int32_t>(i));
  tree_ = PrefixTree(std::move(spellings));
  tokens_.reserve(tokens.size());
  for (auto& [spelling, token] : tokens) {
    leads_.push_back(spelling.ends_with(token.content) ? spelling.size() - token.content.size() : 0);
    has_special_ = has_special_ || token.special;
    tokens_.push_back(std::move(token));
  }
}

AddedTokens::Match AddedTokens::longest_at(std::string_view text) const {
  Match longest;
  tree_.for_each_start(text, [&](std::size_t size, std::int32_t token) {
    longest = {size, &tokens_[static_cast<std::size_t>(token)], leads_[static_cast<std::size_t>(token)]};
  });
  return longest;
}

std::vector<AddedTokens::Span> AddedTokens::specials_of_template(std::string_view text, std::string_view marks) const {
  std::vector<Span> spans;
  for (std::size_t at = 0; at < text.size();) {
    if (is_users(marks[at])) {
      ++at;
      continue;
    }
    const std::size_t end = std::find_if(marks.begin() + at, marks.end(), is_users) - marks.begin();
    while (at < end) {
      const Match match = longest_at(text.substr(at, end - at));
      const bool stands = match.size > 0 && match.token->special &&
                          (!match.token->single_word || stands_alone(text.substr(0, at), text.substr(at + match.size)));
      if (stands) spans.push_back({at, at + match.size});
      at += std::max<std::size_t>(match.size, 1);
    }
  }
  return spans;
}

void AddedTokens::append_pieces(std::string_view text, Special special, std::vector<Piece>& pieces) const {
  std::vector<Span> templates;
  if (special.parse && !special.marks.empty()) templates = specials_of_template(text, special.marks);
  auto next = templates.begin();
  const auto may_be_special = [&](std::size_t begin, std::size_t end) {
    const std::string_view marks = special.marks.substr(std::min(begin, special.marks.size()), end - begin);
    return special.parse && std::none_of(marks.begin(), marks.end(), is_users);
  };
  std::size_t done = 0;  // end of the last token, with what it swallowed
  for (std::size_t at = 0; at < text.size();) {
    while (next != templates.end() && next->begin < at) ++next;
    const std::size_t limit = next == templates.end() ? text.size() : at == next->begin ? next->end : next->begin;
    const Match match = longest_at(text.substr(at, limit - at));
    if (match.size == 0) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    std::size_t end = at + match.size;
    at = end;  // also after a match that is turned down below: matches never overlap

    const AddedToken& token = *match.token;
    if (token.special && !may_be_special(begin + match.lead, end)) continue;
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
