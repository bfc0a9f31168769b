#include "serve/api/answer/event_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

bool is_plain(char c) { return c >= 0x20 && c != '"' && c != '\\' && c != 0x7f; }

// At most 3 bytes of UTF-8 begin at `text` and are not plain ASCII.
size_t append_character(std::string& out, std::string_view text) {
  const Utf8Step step = read_utf8(text);
  if (step.kind == Utf8Kind::complete)
    out.append(text.substr(0, step.size));
  else
    out += "\xEF\xBF\xBD";
  return step.size;
}

void append_escaped(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      break;
    case '\\':
      out += "\\\\";
      break;
    case '\n':
      out += "\\n";
      break;
    case '\r':
      out += "\\r";
      break;
    case '\t':
      out += "\\t";
      break;
    default:
      fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned char>(c));
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    while (at < text.size() && is_plain(text[at])) ++at;
    out.append(text.substr(begin, at - begin));
    if (at == text.size()) break;
    if (static_cast<unsigned char>(text[at]) >= 0x80)
      at += append_character(out, text.substr(at));
    else
      append_escaped(out, text[at++]);
  }
  out += '"';
}

void append_json_ids(std::string& out, std::span<const int32_t> ids) {
  fmt::format_to(std::back_inserter(out), "[{}]", fmt::join(ids, ","));
}

void append_json_logprob(std::string& out, float logprob) {
  constexpr float kLeast = -9999.0f;
  if (std::isnan(logprob))
    out += "null";
  else
    fmt::format_to(std::back_inserter(out), "{}", std::clamp(logprob, kLeast, -kLeast));
}

void append_event(std::string& out, std::string_view json) {
  out += "data: ";
  out += json;
  out += "\n\n";
}

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

}  // namespace nodewright
