#include "text/jinja/scopes.h"

namespace nodewright::jinja {

const Value* Scopes::find(const std::string& name) {
  for (auto scope = locals_.rbegin(); scope != locals_.rend(); ++scope) {
    if (const Value* found = find_in(*scope, name)) return found;
  }
  return find_in(globals_, name);
}

void Scopes::set(const std::string& name, Value value) {
  Variables& scope = locals_.empty() ? globals_ : locals_.back();
  if (Value* known = find_in(scope, name)) {
    *known = std::move(value);
  } else {
    scope.emplace_back(name, std::move(value));
  }
}

Value* Scopes::find_in(Variables& scope, const std::string& name) {
  work_.spend(scope.size() / 8);
  for (auto& [known, value] : scope) {
    if (known == name) return &value;
  }
  return nullptr;
}

}  // namespace nodewright::jinja
