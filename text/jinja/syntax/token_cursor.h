// Where a parser stands in the tokens of a template, and how deep it is in itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/syntax/lexer.h"

namespace nodewright::jinja {

// Expressions within expressions, blocks within blocks; released templates stay below 20.
inline constexpr int kDeepestTemplate = 100;

class TokenCursor {
 public:
  // Throws Error as tokenize().
  TokenCursor(std::string_view source, const std::string& file) : tokens_(tokenize(source, file)), file_(file) {}

  // While it lives, one level deeper. Throws Error beyond twice kDeepestTemplate.
  class Level {
   public:
    explicit Level(TokenCursor& cursor);
    ~Level() { --cursor_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    TokenCursor& cursor_;
  };

  // Throws Error naming the template, the line and `detail`.
  [[noreturn]] void stop(const std::string& detail) const;
  // The same: `what` is expected where the next token stands.
  [[noreturn]] void stop_expecting(std::string_view what) const;

  // The token that comes next, or one `ahead` of it; at the end always the last.
  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  void skip(std::size_t tokens = 1) { at_ += tokens; }
  bool is(TokenKind kind) const { return peek().kind == kind; }
  bool is_sign(std::string_view sign) const { return is(TokenKind::sign) && peek().text == sign; }
  bool is_name(std::string_view name) const { return is(TokenKind::name) && peek().text == name; }
  bool take_sign(std::string_view sign) { return is_sign(sign) && (++at_, true); }
  bool take_name(std::string_view name) { return is_name(name) && (++at_, true); }

  // Take what must come next, or stop.
  void expect_sign(std::string_view sign);
  std::string expect_name(std::string_view what);
  void expect_block_end();
  void expect_output_end();

 private:
  std::string shown() const;

  std::vector<Token> tokens_;
  std::string file_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace nodewright::jinja
