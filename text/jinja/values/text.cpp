#include "text/jinja/values/text.h"

#include <utf8proc.h>

#include <array>

#include "text/unicode/utf8.h"

namespace nodewright::jinja {
namespace {

// str.isspace() of Python, which also takes the four separators below the space.
bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

std::size_t character_size(std::string_view text) { return read_utf8(text).size; }

std::size_t last_character_size(std::string_view text) {
  std::size_t size = 1;
  while (size < text.size() && (static_cast<unsigned char>(text[text.size() - size]) & 0xC0) == 0x80) ++size;
  return size;
}

}  // namespace

void Text::append(const Text& other) {
  bytes_ += other.bytes_;
  mask_ += other.mask_;
}

Text Text::part(std::size_t begin, std::size_t size) const {
  Text found;
  found.bytes_ = bytes_.substr(begin, size);
  found.mask_ = mask_.substr(begin, size);
  found.is_markup_ = is_markup_;
  return found;
}

Text Text::as_markup(bool markup) const {
  Text same = *this;
  same.is_markup_ = markup;
  return same;
}

Text Text::escaped() const {
  if (is_markup_) return *this;
  Text result;
  constexpr std::string_view kEscaped = "&<>'\"";
  constexpr std::array<const char*, 5> kWritten = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
  std::size_t done = 0;
  for (std::size_t i = 0; i < size(); ++i) {
    const std::size_t found = kEscaped.find(bytes_[i]);
    if (found == std::string_view::npos) continue;
    result.append(part(done, i - done));
    result.append(Text(std::string(kWritten[found]), mask_[i]));
    done = i + 1;
  }
  result.append(part(done, size() - done));
  result.is_markup_ = true;
  return result;
}

std::int64_t Text::characters() const {
  std::int64_t count = 0;
  for (const char byte : bytes_) count += (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
  return count;
}

std::vector<Text> Text::split_to_characters() const {
  std::vector<Text> found;
  for (std::size_t at = 0; at < size();) {
    const std::size_t length = character_size(std::string_view(bytes_).substr(at));
    found.push_back(part(at, length));
    at += length;
  }
  return found;
}

Text Text::strip(const std::optional<Text>& which, bool left, bool right) const {
  const auto goes = [&](std::string_view character) {
    return which ? which->bytes_.find(character) != std::string::npos
                 : is_python_space(read_utf8(character).code_point);
  };
  std::string_view rest = bytes_;
  while (left && !rest.empty()) {
    const std::size_t length = character_size(rest);
    if (!goes(rest.substr(0, length))) break;
    rest.remove_prefix(length);
  }
  const std::size_t begin = size() - rest.size();
  while (right && !rest.empty()) {
    const std::size_t length = last_character_size(rest);
    if (!goes(rest.substr(rest.size() - length))) break;
    rest.remove_suffix(length);
  }
  return part(begin, rest.size());
}

std::vector<Text> Text::split(const std::optional<Text>& separator, std::int64_t most) const {
  std::vector<Text> pieces;
  if (separator) {
    std::size_t done = 0;
    for (std::int64_t count = 0; most < 0 || count < most; ++count) {
      const std::size_t at = bytes_.find(separator->bytes_, done);
      if (at == std::string::npos) break;
      pieces.push_back(part(done, at - done));
      done = at + separator->size();
    }
    pieces.push_back(part(done, size() - done));
    return pieces;
  }
  Text rest = strip(std::nullopt, true, false);
  while (!rest.empty()) {
    if (most >= 0 && static_cast<std::int64_t>(pieces.size()) == most) {
      pieces.push_back(rest);
      break;
    }
    std::size_t end = 0;
    while (end < rest.size()) {
      const Utf8Step step = read_utf8(std::string_view(rest.bytes_).substr(end));
      if (is_python_space(step.code_point)) break;
      end += step.size;
    }
    pieces.push_back(rest.part(0, end));
    rest = rest.part(end, rest.size() - end).strip(std::nullopt, true, false);
  }
  return pieces;
}

Text Text::replace(const Text& from, const Text& to, std::int64_t most) const {
  Text replaced;
  replaced.is_markup_ = is_markup_;
  if (from.empty()) {  // as Python: before each character, and at the end
    std::int64_t count = 0;
    for (const Text& character : split_to_characters()) {
      if (most < 0 || count++ < most) replaced.append(to);
      replaced.append(character);
    }
    if (most < 0 || count < most) replaced.append(to);
    return replaced;
  }
  const std::vector<Text> pieces = split(from, most);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i > 0) replaced.append(to);
    replaced.append(pieces[i]);
  }
  return replaced;
}

Text Text::mapped(bool to_upper, std::size_t begin) const {
  Text result = part(0, begin);
  for (std::size_t at = begin; at < size();) {
    const Utf8Step step = read_utf8(std::string_view(bytes_).substr(at));
    const auto code_point = static_cast<utf8proc_int32_t>(step.code_point);
    std::string character;
    if (to_upper && code_point == 0xDF) {
      character = "SS";
    } else {
      append_utf8(static_cast<char32_t>(to_upper ? utf8proc_toupper(code_point) : utf8proc_tolower(code_point)),
                  character);
    }
    result.append(Text(std::move(character), mask_[at]));
    at += step.size;
  }
  return result;
}

Text Text::capitalize() const {
  if (empty()) return {};
  const std::size_t first = character_size(bytes_);
  Text result = part(0, first).upper();
  result.append(part(first, size() - first).lower());
  return result;
}

}  // namespace nodewright::jinja
