#include "text/jinja/builtins/arguments.h"

#include <fmt/format.h>

#include <algorithm>

namespace nodewright::jinja {

ArgumentReader::ArgumentReader(std::string what, const Arguments& arguments, std::vector<std::string_view> names,
                               Work& work)
    : what_(std::move(what)), names_(std::move(names)), values_(names_.size()), work_(work) {
  if (arguments.positional.size() > names_.size())
    work.stop(fmt::format("{} takes at most {} arguments, not {}", what_, names_.size(), arguments.positional.size()));
  for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
  for (const auto& [name, value] : arguments.named) {
    const auto known = std::find(names_.begin(), names_.end(), name);
    if (known == names_.end()) work.stop(fmt::format("the argument '{}' of {} is not supported", name, what_));
    values_[static_cast<std::size_t>(known - names_.begin())] = &value;
  }
}

const Value* ArgumentReader::given(std::string_view name) const {
  return values_[static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin())];
}

const Value& ArgumentReader::value(std::string_view name) const {
  if (const Value* found = given(name)) return *found;
  work_.stop(fmt::format("{} needs the argument '{}'", what_, name));
}

const Text& ArgumentReader::text(std::string_view name) const {
  if (const Text* found = value(name).text()) return *found;
  work_.stop(fmt::format("the argument '{}' of {} is {}, not a string", name, what_, value(name).kind()));
}

std::optional<Text> ArgumentReader::text_or_none(std::string_view name) const {
  if (!given(name) || given(name)->is_none()) return std::nullopt;
  return text(name);
}

std::int64_t ArgumentReader::integer_or(std::string_view name, std::int64_t otherwise) const {
  const Value* found = given(name);
  if (!found) return otherwise;
  if (const bool* truth = found->boolean()) return *truth ? 1 : 0;
  if (const std::int64_t* whole = found->integer()) return *whole;
  work_.stop(fmt::format("the argument '{}' of {} is {}, not an integer", name, what_, found->kind()));
}

}  // namespace nodewright::jinja
