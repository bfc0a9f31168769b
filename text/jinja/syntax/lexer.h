// A template cut into tokens, with the white space that its tags take away already gone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace nodewright::jinja {

enum class TokenKind { text, output_begin, output_end, block_begin, block_end, name, integer, real, string, sign, end };

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;  // of a string: its value; of a sign: itself
  int line = 0;
};

// The last token is `end`. Throws Error naming `file`, the line and what is wrong.
// Source: lexer.py of Jinja 3.1 with trim_blocks, lstrip_blocks, keep_trailing_newline off.
std::vector<Token> tokenize(std::string_view source, const std::string& file);

// The error of a template: "cannot <doing> '<file>': line 3: <detail>".
[[noreturn]] void fail(const std::string& doing, const std::string& file, int line, const std::string& detail);

}  // namespace nodewright::jinja
