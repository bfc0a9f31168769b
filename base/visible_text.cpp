#include "base/visible_text.h"

#include <array>
#include <cstdint>
#include <cstdio>

namespace nodewright {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = false;
};

// The first of `text`, which is not empty. RFC 3629: no overlong forms, no surrogates, at most U+10FFFF.
Character first_character(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text[0]);
  if (lead < 0x80) return {lead, 1, true};
  const size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return {lead, 1, false};
  uint32_t code = lead & (0x7fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    const auto next = static_cast<unsigned char>(text[i]);
    if ((next & 0xc0) != 0x80) return {lead, 1, false};
    code = code << 6 | (next & 0x3fu);
  }
  static constexpr std::array<uint32_t, 5> kLeast = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {lead, 1, false};
  return {code, bytes, true};
}

bool acts_unseen(uint32_t code) {
  return code < 0x20 || (code >= 0x7f && code < 0xa0) || code == 0x200e || code == 0x200f || code == 0x061c ||
         (code >= 0x2028 && code <= 0x202e) || (code >= 0x2066 && code <= 0x2069) || code == 0xfeff;
}

void append_escaped(std::string& out, const Character& one) {
  std::array<char, 16> digits{};
  std::snprintf(digits.data(), digits.size(), one.valid && one.code > 0xff ? "\\u{%x}" : "\\x%02x", one.code);
  out += digits.data();
}

}  // namespace

std::string visible_text(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Character one = first_character(text);
    if (one.valid && (!acts_unseen(one.code) || one.code == '\n' || one.code == '\t'))
      out += text.substr(0, one.bytes);
    else
      append_escaped(out, one);
    text.remove_prefix(one.bytes);
  }
  return out;
}

std::string log_word(std::string_view text, size_t most_bytes) {
  std::string out;
  while (!text.empty()) {
    const Character one = first_character(text);
    std::string next;
    if (one.valid && !acts_unseen(one.code) && one.code != ' ')
      next = text.substr(0, one.bytes);
    else
      append_escaped(next, one);
    if (out.size() + next.size() > most_bytes) return out + "...(" + std::to_string(text.size()) + "_more_bytes)";
    out += next;
    text.remove_prefix(one.bytes);
  }
  return out;
}

}  // namespace nodewright
