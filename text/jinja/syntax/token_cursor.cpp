#include "text/jinja/syntax/token_cursor.h"

#include <fmt/format.h>

namespace nodewright::jinja {

TokenCursor::Level::Level(TokenCursor& cursor) : cursor_(cursor) {
  if (++cursor_.depth_ > 2 * kDeepestTemplate) cursor_.stop("expressions or blocks are nested too deep");
}

void TokenCursor::stop(const std::string& detail) const {
  fail("read the chat template", file_, tokens_[at_].line, detail);
}

void TokenCursor::stop_expecting(std::string_view what) const {
  stop(fmt::format("{} is expected where {} stands", what, shown()));
}

std::string TokenCursor::shown() const {
  switch (peek().kind) {
    case TokenKind::end:
      return "the end of the template";
    case TokenKind::text:
      return "text";
    case TokenKind::block_end:
      return "%}";
    case TokenKind::output_end:
      return "}}";
    default:
      return "'" + peek().text + "'";
  }
}

void TokenCursor::expect_sign(std::string_view sign) {
  if (!take_sign(sign)) stop_expecting(fmt::format("'{}'", sign));
}

std::string TokenCursor::expect_name(std::string_view what) {
  if (!is(TokenKind::name)) stop_expecting(what);
  return next().text;
}

void TokenCursor::expect_block_end() {
  if (!is(TokenKind::block_end)) stop_expecting("%}");
  ++at_;
}

void TokenCursor::expect_output_end() {
  if (!is(TokenKind::output_end)) stop_expecting("}}");
  ++at_;
}

}  // namespace nodewright::jinja
