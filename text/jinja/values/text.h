// A string of a template that remembers where each of its bytes came from: whatever a message spells, no special
// token may come out of it. Operations follow Python's str, on code points.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace nodewright::jinja {

class Text {
 public:
  Text() = default;
  Text(std::string bytes, bool from_user = false)  // NOLINT: a string is a text of the template
      : bytes_(std::move(bytes)), mask_(bytes_.size(), from_user ? kUser : kTemplate) {}
  Text(const char* bytes) : Text(std::string(bytes)) {}  // NOLINT
  // `mark`: one of those below, of all bytes.
  Text(std::string bytes, char mark) : bytes_(std::move(bytes)), mask_(bytes_.size(), mark) {}

  // Valid UTF-8.
  const std::string& bytes() const { return bytes_; }
  // As long as bytes(): where each byte came from. kContinued: from what the user's last message says.
  const std::string& mask() const { return mask_; }
  static constexpr char kTemplate = 0, kUser = 1, kContinued = 2;

  // Whether it is Jinja's Markup: text that was marked as safe. Parts of it are; what is added to it is escaped.
  bool is_markup() const { return is_markup_; }
  Text as_markup(bool markup = true) const;
  // With &, <, >, ' and " as HTML writes them; Markup as it is. The result is Markup.
  Text escaped() const;

  std::size_t size() const { return bytes_.size(); }
  bool empty() const { return bytes_.empty(); }
  void append(const Text& other);
  // `begin` and `size` in bytes.
  Text part(std::size_t begin, std::size_t size) const;

  std::int64_t characters() const;
  std::vector<Text> split_to_characters() const;

  // Without the white space, or the characters of `which`, at its ends.
  Text strip(const std::optional<Text>& which, bool left, bool right) const;
  // Pieces between `separator`, or between runs of white space; at most `most` splits if that is not negative.
  std::vector<Text> split(const std::optional<Text>& separator, std::int64_t most) const;
  // The first `most` occurrences replaced (all if negative).
  Text replace(const Text& from, const Text& to, std::int64_t most) const;
  // Simple case mappings of Unicode, character by character, but "SS" for "ß".
  Text upper() const { return mapped(true, 0); }
  Text lower() const { return mapped(false, 0); }
  Text capitalize() const;

 private:
  Text mapped(bool to_upper, std::size_t begin) const;

  std::string bytes_, mask_;
  bool is_markup_ = false;
};

}  // namespace nodewright::jinja
