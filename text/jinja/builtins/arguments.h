// The arguments of a call of a template, and who reads them by name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/values/value.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// The arguments of one call, which must outlive this. All throw Error through `work`, naming `what` is called.
class ArgumentReader {
 public:
  // `names`: of the arguments that it takes, in their order. Throws for others.
  ArgumentReader(std::string what, const Arguments& arguments, std::vector<std::string_view> names, Work& work);

  // Null where it is not given.
  const Value* given(std::string_view name) const;
  const Value& value(std::string_view name) const;
  const Text& text(std::string_view name) const;
  std::optional<Text> text_or_none(std::string_view name) const;
  std::int64_t integer_or(std::string_view name, std::int64_t otherwise) const;
  bool truth_or(std::string_view name, bool otherwise) const { return given(name) ? given(name)->truth() : otherwise; }

 private:
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
  Work& work_;
};

}  // namespace nodewright::jinja
