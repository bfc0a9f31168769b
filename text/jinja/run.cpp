// Walks the tree of a template.
#include "text/jinja/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/scopes.h"
#include "text/jinja/values/operations.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {
namespace {

// Expressions, statements and macros within each other while running; each takes some hundred bytes of stack, a
// sanitizer's build some thousand.
constexpr int kDeepestRun = 600;

enum class Flow { normal, break_, continue_ };

class Run {
 public:
  Run(Variables variables, const std::string& file, std::time_t now)
      : work_(file, now), variables_(std::move(variables), work_) {}

  Flow execute(const Body& body, Text& out) {
    for (const Statement& statement : body) {
      const Flow flow = execute(statement, out);
      if (flow != Flow::normal) return flow;
    }
    return Flow::normal;
  }

 private:
  class Level {
   public:
    explicit Level(Run& run) : run_(run) {
      if (++run_.depth_ > kDeepestRun) run_.work_.stop("macros call each other too deep");
    }
    ~Level() { --run_.depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Run& run_;
  };

  // Statements.

  Flow execute(const Statement& statement, Text& out) {
    const Level level(*this);
    work_.line = statement.line;
    work_.spend(1);
    switch (statement.kind) {
      case StatementKind::text:
        append(statement.text, out);
        return Flow::normal;
      case StatementKind::output:
        append(printed(evaluate(*statement.expression), work_), out);
        return Flow::normal;
      case StatementKind::set:
        execute_set(statement);
        return Flow::normal;
      case StatementKind::set_block: {
        Text text;
        variables_.enter();
        const Flow flow = execute(statement.body, text);
        variables_.leave();
        variables_.set(statement.targets[0], filtered(statement, std::move(text)));
        return flow;
      }
      case StatementKind::filter: {
        Text text;
        variables_.enter();
        const Flow flow = execute(statement.body, text);
        variables_.leave();
        const Value made = filtered(statement, std::move(text));
        if (!made.text()) work_.stop(fmt::format("the filters of a block make {}, not a string", made.kind()));
        append(*made.text(), out);
        return flow;
      }
      case StatementKind::if_:
        for (const Branch& branch : statement.branches) {
          if (!branch.condition || evaluate(*branch.condition).truth()) return execute(branch.body, out);
        }
        return Flow::normal;
      case StatementKind::for_:
        return execute_for(statement, out);
      case StatementKind::macro:
        variables_.set(statement.targets[0], Callable{.name = statement.targets[0], .macro = &statement});
        return Flow::normal;
      case StatementKind::break_:
        return Flow::break_;
      case StatementKind::continue_:
        return Flow::continue_;
    }
    return Flow::normal;
  }

  // Through the filters of a block.
  Value filtered(const Statement& block, Text text) {
    if (!block.expression) return text;
    variables_.enter();
    variables_.set("", std::move(text));
    Value value = evaluate(*block.expression);
    variables_.leave();
    return value;
  }

  void append(const Text& text, Text& out) {
    work_.spend_bytes(text.size());
    out.append(text);
  }

  void execute_set(const Statement& statement) {
    Value value = evaluate(*statement.expression);
    if (statement.attribute.empty()) {
      variables_.set(statement.targets[0], std::move(value));
      return;
    }
    const Value* target = variables_.find(statement.targets[0]);
    if (!target || !target->names())
      work_.stop(fmt::format("'{}' is no namespace, so '{}.{}' cannot be set", statement.targets[0],
                             statement.targets[0], statement.attribute));
    value = storable(std::move(value), work_);
    auto& entries = target->names()->entries;
    const auto known =
        std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first == statement.attribute; });
    if (known != entries.end()) {
      known->second = std::move(value);
    } else {
      entries.emplace_back(statement.attribute, std::move(value));
    }
  }

  void set_targets(const Statement& loop, const Value& item) {
    if (loop.targets.size() == 1) {
      variables_.set(loop.targets[0], item);
      return;
    }
    const std::vector<Value> parts = items_of(item, work_);
    if (parts.size() != loop.targets.size())
      work_.stop(fmt::format("{} values for {} loop variables", parts.size(), loop.targets.size()));
    for (std::size_t i = 0; i < parts.size(); ++i) variables_.set(loop.targets[i], parts[i]);
  }

  static Value loop_variable(const std::vector<Value>& items, std::size_t at, std::int64_t depth) {
    const auto index = static_cast<std::int64_t>(at), size = static_cast<std::int64_t>(items.size());
    std::vector<std::pair<Value, Value>> entries = {
        {"index", index + 1},        {"index0", index},          {"first", at == 0},
        {"last", index + 1 == size}, {"length", size},           {"depth", depth},
        {"depth0", depth - 1},       {"revindex", size - index}, {"revindex0", size - index - 1}};
    if (at > 0) entries.emplace_back("previtem", items[at - 1]);
    if (at + 1 < items.size()) entries.emplace_back("nextitem", items[at + 1]);
    for (const char* name : {"cycle", "changed"})
      entries.emplace_back(name, Callable{.name = std::string("loop.") + name});
    return entries;
  }

  Flow execute_for(const Statement& loop, Text& out) {
    std::vector<Value> items = items_of(evaluate(*loop.expression), work_);
    if (loop.condition) {
      std::vector<Value> kept;
      for (const Value& item : items) {
        variables_.enter();
        set_targets(loop, item);
        if (evaluate(*loop.condition).truth()) kept.push_back(item);
        variables_.leave();
      }
      items = std::move(kept);
    }
    if (items.empty()) {
      variables_.enter();
      const Flow flow = execute(loop.otherwise, out);
      variables_.leave();
      return flow;
    }
    ++loop_depth_;
    for (std::size_t i = 0; i < items.size(); ++i) {
      work_.spend(16);
      variables_.enter();
      variables_.set("loop", loop_variable(items, i, loop_depth_));
      set_targets(loop, items[i]);
      const Flow flow = execute(loop.body, out);
      variables_.leave();
      if (flow == Flow::break_) break;
    }
    --loop_depth_;
    return Flow::normal;
  }

  Value call_macro(const Statement& macro, const Arguments& arguments) {
    Variables own;
    if (arguments.positional.size() > macro.parameters.size())
      work_.stop(fmt::format("the macro {}() takes {} arguments, not {}", macro.targets[0], macro.parameters.size(),
                             arguments.positional.size()));
    for (const auto& [name, value] : arguments.named) {
      const bool known = std::any_of(macro.parameters.begin(), macro.parameters.end(),
                                     [&](const Argument& p) { return p.keyword == name; });
      if (!known) work_.stop(fmt::format("the macro {}() has no parameter '{}'", macro.targets[0], name));
    }
    std::vector<Variables> outer = variables_.exchange_locals({});
    const std::int64_t outer_depth = std::exchange(loop_depth_, 0);
    for (std::size_t i = 0; i < macro.parameters.size(); ++i) {
      const Argument& parameter = macro.parameters[i];
      const auto named = std::find_if(arguments.named.begin(), arguments.named.end(),
                                      [&](const auto& argument) { return argument.first == parameter.keyword; });
      Value value = Undefined{parameter.keyword};
      if (i < arguments.positional.size()) {
        value = arguments.positional[i];
      } else if (named != arguments.named.end()) {
        value = named->second;
      } else if (parameter.value) {
        variables_.exchange_locals({own});  // a default sees the parameters before it
        value = evaluate(*parameter.value);
      }
      own.emplace_back(parameter.keyword, std::move(value));
    }
    variables_.exchange_locals({std::move(own)});
    Text text;
    execute(macro.body, text);
    variables_.exchange_locals(std::move(outer));
    loop_depth_ = outer_depth;
    return text;
  }

  // Expressions.

  Value evaluate(const Expression& e) {
    const Level level(*this);
    work_.spend(1);
    work_.line = e.line;
    switch (e.kind) {
      case ExpressionKind::constant:
        return constant(e);
      case ExpressionKind::name:
        if (const Value* found = variables_.find(e.name)) return *found;
        if (is_function(e.name)) return Callable{.name = e.name};
        return Undefined{e.name};
      case ExpressionKind::attribute:
        return attribute(evaluate(*e.parts[0]), e.name);
      case ExpressionKind::subscript: {
        const Value value = evaluate(*e.parts[0]);
        return subscript_of(value, evaluate(*e.parts[1]), work_);
      }
      case ExpressionKind::slice:
        return slice(e);
      case ExpressionKind::call:
        return call(e);
      case ExpressionKind::filter: {
        const Value value = evaluate(*e.parts[0]);
        return apply_filter(e.name, value, arguments_of(e), work_);
      }
      case ExpressionKind::test: {
        const Value value = evaluate(*e.parts[0]);
        return apply_test(e.name, value, arguments_of(e), work_) != e.negated;
      }
      case ExpressionKind::unary:
        return unary(e.name, evaluate(*e.parts[0]), work_);
      case ExpressionKind::binary:
        return binary_of(e);
      case ExpressionKind::comparison:
        return comparison(e);
      case ExpressionKind::conditional:
        if (evaluate(*e.parts[1]).truth()) return evaluate(*e.parts[0]);
        return e.parts[2] ? evaluate(*e.parts[2]) : Value(Undefined{"an if without else"});
      case ExpressionKind::list: {
        std::vector<Value> items;
        for (const auto& part : e.parts) items.push_back(storable(evaluate(*part), work_));
        return e.name == "tuple" ? Value::tuple(std::move(items)) : Value(std::move(items));
      }
      case ExpressionKind::dict:
        return dict(e);
    }
    return {};
  }

  static Value constant(const Expression& e) {
    if (const bool* truth = std::get_if<bool>(&e.constant)) return *truth;
    if (const std::int64_t* whole = std::get_if<std::int64_t>(&e.constant)) return *whole;
    if (const double* real = std::get_if<double>(&e.constant)) return *real;
    if (const std::string* text = std::get_if<std::string>(&e.constant)) return Text(*text);
    return None{};
  }

  Value dict(const Expression& e) {
    std::vector<std::pair<Value, Value>> entries;
    for (std::size_t i = 0; i < e.parts.size(); i += 2) {
      const Value key = evaluate(*e.parts[i]);
      if (!key.is_hashable()) work_.stop(fmt::format("{} cannot be a key of a dict", key.kind()));
      work_.spend(entries.size() / 16);
      Value value = storable(evaluate(*e.parts[i + 1]), work_);
      const auto same = std::find_if(entries.begin(), entries.end(),
                                     [&](const auto& entry) { return equal(entry.first, key, work_); });
      if (same != entries.end()) {
        same->second = std::move(value);
      } else {
        entries.emplace_back(key, std::move(value));
      }
    }
    return entries;
  }

  // In Python a method hides a key of the same name, but only after a point.
  Value attribute(const Value& value, const std::string& name) {
    if (has_method(value, name)) return Callable{.name = name, .receiver = value};
    return member_of(value, name, work_);
  }

  Value slice(const Expression& e) {
    const Value value = evaluate(*e.parts[0]);
    std::optional<std::int64_t> bounds[3];
    for (int i = 0; i < 3; ++i) {
      if (!e.parts[i + 1]) continue;
      const Value bound = evaluate(*e.parts[i + 1]);
      if (bound.is_none()) continue;
      if (!bound.integer()) work_.stop(fmt::format("a bound of a slice is {}, not an integer", bound.kind()));
      bounds[i] = *bound.integer();
    }
    return slice_of(value, {.first = bounds[0], .end = bounds[1], .step = bounds[2]}, work_);
  }

  Arguments arguments_of(const Expression& e) {
    Arguments arguments;
    for (const Argument& argument : e.arguments) {
      Value value = evaluate(*argument.value);
      if (argument.keyword.empty()) {
        arguments.positional.push_back(std::move(value));
      } else {
        arguments.named.emplace_back(argument.keyword, std::move(value));
      }
    }
    return arguments;
  }

  Value call(const Expression& e) {
    const Expression& target = *e.parts[0];
    if (target.kind == ExpressionKind::attribute) {  // a method is called with its object, and named if there is none
      const Value receiver = evaluate(*target.parts[0]);
      const Value member = attribute(receiver, target.name);
      if (!member.callable()) {
        work_.line = e.line;
        return call_method(receiver, target.name, arguments_of(e), work_);
      }
      return call(*member.callable(), e);
    }
    const Value callee = evaluate(target);
    if (callee.is_undefined()) work_.stop(fmt::format("the function {}() is not supported", callee.undefined().name));
    if (!callee.callable()) work_.stop(fmt::format("{} cannot be called", callee.kind()));
    return call(*callee.callable(), e);
  }

  Value call(const Callable& callee, const Expression& e) {
    const Arguments arguments = arguments_of(e);
    work_.line = e.line;
    if (callee.macro) return call_macro(*callee.macro, arguments);
    if (!callee.receiver.is_undefined()) return call_method(callee.receiver, callee.name, arguments, work_);
    if (!is_function(callee.name)) work_.stop(fmt::format("the function {}() is not supported", callee.name));
    return call_function(callee.name, arguments, work_);
  }

  Value binary_of(const Expression& e) {
    Value left = evaluate(*e.parts[0]);
    if (e.name == "and") return left.truth() ? evaluate(*e.parts[1]) : left;
    if (e.name == "or") return left.truth() ? left : evaluate(*e.parts[1]);
    const Value right = evaluate(*e.parts[1]);
    work_.line = e.line;
    return binary(left, e.name, right, work_);
  }

  Value comparison(const Expression& e) {
    Value left = evaluate(*e.parts[0]);
    for (std::size_t i = 0; i < e.operators.size(); ++i) {
      Value right = evaluate(*e.parts[i + 1]);
      work_.line = e.line;
      if (!compares(left, e.operators[i], right, work_)) return false;
      left = std::move(right);
    }
    return true;
  }

  Work work_;
  Scopes variables_;
  std::int64_t loop_depth_ = 0;
  int depth_ = 0;
};

}  // namespace

Text render(const Body& body, Variables variables, const std::string& file, std::time_t now) {
  Text out;
  Run(std::move(variables), file, now).execute(body, out);
  return out;
}

}  // namespace nodewright::jinja
