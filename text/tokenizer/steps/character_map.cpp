// Units of the trie are those of Darts-clone (darts.h, DoubleArrayUnit): label in bits 0 to 7 and 31, bit 8 for a unit
// that has a value, offset in bits 10 to 30 with bit 9 for one of 256 times the size.
#include "text/tokenizer/steps/character_map.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <cstring>

#include "text/tokenizer/load_error.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr std::size_t kLongestWholeGrapheme = 5;  // bytes

std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

bool ends_grapheme(char32_t before, char32_t after, utf8proc_int32_t& state) {
  if (before < 0x80 && after < 0x80) {
    state = 0;
    return before != '\r' || after != '\n';
  }
  return utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(before), static_cast<utf8proc_int32_t>(after),
                                          &state);
}

}  // namespace

CharacterMap::CharacterMap(std::string_view bytes, const std::string& file) {
  if (bytes.empty()) return;
  std::uint32_t size = 0;  // bytes of the trie, little endian as this machine
  if (bytes.size() >= sizeof size) std::memcpy(&size, bytes.data(), sizeof size);
  if (bytes.size() < sizeof size || size > bytes.size() - sizeof size || size % sizeof(std::uint32_t) != 0)
    fail_load(file, fmt::format("the character map has {} bytes, its trie {}", bytes.size(), size));
  units_.resize(size / sizeof(std::uint32_t));
  std::memcpy(units_.data(), bytes.data() + sizeof size, size);
  results_ = bytes.substr(sizeof size + size);
}

CharacterMap::Match CharacterMap::match(std::string_view text, bool longest) const {
  Match found;
  if (units_.empty()) return found;
  std::size_t at = offset_of(units_[0]);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size()) break;
    const std::uint32_t unit = units_[at];
    if ((unit & 0x800000FFu) != byte) break;
    at ^= offset_of(unit);
    if ((unit & 0x100u) == 0) continue;
    if (at >= units_.size()) break;
    const std::size_t result = units_[at] & 0x7FFFFFFFu;
    if (result >= results_.size()) break;
    found = {i + 1, results_.c_str() + result};
    if (!longest) break;
  }
  return found;
}

MarkedText CharacterMap::apply(const MarkedText& text) const {
  if (empty()) return text;
  MarkedWriter to(text);
  while (!to.rest().empty()) {
    const std::string_view rest = to.rest();
    Utf8Step step = read_utf8(rest);
    std::size_t size = step.size;
    utf8proc_int32_t state = 0;
    while (size < rest.size()) {
      const Utf8Step next = read_utf8(rest.substr(size));
      if (ends_grapheme(step.code_point, next.code_point, state)) break;
      if (text.has_barrier_within(to.done(), to.done() + size + 1)) break;
      size += next.size;
      step = next;
    }
    write_grapheme(size, to);
  }
  return to.take();
}

void CharacterMap::write_grapheme(std::size_t size, MarkedWriter& to) const {
  if (size <= kLongestWholeGrapheme) {
    if (const Match whole = match(to.rest().substr(0, size), false); whole.size > 0) {
      to.replace(size, whole.to);
      return;
    }
  }
  for (const std::size_t end = to.done() + size; to.done() < end;) {
    const std::size_t bytes = read_utf8(to.rest()).size;
    const Match one = match(to.rest().substr(0, bytes), false);
    one.size > 0 ? to.replace(bytes, one.to) : to.keep(bytes);
  }
}

}  // namespace nodewright
