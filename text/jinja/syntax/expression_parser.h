// The expressions of a template, up to the first token that belongs to none.
#pragma once

#include "text/jinja/syntax/syntax.h"
#include "text/jinja/syntax/token_cursor.h"

namespace nodewright::jinja {

// All throw Error as parse().
ExpressionPtr parse_expression(TokenCursor& tokens);
// One expression, or several with commas, which are a list. Without conditions an `if` ends it.
ExpressionPtr parse_tuple(TokenCursor& tokens, bool with_condition = true);

// "upper | replace('a', 'b')" of a block, over a name without letters, which is what the block makes.
ExpressionPtr parse_filters_of_block(TokenCursor& tokens);

}  // namespace nodewright::jinja
