// The tests: what stands behind "is".
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/values/operations.h"

namespace nodewright::jinja {
namespace {

constexpr auto kTests = std::to_array<std::string_view>(
    {"==",    "boolean", "callable", "defined", "divisibleby", "eq",       "equalto", "even",     "false",
     "float", "ge",      "gt",       "in",      "integer",     "iterable", "le",      "lt",       "mapping",
     "ne",    "none",    "number",   "odd",     "sequence",    "string",   "true",    "undefined"});

}  // namespace

bool is_test(std::string_view name) { return std::ranges::find(kTests, name) != kTests.end(); }

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Work& work) {
  work.spend(1);
  if (!is_test(name)) work.stop(fmt::format("the test '{}' is not supported", name));
  const std::string what = fmt::format("the test {}", name);
  const auto operand = [&]() -> const Value& {
    if (arguments.positional.size() != 1 || !arguments.named.empty())
      work.stop(fmt::format("{} takes one argument", what));
    return arguments.positional[0];
  };
  const auto whole = [&](const Value& number) {
    if (!number.integer()) work.stop(fmt::format("{} of {}, not an integer", what, number.kind()));
    return *number.integer();
  };
  if (name == "==" || name == "eq" || name == "equalto") return equal(value, operand(), work);
  if (name == "ne") return !equal(value, operand(), work);
  if (name == "lt") return less(value, operand(), work);
  if (name == "gt") return less(operand(), value, work);
  if (name == "le") return !less(operand(), value, work);
  if (name == "ge") return !less(value, operand(), work);
  if (name == "in") return contains(operand(), value, work);
  if (name == "divisibleby") {
    const std::int64_t by = whole(operand());
    if (by == 0) work.stop("divisibleby 0");
    return by == -1 || whole(value) % by == 0;
  }
  if (!arguments.positional.empty() || !arguments.named.empty()) work.stop(fmt::format("{} takes no argument", what));
  if (name == "defined") return !value.is_undefined();
  if (name == "undefined") return value.is_undefined();
  if (name == "none") return value.is_none();
  if (name == "string") return value.text() != nullptr;
  if (name == "mapping") return value.dict() != nullptr;
  if (name == "sequence" && value.list() && value.list()->kind > ListKind::tuple) return false;
  if (name == "iterable" || name == "sequence")
    return value.text() || value.list() || value.dict() || value.is_undefined();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.integer() || (value.written() && value.written()->is_whole);
  if (name == "float") return value.real() && !(value.written() && value.written()->is_whole);
  if (name == "boolean") return value.boolean() != nullptr;
  if (name == "true") return value.boolean() && *value.boolean();
  if (name == "false") return value.boolean() && !*value.boolean();
  if (name == "callable") return value.callable() != nullptr;
  return (whole(value) % 2 != 0) == (name == "odd");  // odd, even
}

}  // namespace nodewright::jinja
