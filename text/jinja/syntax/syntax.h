// A Jinja template as a tree, and the parser that makes it: the constructs that chat templates use. Everything else of
// the language (include, extends, call blocks, filters that are not listed, ...) is refused by name: here or, within an
// {% if %} where Jinja does the same, when it is reached.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace nodewright::jinja {

struct Expression;
using ExpressionPtr = std::unique_ptr<Expression>;

struct Argument {
  std::string keyword;  // empty: by position
  ExpressionPtr value;
};

enum class ExpressionKind {
  constant,     // constant
  name,         // name
  attribute,    // parts[0].name
  subscript,    // parts[0][parts[1]]
  slice,        // parts[0][parts[1]:parts[2]:parts[3]], each of the three may be null
  call,         // parts[0](arguments)
  filter,       // parts[0] | name(arguments)
  test,         // parts[0] is name(arguments), `negated`: is not
  unary,        // name parts[0]: not, -, +
  binary,       // parts[0] name parts[1]: arithmetic, ~, and, or
  comparison,   // parts[0] operators[0] parts[1] operators[1] parts[2] ...
  conditional,  // parts[0] if parts[1] else parts[2], which may be null
  list,         // [parts], or (parts) where name is "tuple"
  dict,         // {parts[0]: parts[1], ...}
};

struct Expression {
  ExpressionKind kind = ExpressionKind::constant;
  std::variant<std::monostate, bool, std::int64_t, double, std::string> constant;  // monostate: none
  std::string name;
  bool negated = false;
  std::vector<ExpressionPtr> parts;
  std::vector<std::string> operators;
  std::vector<Argument> arguments;
  int line = 0;
  int depth = 1;  // of this tree
};

struct Statement;
using Body = std::vector<Statement>;

enum class StatementKind {
  text,       // text
  output,     // expression
  set,        // targets[0] = expression, or attribute `attribute` of the namespace targets[0]
  set_block,  // targets[0] = what body renders, through the filters of `expression`, which may be null
  filter,     // what body renders, through the filters of `expression`
  if_,        // branches, the last perhaps without condition
  for_,       // for targets in expression if condition: body, else otherwise
  macro,      // targets[0] is its name, parameters, body
  break_,
  continue_,
};

struct Branch;

struct Statement {
  StatementKind kind = StatementKind::text;
  std::string text;
  std::vector<std::string> targets;
  std::string attribute;
  ExpressionPtr expression, condition;
  std::vector<Argument> parameters;  // keyword: the name; value: its default, or null
  std::vector<Branch> branches;
  Body body, otherwise;
  int line = 0;
};

struct Branch {
  ExpressionPtr condition;  // null: else
  Body body;
};

// Parses a template with trim_blocks and lstrip_blocks, as `transformers` sets them. Throws Error naming `file`, the
// line and what is wrong or not supported. Depth of expressions and blocks is limited to 100.
// Source: lexer.py and parser.py of Jinja 3.1.
Body parse(std::string_view source, const std::string& file);

}  // namespace nodewright::jinja
