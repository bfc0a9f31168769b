// The expressions of a template, up to the first token that is of none.
#pragma once

#include "text/jinja/syntax.h"
#include "text/jinja/token_cursor.h"

namespace nodewright::jinja {

// Both throw Error as parse().
ExpressionPtr parse_expression(TokenCursor& tokens);
// One expression, or several with commas, which are a list. Without conditions an `if` ends it.
ExpressionPtr parse_tuple(TokenCursor& tokens, bool with_condition = true);

}  // namespace nodewright::jinja
