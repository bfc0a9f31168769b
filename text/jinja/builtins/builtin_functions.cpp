// The functions that every template may call.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/values/operations.h"
#include "text/unicode/utf8.h"

namespace nodewright::jinja {
namespace {

constexpr auto kFunctions =
    std::to_array<std::string_view>({"dict", "namespace", "raise_exception", "range", "strftime_now"});
constexpr auto kUnsupportedFunctions =
    std::to_array<std::string_view>({"caller", "cycler", "joiner", "lipsum", "self", "super"});

Value names_from(const Arguments& arguments, bool as_namespace, Work& work) {
  std::vector<std::pair<Value, Value>> entries;
  const auto put = [&](const Value& key, const Value& value) {
    const auto same =
        std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return equal(e.first, key, work); });
    if (same != entries.end()) {
      same->second = storable(value, work);
    } else {
      entries.emplace_back(key, storable(value, work));
    }
  };
  for (const Value& value : arguments.positional) {
    if (!value.dict())
      work.stop(
          fmt::format("an argument of {}() is {}, not a dict", as_namespace ? "namespace" : "dict", value.kind()));
    for (const auto& [key, one] : value.dict()->entries) put(key, one);
  }
  for (const auto& [key, value] : arguments.named) put(Text(key), value);
  if (!as_namespace) return entries;
  auto names = std::make_shared<Namespace>();
  for (auto& [key, value] : entries) {
    if (!key.text()) work.stop(fmt::format("a name of namespace() is {}, not a string", key.kind()));
    names->entries.emplace_back(key.text()->bytes(), std::move(value));
  }
  return names;
}

Value range_of(const Arguments& arguments, Work& work) {
  const ArgumentReader reader("range()", arguments, {"first", "second", "step"}, work);
  std::int64_t begin = reader.integer_or("first", 0), end = reader.integer_or("second", 0);
  reader.value("first");
  if (!reader.given("second")) end = std::exchange(begin, 0);
  const std::int64_t step = reader.integer_or("step", 1);
  if (step == 0) work.stop("the step of range() is 0");
  std::vector<Value> numbers;
  for (std::int64_t i = begin; step > 0 ? i < end : i > end;) {
    work.spend(8);
    numbers.emplace_back(i);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return numbers;
}

Value time_as(const std::string& format, Work& work) {
  std::tm parts{};
  const std::time_t now = work.now();
  localtime_r(&now, &parts);
  std::array<char, 512> text{};
  if (format.size() > 64) work.stop("the format of strftime_now() is longer than 64 bytes");
  return Text(to_valid_utf8({text.data(), std::strftime(text.data(), text.size(), format.c_str(), &parts)}));
}

}  // namespace

bool is_function(std::string_view name) { return std::ranges::find(kFunctions, name) != kFunctions.end(); }
bool is_unsupported_function(std::string_view name) {
  return std::ranges::find(kUnsupportedFunctions, name) != kUnsupportedFunctions.end();
}

Value call_function(std::string_view name, const Arguments& arguments, Work& work) {
  work.spend(1);
  if (name == "range") return range_of(arguments, work);
  if (name == "namespace" || name == "dict") return names_from(arguments, name == "namespace", work);
  const ArgumentReader reader(fmt::format("{}()", name), arguments, {name == "raise_exception" ? "message" : "format"},
                              work);
  if (name == "strftime_now") return time_as(reader.text("format").bytes(), work);
  work.stop("the template refuses: " + printed(reader.value("message"), work).bytes());  // raise_exception
}

}  // namespace nodewright::jinja
