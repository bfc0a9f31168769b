// Recursive descent over the tokens, one function per level of precedence, lowest first.
#include "text/jinja/syntax/expression_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "text/jinja/builtins/builtins.h"

namespace nodewright::jinja {
namespace {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenCursor& tokens) : tokens_(tokens) {}

  ExpressionPtr parse_tuple(bool with_condition) {
    ExpressionPtr first = with_condition ? parse_expression() : parse_or();
    if (!tokens_.is_sign(",")) return first;
    ExpressionPtr list = make_of(ExpressionKind::list, "tuple", std::move(first));
    while (tokens_.take_sign(",")) {
      if (tokens_.is(TokenKind::output_end) || tokens_.is(TokenKind::block_end) || tokens_.is_sign(")")) break;
      add_part(*list, with_condition ? parse_expression() : parse_or());
    }
    return list;
  }

  ExpressionPtr parse_expression() {
    const TokenCursor::Level level(tokens_);
    ExpressionPtr value = parse_or();
    while (tokens_.take_name("if")) {
      ExpressionPtr condition = parse_or();
      ExpressionPtr otherwise = tokens_.take_name("else") ? parse_expression() : nullptr;
      value = make_of(ExpressionKind::conditional, "", std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }

  // The filters of a block: a chain over what the block makes.
  ExpressionPtr parse_filters_of_block() {
    ExpressionPtr value = make(ExpressionKind::name);
    do {
      std::string name = tokens_.expect_name("the name of a filter");
      value = make_of(ExpressionKind::filter, std::move(name), std::move(value));
      if (tokens_.is_sign("(")) parse_arguments(*value);
    } while (tokens_.take_sign("|"));
    return value;
  }

 private:
  ExpressionPtr make(ExpressionKind kind, std::string name = "") const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->name = std::move(name);
    made->line = tokens_.peek().line;
    return made;
  }

  void add_part(Expression& to, ExpressionPtr part) const {
    if (part) to.depth = std::max(to.depth, part->depth + 1);
    if (to.depth > kDeepestTemplate) tokens_.stop(fmt::format("an expression is more than {} deep", kDeepestTemplate));
    to.parts.push_back(std::move(part));
  }

  template <typename... Parts>
  ExpressionPtr make_of(ExpressionKind kind, std::string name, Parts... parts) const {
    ExpressionPtr made = make(kind, std::move(name));
    (add_part(*made, std::move(parts)), ...);
    return made;
  }

  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    while (tokens_.take_name("or")) left = make_of(ExpressionKind::binary, "or", std::move(left), parse_and());
    return left;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    while (tokens_.take_name("and")) left = make_of(ExpressionKind::binary, "and", std::move(left), parse_not());
    return left;
  }

  ExpressionPtr parse_not() {
    const TokenCursor::Level level(tokens_);
    if (tokens_.take_name("not")) return make_of(ExpressionKind::unary, "not", parse_not());
    return parse_comparison();
  }

  ExpressionPtr parse_comparison() {
    ExpressionPtr left = parse_sum();
    ExpressionPtr chain;
    for (;;) {
      std::string sign;
      if (tokens_.is(TokenKind::sign) &&
          std::string_view(" == != < <= > >= ").find(" " + tokens_.peek().text + " ") != std::string_view::npos) {
        sign = tokens_.next().text;
      } else if (tokens_.take_name("in")) {
        sign = "in";
      } else if (tokens_.is_name("not") && tokens_.peek(1).kind == TokenKind::name && tokens_.peek(1).text == "in") {
        tokens_.skip(2);
        sign = "not in";
      } else {
        return chain ? std::move(chain) : std::move(left);
      }
      if (!chain) chain = make_of(ExpressionKind::comparison, "", std::move(left));
      chain->operators.push_back(std::move(sign));
      add_part(*chain, parse_sum());
    }
  }

  ExpressionPtr parse_sum() {
    ExpressionPtr left = parse_concatenation();
    while (tokens_.is_sign("+") || tokens_.is_sign("-")) {
      const std::string sign = tokens_.next().text;
      left = make_of(ExpressionKind::binary, sign, std::move(left), parse_concatenation());
    }
    return left;
  }

  ExpressionPtr parse_concatenation() {
    ExpressionPtr left = parse_product();
    while (tokens_.take_sign("~")) left = make_of(ExpressionKind::binary, "~", std::move(left), parse_product());
    return left;
  }

  ExpressionPtr parse_product() {
    ExpressionPtr left = parse_power();
    while (tokens_.is_sign("*") || tokens_.is_sign("/") || tokens_.is_sign("//") || tokens_.is_sign("%")) {
      const std::string sign = tokens_.next().text;
      left = make_of(ExpressionKind::binary, sign, std::move(left), parse_power());
    }
    return left;
  }

  ExpressionPtr parse_power() {
    ExpressionPtr left = parse_unary(true);
    if (tokens_.is_sign("**")) tokens_.stop("the operator ** is not supported");
    return left;
  }

  ExpressionPtr parse_unary(bool with_filters) {
    const TokenCursor::Level level(tokens_);
    ExpressionPtr value;
    if (tokens_.is_sign("-") || tokens_.is_sign("+")) {
      const std::string sign = tokens_.next().text;
      value = make_of(ExpressionKind::unary, sign, parse_unary(false));
    } else {
      value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    return with_filters ? parse_filters(std::move(value)) : std::move(value);
  }

  ExpressionPtr parse_primary() {
    if (tokens_.is(TokenKind::name)) return name_or_constant(tokens_.next().text);
    if (tokens_.is(TokenKind::string)) return parse_string();
    if (tokens_.is(TokenKind::integer) || tokens_.is(TokenKind::real)) return parse_number();
    if (tokens_.take_sign("(")) return parse_brackets();
    if (tokens_.take_sign("[")) {
      ExpressionPtr list = make(ExpressionKind::list);
      while (!tokens_.take_sign("]")) {
        add_part(*list, parse_expression());
        if (!tokens_.is_sign("]")) tokens_.expect_sign(",");
      }
      return list;
    }
    if (tokens_.take_sign("{")) {
      ExpressionPtr dict = make(ExpressionKind::dict);
      while (!tokens_.take_sign("}")) {
        add_part(*dict, parse_expression());
        tokens_.expect_sign(":");
        add_part(*dict, parse_expression());
        if (!tokens_.is_sign("}")) tokens_.expect_sign(",");
      }
      return dict;
    }
    tokens_.stop_expecting("an expression");
  }

  // Several strings after each other are one.
  ExpressionPtr parse_string() {
    std::string text = tokens_.next().text;
    ExpressionPtr value = make(ExpressionKind::constant);
    while (tokens_.is(TokenKind::string)) text += tokens_.next().text;
    value->constant = std::move(text);
    return value;
  }

  ExpressionPtr parse_number() {
    const Token& token = tokens_.next();
    const char *first = token.text.data(), *last = first + token.text.size();
    ExpressionPtr value = make(ExpressionKind::constant);
    if (token.kind == TokenKind::real) {
      double number = 0;
      std::from_chars(first, last, number);
      value->constant = number;
      return value;
    }
    std::int64_t number = 0;
    if (std::from_chars(first, last, number).ec != std::errc())
      tokens_.stop(fmt::format("the number {} is too large", token.text));
    value->constant = number;
    return value;
  }

  ExpressionPtr parse_brackets() {
    if (tokens_.take_sign(")")) return make(ExpressionKind::list, "tuple");
    ExpressionPtr value = parse_tuple(true);
    tokens_.expect_sign(")");
    return value;
  }

  ExpressionPtr name_or_constant(const std::string& word) {
    ExpressionPtr value = make(ExpressionKind::constant);
    if (word == "true" || word == "True") {
      value->constant = true;
    } else if (word == "false" || word == "False") {
      value->constant = false;
    } else if (word != "none" && word != "None") {
      value->kind = ExpressionKind::name;
      value->name = word;
    }
    return value;
  }

  ExpressionPtr parse_postfix(ExpressionPtr value) {
    for (;;) {
      if (tokens_.take_sign(".")) {
        if (tokens_.is(TokenKind::integer)) {
          ExpressionPtr index = parse_primary();
          value = make_of(ExpressionKind::subscript, "", std::move(value), std::move(index));
        } else {
          std::string name = tokens_.expect_name("the name of an attribute");
          value = make_of(ExpressionKind::attribute, std::move(name), std::move(value));
        }
      } else if (tokens_.take_sign("[")) {
        value = parse_subscript(std::move(value));
      } else if (tokens_.is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr value) {
    ExpressionPtr bounds[3];
    int colons = 0;
    while (!tokens_.is_sign("]")) {
      if (tokens_.take_sign(":")) {
        if (++colons > 2) tokens_.stop("a slice has more than two colons");
      } else if (bounds[colons]) {
        tokens_.stop_expecting("']' or ':'");
      } else {
        bounds[colons] = parse_expression();
      }
    }
    tokens_.expect_sign("]");
    if (colons > 0)
      return make_of(ExpressionKind::slice, "", std::move(value), std::move(bounds[0]), std::move(bounds[1]),
                     std::move(bounds[2]));
    if (!bounds[0]) tokens_.stop("an index is missing");
    return make_of(ExpressionKind::subscript, "", std::move(value), std::move(bounds[0]));
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    if (callee->kind == ExpressionKind::name && is_unsupported_function(callee->name))
      tokens_.stop(fmt::format("the function {}() is not supported", callee->name));
    ExpressionPtr call = make_of(ExpressionKind::call, "", std::move(callee));
    parse_arguments(*call);
    return call;
  }

  void parse_arguments(Expression& to) {
    tokens_.expect_sign("(");
    while (!tokens_.take_sign(")")) {
      if (tokens_.is_sign("*") || tokens_.is_sign("**")) tokens_.stop("an argument with * is not supported");
      Argument argument;
      if (tokens_.is(TokenKind::name) && tokens_.peek(1).kind == TokenKind::sign && tokens_.peek(1).text == "=") {
        argument.keyword = tokens_.next().text;
        tokens_.skip();
      } else if (!to.arguments.empty() && !to.arguments.back().keyword.empty()) {
        tokens_.stop("an argument by position follows one by name");
      }
      argument.value = parse_expression();
      to.depth = std::max(to.depth, argument.value->depth + 1);
      to.arguments.push_back(std::move(argument));
      if (!tokens_.is_sign(")")) tokens_.expect_sign(",");
    }
  }

  ExpressionPtr parse_filters(ExpressionPtr value) {
    for (;;) {
      if (tokens_.take_sign("|")) {
        std::string name = tokens_.expect_name("the name of a filter");
        value = make_of(ExpressionKind::filter, std::move(name), std::move(value));
        if (tokens_.is_sign("(")) parse_arguments(*value);
      } else if (tokens_.take_name("is")) {
        value = parse_test(std::move(value));
      } else if (tokens_.is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_test(ExpressionPtr value) {
    const bool negated = tokens_.take_name("not");
    std::string name = tokens_.is_sign("==") ? tokens_.next().text : tokens_.expect_name("the name of a test");
    ExpressionPtr test = make_of(ExpressionKind::test, std::move(name), std::move(value));
    test->negated = negated;
    const bool operand =
        tokens_.is(TokenKind::string) || tokens_.is(TokenKind::integer) || tokens_.is(TokenKind::real) ||
        tokens_.is_sign("[") || tokens_.is_sign("{") ||
        (tokens_.is(TokenKind::name) && !tokens_.is_name("else") && !tokens_.is_name("or") && !tokens_.is_name("and") &&
         !tokens_.is_name("if") && !tokens_.is_name("is") && !tokens_.is_name("in") && !tokens_.is_name("not"));
    if (tokens_.is_sign("(")) {
      parse_arguments(*test);
    } else if (operand) {
      test->arguments.push_back({.value = parse_postfix(parse_primary())});
      test->depth = std::max(test->depth, test->arguments.back().value->depth + 1);
    }
    return test;
  }

  TokenCursor& tokens_;
};

}  // namespace

ExpressionPtr parse_expression(TokenCursor& tokens) { return ExpressionParser(tokens).parse_expression(); }

ExpressionPtr parse_filters_of_block(TokenCursor& tokens) { return ExpressionParser(tokens).parse_filters_of_block(); }

ExpressionPtr parse_tuple(TokenCursor& tokens, bool with_condition) {
  return ExpressionParser(tokens).parse_tuple(with_condition);
}

}  // namespace nodewright::jinja
