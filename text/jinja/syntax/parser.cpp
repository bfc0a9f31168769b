// The statements of a template: text, output and blocks.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/syntax/expression_parser.h"
#include "text/jinja/syntax/name_check.h"
#include "text/jinja/syntax/syntax.h"
#include "text/jinja/syntax/token_cursor.h"

namespace nodewright::jinja {
namespace {

class Parser {
 public:
  Parser(std::string_view source, const std::string& file) : tokens_(source, file) {}

  // Up to a block whose name is one of `ends` (that name is read), or to the end of the template if there are none.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const TokenCursor::Level level(tokens_);
    Body body;
    for (;;) {
      const int line = tokens_.peek().line;
      switch (tokens_.peek().kind) {
        case TokenKind::end:
          if (ends.size() > 0) tokens_.stop(fmt::format("a block has no {}", fmt::join(ends, " or ")));
          return body;
        case TokenKind::text:
          body.push_back({.kind = StatementKind::text, .text = tokens_.next().text, .line = line});
          break;
        case TokenKind::output_begin: {
          tokens_.skip();
          Statement output{.kind = StatementKind::output, .line = line};
          output.expression = parse_tuple(tokens_);
          tokens_.expect_output_end();
          body.push_back(std::move(output));
          break;
        }
        default: {
          tokens_.skip();  // a block begins: the lexer gives nothing else here
          const std::string name = tokens_.expect_name("the name of a block");
          if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
            ended_by_ = name;
            return body;
          }
          parse_block(name, line, body);
        }
      }
    }
  }

 private:
  void parse_block(const std::string& name, int line, Body& body) {
    if (name == "set") {
      body.push_back(parse_set(line));
    } else if (name == "if") {
      body.push_back(parse_if(line));
    } else if (name == "for") {
      body.push_back(parse_for(line));
    } else if (name == "macro") {
      body.push_back(parse_macro(line));
    } else if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.stop(fmt::format("{} outside of a loop", name));
      tokens_.expect_block_end();
      body.push_back({.kind = name == "break" ? StatementKind::break_ : StatementKind::continue_, .line = line});
    } else if (name == "filter") {
      Statement filter{.kind = StatementKind::filter, .line = line};
      filter.expression = parse_filters_of_block(tokens_);
      tokens_.expect_block_end();
      filter.body = parse_body({"endfilter"});
      tokens_.expect_block_end();
      body.push_back(std::move(filter));
    } else if (name == "generation") {  // marks what an assistant said, for training; renders as it is
      tokens_.expect_block_end();
      for (auto& statement : parse_body({"endgeneration"})) body.push_back(std::move(statement));
      tokens_.expect_block_end();
    } else {
      tokens_.stop(fmt::format("the block {{% {} %}} is not supported", name));
    }
  }

  Statement parse_set(int line) {
    Statement set{.kind = StatementKind::set, .line = line};
    set.targets.push_back(tokens_.expect_name("a name"));
    if (tokens_.take_sign(".")) set.attribute = tokens_.expect_name("the name of an attribute");
    if (tokens_.take_sign("=")) {
      set.expression = parse_tuple(tokens_);
      tokens_.expect_block_end();
      return set;
    }
    if (tokens_.is_sign(",")) tokens_.stop("{% set a, b = ... %} is not supported");
    if (tokens_.take_sign("|")) set.expression = parse_filters_of_block(tokens_);
    if (!set.attribute.empty()) tokens_.stop("'=' is expected");
    tokens_.expect_block_end();
    set.kind = StatementKind::set_block;
    set.body = parse_body({"endset"});
    tokens_.expect_block_end();
    return set;
  }

  Statement parse_if(int line) {
    Statement branches{.kind = StatementKind::if_, .line = line};
    ended_by_ = "if";
    while (ended_by_ != "endif") {
      Branch branch;
      const bool is_else = ended_by_ == "else";
      if (!is_else) branch.condition = parse_tuple(tokens_);
      tokens_.expect_block_end();
      branch.body = is_else ? parse_body({"endif"}) : parse_body({"elif", "else", "endif"});
      branches.branches.push_back(std::move(branch));
    }
    tokens_.expect_block_end();
    return branches;
  }

  Statement parse_for(int line) {
    Statement loop{.kind = StatementKind::for_, .line = line};
    const bool bracket = tokens_.take_sign("(");
    do {
      if (bracket && tokens_.is_sign(")")) break;
      loop.targets.push_back(tokens_.expect_name("the name of a loop variable"));
      if (loop.targets.back() == "loop") tokens_.stop("a loop variable cannot be called 'loop'");
    } while (tokens_.take_sign(","));
    if (bracket) tokens_.expect_sign(")");
    if (!tokens_.take_name("in")) tokens_.stop_expecting("'in'");
    loop.expression = parse_tuple(tokens_, false);
    if (tokens_.take_name("if")) loop.condition = parse_expression(tokens_);
    if (tokens_.is_name("recursive")) tokens_.stop("a recursive {% for %} is not supported");
    tokens_.expect_block_end();
    ++loops_;
    loop.body = parse_body({"else", "endfor"});
    --loops_;
    if (ended_by_ == "else") {
      tokens_.expect_block_end();
      loop.otherwise = parse_body({"endfor"});
    }
    tokens_.expect_block_end();
    return loop;
  }

  Statement parse_macro(int line) {
    Statement macro{.kind = StatementKind::macro, .line = line};
    macro.targets.push_back(tokens_.expect_name("the name of a macro"));
    tokens_.expect_sign("(");
    while (!tokens_.take_sign(")")) {
      Argument parameter{.keyword = tokens_.expect_name("the name of a parameter")};
      if (tokens_.take_sign("=")) {
        parameter.value = parse_expression(tokens_);
      } else if (!macro.parameters.empty() && macro.parameters.back().value) {
        tokens_.stop(fmt::format("the parameter '{}' has no default behind one that has", parameter.keyword));
      }
      macro.parameters.push_back(std::move(parameter));
      if (!tokens_.is_sign(")")) tokens_.expect_sign(",");
    }
    tokens_.expect_block_end();
    const int loops = std::exchange(loops_, 0);
    macro.body = parse_body({"endmacro"});
    loops_ = loops;
    tokens_.expect_block_end();
    return macro;
  }

  TokenCursor tokens_;
  int loops_ = 0;
  std::string ended_by_;  // the name that ended the last body
};

}  // namespace

Body parse(std::string_view source, const std::string& file) {
  Body body = Parser(source, file).parse_body({});
  check_names(body, file);
  return body;
}

}  // namespace nodewright::jinja
