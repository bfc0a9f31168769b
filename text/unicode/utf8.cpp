// The decoder of utf8.h: byte ranges from table 3-7 of the Unicode standard.
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

constexpr char32_t kReplacement = 0xFFFD;

struct Lead {
  std::uint32_t size;                     // bytes of the character, 0: no character starts with this byte
  unsigned char second_low, second_high;  // range of the second byte; the others are 80..BF
};

Lead lead_of(unsigned char byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step read_utf8(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes[0]);
  const Lead lead = lead_of(first);
  if (lead.size == 1) return {Utf8Kind::complete, 1, first};
  if (lead.size == 0) return {Utf8Kind::invalid, 1, kReplacement};

  char32_t code_point = first & (0xFFu >> (lead.size + 1));
  for (std::uint32_t i = 1; i < lead.size; ++i) {
    if (i == bytes.size()) return {Utf8Kind::truncated, i, kReplacement};
    const auto byte = static_cast<unsigned char>(bytes[i]);
    const unsigned char low = i == 1 ? lead.second_low : 0x80;
    const unsigned char high = i == 1 ? lead.second_high : 0xBF;
    if (byte < low || byte > high) return {Utf8Kind::invalid, i, kReplacement};
    code_point = code_point << 6 | (byte & 0x3F);
  }
  return {Utf8Kind::complete, lead.size, code_point};
}

std::string_view last_character(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return text.substr(at);
}

void append_utf8(char32_t code_point, std::string& text) {
  const auto tail = [&](int shift) { text += static_cast<char>(0x80 | ((code_point >> shift) & 0x3F)); };
  if (code_point < 0x80) {
    text += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    text += static_cast<char>(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    text += static_cast<char>(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::string in_utf8(char32_t code_point) {
  std::string text;
  append_utf8(code_point, text);
  return text;
}

std::size_t append_complete_utf8(std::string_view bytes, std::string& text) {
  std::size_t begin = 0;  // of the valid bytes not yet appended
  std::size_t at = 0;
  while (at < bytes.size()) {
    const Utf8Step step = read_utf8(bytes.substr(at));
    if (step.kind == Utf8Kind::complete) {
      at += step.size;
      continue;
    }
    text += bytes.substr(begin, at - begin);
    if (step.kind == Utf8Kind::truncated) return at;
    append_utf8(kReplacement, text);
    at += step.size;
    begin = at;
  }
  text += bytes.substr(begin);
  return at;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  if (append_complete_utf8(bytes, text) < bytes.size()) append_utf8(kReplacement, text);
  return text;
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::size_t white_space_at_start(std::string_view text) {
  std::size_t size = 0;
  while (size < text.size()) {
    const Utf8Step step = read_utf8(text.substr(size));
    if (!is_white_space(step.code_point)) break;
    size += step.size;
  }
  return size;
}

std::size_t white_space_at_end(std::string_view text) {
  const std::size_t size = text.size();
  while (!text.empty()) {
    const std::string_view character = last_character(text);
    if (!is_white_space(read_utf8(character).code_point)) break;
    text.remove_suffix(character.size());
  }
  return size - text.size();
}

}  // namespace nodewright
