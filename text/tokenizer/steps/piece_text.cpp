#include "text/tokenizer/steps/piece_text.h"

#include "text/tokenizer/tokens/normal_text.h"
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

MarkedText PieceText::apply(const MarkedText& text, bool at_start) const {
  const std::string_view space = escape_spaces ? "\u2581" : " ";
  MarkedWriter to(text);
  if (remove_extra_spaces) {
    while (!to.rest().empty()) {
      const NormalStart start = normal_start(*this, to.rest());
      if (start.normal != " ") break;
      to.drop(start.size);
    }
  }
  if (to.rest().empty()) return to.take();
  const bool adds_space = add_prefix && (at_start || !prefix_at_start_only);
  if (adds_space && !spaces_are_suffixes) to.insert(space);
  bool after_space = remove_extra_spaces;
  while (!to.rest().empty()) {
    NormalStart start = normal_start(*this, to.rest());
    while (after_space && start.normal.starts_with(' ')) start.normal.remove_prefix(1);
    if (start.normal.empty()) {
      to.drop(start.size);
      continue;
    }
    to.replace(start.size, escape_spaces ? replace_all(start.normal, " ", space) : std::string(start.normal));
    after_space = remove_extra_spaces && start.normal.ends_with(' ');
  }
  while (remove_extra_spaces && to.written().ends_with(space)) to.erase_end(space.size());
  if (adds_space && spaces_are_suffixes) to.insert(space);
  return to.take();
}

}  // namespace nodewright
