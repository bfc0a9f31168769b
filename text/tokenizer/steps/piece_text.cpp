#include "text/tokenizer/steps/piece_text.h"

#include "text/tokenizer/steps/normal_text.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

// What the first `size` bytes of a text become.
struct NormalStart {
  std::size_t size;
  std::string_view normal;
};

NormalStart normal_start(const PieceText& pieces, std::string_view text) {
  if (const std::size_t kept = pieces.kept.longest(text); kept > 0) return {kept, text.substr(0, kept)};
  if (const auto match = pieces.map.longest(text); match.size > 0) return {match.size, match.to};
  const std::size_t size = read_utf8(text).size;
  return {size, text.substr(0, size)};
}

}  // namespace

std::string PieceText::apply(std::string_view text, bool at_start) const {
  const std::string_view space = escape_spaces ? "\u2581" : " ";
  if (remove_extra_spaces) {
    while (!text.empty()) {
      const NormalStart start = normal_start(*this, text);
      if (start.normal != " ") break;
      text.remove_prefix(start.size);
    }
  }
  std::string normal;
  if (text.empty()) return normal;
  const bool adds_space = add_prefix && (at_start || !prefix_at_start_only);
  if (adds_space && !spaces_are_suffixes) normal += space;
  bool after_space = remove_extra_spaces;
  while (!text.empty()) {
    NormalStart start = normal_start(*this, text);
    text.remove_prefix(start.size);
    while (after_space && start.normal.starts_with(' ')) start.normal.remove_prefix(1);
    if (start.normal.empty()) continue;
    for (const char c : start.normal) {
      if (c == ' ') {
        normal += space;
      } else {
        normal += c;
      }
    }
    check_normal_length(normal);
    after_space = remove_extra_spaces && start.normal.ends_with(' ');
  }
  while (remove_extra_spaces && normal.ends_with(space)) normal.erase(normal.size() - space.size());
  if (adds_space && spaces_are_suffixes) normal += space;
  return normal;
}

}  // namespace nodewright
