// One Oniguruma regular expression over UTF-8, owned. Oniguruma because the oracle uses it: its Unicode tables and its
// case folding ((?i:'s) matches U+017F) are part of what a tokenizer means. Letters that the oracle's version knows
// and an older one here does not: unicode_versions.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

struct re_pattern_buffer;  // Oniguruma's regex_t

namespace nodewright {

// The expression that matches `text` and nothing else.
std::string escaped_for_regex(std::string_view text);

class Regex {
 public:
  // Compiles `pattern` (Oniguruma's own syntax). Throws Error naming `file`, which the pattern came from, if it does
  // not compile.
  Regex(const std::string& pattern, const std::string& file);

  struct Piece {
    std::string_view text;  // empty for an empty match only
    bool is_match = false;  // or what lies between two matches
  };

  // Appends the matches in `text` and what lies between them, in order. `text` must be valid UTF-8 of fewer than 2^31
  // bytes. Thread-safe.
  // Throws Error if Oniguruma gives up (its retry limit is 10,000,000 a match).
  void append_pieces(std::string_view text, std::vector<Piece>& pieces) const;

 private:
  struct Free {
    void operator()(re_pattern_buffer* regex) const noexcept;
  };
  std::unique_ptr<re_pattern_buffer, Free> regex_;
  std::string pattern_;
};

}  // namespace nodewright
