// Recursive descent over the tokens of jinja_lexer, one function per level of precedence, lowest first.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <initializer_list>

#include "text/chat/jinja_builtins.h"
#include "text/chat/jinja_lexer.h"
#include "text/chat/jinja_syntax.h"

namespace nodewright::jinja {
namespace {

constexpr int kDeepest = 100;  // expressions within expressions, blocks within blocks; released templates stay below 20

class Parser {
 public:
  Parser(std::string_view source, const std::string& file) : tokens_(tokenize(source, file)), file_(file) {}

  Body run() {
    Body body = parse_body({});
    return body;
  }

 private:
  // Counts how deep the parser is in itself.
  class Level {
   public:
    explicit Level(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > 2 * kDeepest) parser_.stop("expressions or blocks are nested too deep");
    }
    ~Level() { --parser_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Parser& parser_;
  };

  [[noreturn]] void stop(const std::string& detail) const {
    fail("read the chat template", file_, tokens_[at_].line, detail);
  }

  // Tokens.

  const Token& peek(std::size_t ahead = 0) const { return tokens_[std::min(at_ + ahead, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[std::min(at_++, tokens_.size() - 1)]; }
  bool is_sign(std::string_view sign) const { return peek().kind == TokenKind::sign && peek().text == sign; }
  bool is_name(std::string_view name) const { return peek().kind == TokenKind::name && peek().text == name; }
  bool take_sign(std::string_view sign) { return is_sign(sign) && (++at_, true); }
  bool take_name(std::string_view name) { return is_name(name) && (++at_, true); }

  std::string shown() const {
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

  void expect_sign(std::string_view sign) {
    if (!take_sign(sign)) stop(fmt::format("'{}' is expected where {} stands", sign, shown()));
  }

  std::string expect_name(std::string_view what) {
    if (peek().kind != TokenKind::name) stop(fmt::format("{} is expected where {} stands", what, shown()));
    return next().text;
  }

  void expect_block_end() {
    if (peek().kind != TokenKind::block_end) stop(fmt::format("%}} is expected where {} stands", shown()));
    ++at_;
  }

  // Statements.

  // Up to a block whose name is one of `ends` (that name is read), or to the end of the template if there are none.
  Body parse_body(std::initializer_list<std::string_view> ends) {
    const Level level(*this);
    Body body;
    for (;;) {
      const int line = peek().line;
      switch (peek().kind) {
        case TokenKind::end:
          if (ends.size() > 0) stop(fmt::format("a block has no {}", fmt::join(ends, " or ")));
          return body;
        case TokenKind::text:
          body.push_back({.kind = StatementKind::text, .text = next().text, .line = line});
          break;
        case TokenKind::output_begin: {
          ++at_;
          Statement output{.kind = StatementKind::output, .line = line};
          output.expression = parse_tuple();
          if (peek().kind != TokenKind::output_end) stop(fmt::format("}}}} is expected where {} stands", shown()));
          ++at_;
          body.push_back(std::move(output));
          break;
        }
        default: {
          ++at_;  // a block begins: the lexer gives nothing else here
          const std::string name = expect_name("the name of a block");
          if (std::find(ends.begin(), ends.end(), name) != ends.end()) {
            ended_by_ = name;
            return body;
          }
          parse_block(name, line, body);
        }
      }
    }
  }

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
      if (loops_ == 0) stop(fmt::format("{} outside of a loop", name));
      expect_block_end();
      body.push_back({.kind = name == "break" ? StatementKind::break_ : StatementKind::continue_, .line = line});
    } else if (name == "generation") {  // marks what an assistant said, for training; renders as it is
      expect_block_end();
      for (auto& statement : parse_body({"endgeneration"})) body.push_back(std::move(statement));
      expect_block_end();
    } else {
      stop(fmt::format("the block {{% {} %}} is not supported", name));
    }
  }

  Statement parse_set(int line) {
    Statement set{.kind = StatementKind::set, .line = line};
    set.targets.push_back(expect_name("a name"));
    if (take_sign(".")) set.attribute = expect_name("the name of an attribute");
    if (take_sign("=")) {
      set.expression = parse_tuple();
      expect_block_end();
      return set;
    }
    if (is_sign(",")) stop("{% set a, b = ... %} is not supported");
    if (is_sign("|")) stop("a filter on a {% set %} block is not supported");
    if (!set.attribute.empty()) stop("'=' is expected");
    expect_block_end();
    set.kind = StatementKind::set_block;
    set.body = parse_body({"endset"});
    expect_block_end();
    return set;
  }

  Statement parse_if(int line) {
    Statement branches{.kind = StatementKind::if_, .line = line};
    ended_by_ = "if";
    while (ended_by_ != "endif") {
      Branch branch;
      const bool is_else = ended_by_ == "else";
      if (!is_else) branch.condition = parse_tuple();
      expect_block_end();
      branch.body = is_else ? parse_body({"endif"}) : parse_body({"elif", "else", "endif"});
      branches.branches.push_back(std::move(branch));
    }
    expect_block_end();
    return branches;
  }

  Statement parse_for(int line) {
    Statement loop{.kind = StatementKind::for_, .line = line};
    const bool bracket = take_sign("(");
    do {
      if (bracket && is_sign(")")) break;
      loop.targets.push_back(expect_name("the name of a loop variable"));
      if (loop.targets.back() == "loop") stop("a loop variable cannot be called 'loop'");
    } while (take_sign(","));
    if (bracket) expect_sign(")");
    if (!take_name("in")) stop(fmt::format("'in' is expected where {} stands", shown()));
    loop.expression = parse_tuple(false);
    if (take_name("if")) loop.condition = parse_expression();
    if (is_name("recursive")) stop("a recursive {% for %} is not supported");
    expect_block_end();
    ++loops_;
    loop.body = parse_body({"else", "endfor"});
    --loops_;
    if (ended_by_ == "else") {
      expect_block_end();
      loop.otherwise = parse_body({"endfor"});
    }
    expect_block_end();
    return loop;
  }

  Statement parse_macro(int line) {
    Statement macro{.kind = StatementKind::macro, .line = line};
    macro.targets.push_back(expect_name("the name of a macro"));
    expect_sign("(");
    while (!take_sign(")")) {
      Argument parameter{.keyword = expect_name("the name of a parameter")};
      if (take_sign("=")) {
        parameter.value = parse_expression();
      } else if (!macro.parameters.empty() && macro.parameters.back().value) {
        stop(fmt::format("the parameter '{}' has no default behind one that has", parameter.keyword));
      }
      macro.parameters.push_back(std::move(parameter));
      if (!is_sign(")")) expect_sign(",");
    }
    expect_block_end();
    const int loops = std::exchange(loops_, 0);
    macro.body = parse_body({"endmacro"});
    loops_ = loops;
    expect_block_end();
    return macro;
  }

  // Expressions.

  ExpressionPtr make(ExpressionKind kind, std::string name = "") const {
    auto made = std::make_unique<Expression>();
    made->kind = kind;
    made->name = std::move(name);
    made->line = peek().line;
    return made;
  }

  void add_part(Expression& to, ExpressionPtr part) const {
    if (part) to.depth = std::max(to.depth, part->depth + 1);
    if (to.depth > kDeepest) stop(fmt::format("an expression is more than {} deep", kDeepest));
    to.parts.push_back(std::move(part));
  }

  template <typename... Parts>
  ExpressionPtr make_of(ExpressionKind kind, std::string name, Parts... parts) const {
    ExpressionPtr made = make(kind, std::move(name));
    (add_part(*made, std::move(parts)), ...);
    return made;
  }

  // One expression, or several with commas, which are a list.
  ExpressionPtr parse_tuple(bool with_condition = true) {
    ExpressionPtr first = with_condition ? parse_expression() : parse_or();
    if (!is_sign(",")) return first;
    ExpressionPtr list = make_of(ExpressionKind::list, "tuple", std::move(first));
    while (take_sign(",")) {
      if (peek().kind == TokenKind::output_end || peek().kind == TokenKind::block_end || is_sign(")")) break;
      add_part(*list, with_condition ? parse_expression() : parse_or());
    }
    return list;
  }

  ExpressionPtr parse_expression() {
    const Level level(*this);
    ExpressionPtr value = parse_or();
    while (take_name("if")) {
      ExpressionPtr condition = parse_or();
      ExpressionPtr otherwise = take_name("else") ? parse_expression() : nullptr;
      value = make_of(ExpressionKind::conditional, "", std::move(value), std::move(condition), std::move(otherwise));
    }
    return value;
  }

  ExpressionPtr parse_or() {
    ExpressionPtr left = parse_and();
    while (take_name("or")) left = make_of(ExpressionKind::binary, "or", std::move(left), parse_and());
    return left;
  }

  ExpressionPtr parse_and() {
    ExpressionPtr left = parse_not();
    while (take_name("and")) left = make_of(ExpressionKind::binary, "and", std::move(left), parse_not());
    return left;
  }

  ExpressionPtr parse_not() {
    const Level level(*this);
    if (take_name("not")) return make_of(ExpressionKind::unary, "not", parse_not());
    return parse_comparison();
  }

  ExpressionPtr parse_comparison() {
    ExpressionPtr left = parse_sum();
    ExpressionPtr chain;
    for (;;) {
      std::string sign;
      if (peek().kind == TokenKind::sign &&
          std::string_view(" == != < <= > >= ").find(" " + peek().text + " ") != std::string_view::npos) {
        sign = next().text;
      } else if (take_name("in")) {
        sign = "in";
      } else if (is_name("not") && peek(1).kind == TokenKind::name && peek(1).text == "in") {
        at_ += 2;
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
    while (is_sign("+") || is_sign("-")) {
      const std::string sign = next().text;
      left = make_of(ExpressionKind::binary, sign, std::move(left), parse_concatenation());
    }
    return left;
  }

  ExpressionPtr parse_concatenation() {
    ExpressionPtr left = parse_product();
    while (take_sign("~")) left = make_of(ExpressionKind::binary, "~", std::move(left), parse_product());
    return left;
  }

  ExpressionPtr parse_product() {
    ExpressionPtr left = parse_power();
    while (is_sign("*") || is_sign("/") || is_sign("//") || is_sign("%")) {
      const std::string sign = next().text;
      left = make_of(ExpressionKind::binary, sign, std::move(left), parse_power());
    }
    return left;
  }

  ExpressionPtr parse_power() {
    ExpressionPtr left = parse_unary(true);
    if (is_sign("**")) stop("the operator ** is not supported");
    return left;
  }

  ExpressionPtr parse_unary(bool with_filters) {
    const Level level(*this);
    ExpressionPtr value;
    if (is_sign("-") || is_sign("+")) {
      const std::string sign = next().text;
      value = make_of(ExpressionKind::unary, sign, parse_unary(false));
    } else {
      value = parse_primary();
    }
    value = parse_postfix(std::move(value));
    return with_filters ? parse_filters(std::move(value)) : std::move(value);
  }

  ExpressionPtr parse_primary() {
    const Token& token = next();
    switch (token.kind) {
      case TokenKind::name:
        return name_or_constant(token.text);
      case TokenKind::string: {
        ExpressionPtr value = make(ExpressionKind::constant);
        std::string text = token.text;
        while (peek().kind == TokenKind::string) text += next().text;
        value->constant = std::move(text);
        return value;
      }
      case TokenKind::integer: {
        ExpressionPtr value = make(ExpressionKind::constant);
        std::int64_t number = 0;
        const auto [end, failure] = std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        if (failure != std::errc()) stop(fmt::format("the number {} is too large", token.text));
        value->constant = number;
        return value;
      }
      case TokenKind::real: {
        ExpressionPtr value = make(ExpressionKind::constant);
        double number = 0;
        std::from_chars(token.text.data(), token.text.data() + token.text.size(), number);
        value->constant = number;
        return value;
      }
      default:
        break;
    }
    --at_;
    if (take_sign("(")) return parse_brackets();
    if (take_sign("[")) {
      ExpressionPtr list = make(ExpressionKind::list);
      while (!take_sign("]")) {
        add_part(*list, parse_expression());
        if (!is_sign("]")) expect_sign(",");
      }
      return list;
    }
    if (take_sign("{")) {
      ExpressionPtr dict = make(ExpressionKind::dict);
      while (!take_sign("}")) {
        add_part(*dict, parse_expression());
        expect_sign(":");
        add_part(*dict, parse_expression());
        if (!is_sign("}")) expect_sign(",");
      }
      return dict;
    }
    stop(fmt::format("an expression is expected where {} stands", shown()));
  }

  ExpressionPtr parse_brackets() {
    if (take_sign(")")) return make(ExpressionKind::list, "tuple");
    ExpressionPtr value = parse_tuple();
    expect_sign(")");
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
      if (take_sign(".")) {
        if (peek().kind == TokenKind::integer) {
          ExpressionPtr index = parse_primary();
          value = make_of(ExpressionKind::subscript, "", std::move(value), std::move(index));
        } else {
          std::string name = expect_name("the name of an attribute");
          value = make_of(ExpressionKind::attribute, std::move(name), std::move(value));
        }
      } else if (take_sign("[")) {
        value = parse_subscript(std::move(value));
      } else if (is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_subscript(ExpressionPtr value) {
    ExpressionPtr bounds[3];
    int colons = 0;
    while (!is_sign("]")) {
      if (take_sign(":")) {
        if (++colons > 2) stop("a slice has more than two colons");
      } else if (bounds[colons]) {
        stop(fmt::format("']' or ':' is expected where {} stands", shown()));
      } else {
        bounds[colons] = parse_expression();
      }
    }
    expect_sign("]");
    if (colons > 0)
      return make_of(ExpressionKind::slice, "", std::move(value), std::move(bounds[0]), std::move(bounds[1]),
                     std::move(bounds[2]));
    if (!bounds[0]) stop("an index is missing");
    return make_of(ExpressionKind::subscript, "", std::move(value), std::move(bounds[0]));
  }

  ExpressionPtr parse_call(ExpressionPtr callee) {
    if (callee->kind == ExpressionKind::name && is_unsupported_function(callee->name))
      stop(fmt::format("the function {}() is not supported", callee->name));
    ExpressionPtr call = make_of(ExpressionKind::call, "", std::move(callee));
    parse_arguments(*call);
    return call;
  }

  void parse_arguments(Expression& to) {
    expect_sign("(");
    while (!take_sign(")")) {
      if (is_sign("*") || is_sign("**")) stop("an argument with * is not supported");
      Argument argument;
      if (peek().kind == TokenKind::name && peek(1).kind == TokenKind::sign && peek(1).text == "=") {
        argument.keyword = next().text;
        ++at_;
      } else if (!to.arguments.empty() && !to.arguments.back().keyword.empty()) {
        stop("an argument by position follows one by name");
      }
      argument.value = parse_expression();
      to.depth = std::max(to.depth, argument.value->depth + 1);
      to.arguments.push_back(std::move(argument));
      if (!is_sign(")")) expect_sign(",");
    }
  }

  ExpressionPtr parse_filters(ExpressionPtr value) {
    for (;;) {
      if (take_sign("|")) {
        std::string name = expect_name("the name of a filter");
        if (!is_filter(name)) stop(fmt::format("the filter '{}' is not supported", name));
        value = make_of(ExpressionKind::filter, std::move(name), std::move(value));
        if (is_sign("(")) parse_arguments(*value);
      } else if (take_name("is")) {
        value = parse_test(std::move(value));
      } else if (is_sign("(")) {
        value = parse_call(std::move(value));
      } else {
        return value;
      }
    }
  }

  ExpressionPtr parse_test(ExpressionPtr value) {
    const bool negated = take_name("not");
    std::string name = is_sign("==") ? next().text : expect_name("the name of a test");
    if (!is_test(name)) stop(fmt::format("the test '{}' is not supported", name));
    ExpressionPtr test = make_of(ExpressionKind::test, std::move(name), std::move(value));
    test->negated = negated;
    const bool operand = peek().kind == TokenKind::string || peek().kind == TokenKind::integer ||
                         peek().kind == TokenKind::real || is_sign("[") || is_sign("{") ||
                         (peek().kind == TokenKind::name && !is_name("else") && !is_name("or") && !is_name("and") &&
                          !is_name("if") && !is_name("is") && !is_name("in") && !is_name("not"));
    if (is_sign("(")) {
      parse_arguments(*test);
    } else if (operand) {
      test->arguments.push_back({.value = parse_postfix(parse_primary())});
      test->depth = std::max(test->depth, test->arguments.back().value->depth + 1);
    }
    return test;
  }

  std::vector<Token> tokens_;
  std::string file_;
  std::size_t at_ = 0;
  int depth_ = 0;
  int loops_ = 0;
  std::string ended_by_;  // the name that ended the last body
};

}  // namespace

Body parse(std::string_view source, const std::string& file) { return Parser(source, file).run(); }

}  // namespace nodewright::jinja
