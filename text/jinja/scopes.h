// The variables that a template sees. As in Jinja a loop's body, a macro and a block of {% set %} have a scope of their
// own, a branch of {% if %} has not; a macro sees its arguments and the variables of the template.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "text/jinja/values/value.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {

using Variables = std::vector<std::pair<std::string, Value>>;

// Each look is paid for by `work`, which must outlive this.
class Scopes {
 public:
  Scopes(Variables globals, Work& work) : work_(work), globals_(std::move(globals)) {}

  // The innermost of that name, or null.
  const Value* find(const std::string& name);
  // In the innermost scope.
  void set(const std::string& name, Value value);

  void enter() { locals_.emplace_back(); }
  void leave() { locals_.pop_back(); }
  // For a macro, which does not see its caller's variables.
  std::vector<Variables> exchange_locals(std::vector<Variables> locals) {
    return std::exchange(locals_, std::move(locals));
  }

 private:
  Value* find_in(Variables& scope, const std::string& name);

  Work& work_;
  Variables globals_;
  std::vector<Variables> locals_;
};

}  // namespace nodewright::jinja
