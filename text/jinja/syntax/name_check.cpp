#include "text/jinja/syntax/name_check.h"

#include <fmt/format.h>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/syntax/lexer.h"

namespace nodewright::jinja {
namespace {

class NameCheck {
 public:
  explicit NameCheck(const std::string& file) : file_(file) {}

  void check(const Body& body, bool soft) const {
    for (const Statement& statement : body) check(statement, soft);
  }

 private:
  void check(const Statement& statement, bool soft) const {
    const bool is_block = statement.kind == StatementKind::set_block || statement.kind == StatementKind::filter;
    check(statement.expression.get(), soft && !is_block);
    check(statement.condition.get(), false);
    for (const Argument& parameter : statement.parameters) check(parameter.value.get(), false);
    for (const Branch& branch : statement.branches) {
      check(branch.condition.get(), true);
      check(branch.body, true);
    }
    check(statement.body, false);
    check(statement.otherwise, false);
  }

  void check(const Expression* expression, bool soft) const {
    if (expression == nullptr) return;
    const bool is_soft = soft || expression->kind == ExpressionKind::conditional;
    if (!soft && expression->kind == ExpressionKind::filter && !is_filter(expression->name))
      refuse("filter", *expression);
    if (!soft && expression->kind == ExpressionKind::test && !is_test(expression->name)) refuse("test", *expression);
    for (const ExpressionPtr& part : expression->parts) check(part.get(), is_soft);
    for (const Argument& argument : expression->arguments) check(argument.value.get(), is_soft);
  }

  [[noreturn]] void refuse(const char* what, const Expression& expression) const {
    fail("read the chat template", file_, expression.line,
         fmt::format("the {} '{}' is not supported", what, expression.name));
  }

  const std::string& file_;
};

}  // namespace

void check_names(const Body& body, const std::string& file) { NameCheck(file).check(body, false); }

}  // namespace nodewright::jinja
