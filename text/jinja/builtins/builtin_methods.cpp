// The methods of strings and dicts.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/builtins/string_format.h"
#include "text/jinja/values/operations.h"

namespace nodewright::jinja {
namespace {

constexpr auto kTextMethods =
    std::to_array<std::string_view>({"capitalize", "count", "endswith", "find", "format", "join", "lower", "lstrip",
                                     "replace", "rstrip", "split", "startswith", "strip", "upper"});
constexpr auto kDictMethods = std::to_array<std::string_view>({"get", "items", "keys", "values"});

Value call_on_dict(const Dict& dict, std::string_view name, const Arguments& arguments, Work& work) {
  work.spend(dict.entries.size());
  if (name == "get") {
    const ArgumentReader reader("the method get()", arguments, {"key", "default"}, work);
    const Value& key = reader.value("key");
    if (!key.is_hashable()) work.stop(fmt::format("{} cannot be a key of a dict", key.kind()));
    if (const Value* found = dict.find(key)) return *found;
    return reader.given("default") ? *reader.given("default") : Value(None{});
  }
  const ArgumentReader reader(fmt::format("the method {}()", name), arguments, {}, work);
  if (name == "items") return Value::list_of(pairs_of(dict, work), ListKind::items);
  std::vector<Value> found;
  for (const auto& [key, value] : dict.entries) found.push_back(name == "keys" ? key : value);
  return Value::list_of(std::move(found), name == "keys" ? ListKind::keys : ListKind::values);
}

}  // namespace

bool has_method(const Value& receiver, std::string_view name) {
  return (receiver.text() && std::ranges::find(kTextMethods, name) != kTextMethods.end()) ||
         (receiver.dict() && std::ranges::find(kDictMethods, name) != kDictMethods.end());
}

Value call_text_method(const Text& text, std::string_view name, const Arguments& arguments, Work& work) {
  const std::string what = fmt::format("the method {}()", name);
  work.spend_bytes(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const ArgumentReader reader(what, arguments, {"chars"}, work);
    return text.strip(reader.text_or_none("chars"), name != "rstrip", name != "lstrip");
  }
  if (name == "startswith" || name == "endswith") {
    const ArgumentReader reader(what, arguments, {"prefix"}, work);
    std::vector<Value> ends{reader.value("prefix")};
    if (ends[0].list()) ends = std::vector<Value>(ends[0].list()->items);  // a tuple: any of them
    return std::any_of(ends.begin(), ends.end(), [&](const Value& end) {
      if (!end.text()) work.stop(fmt::format("the argument of {} is {}, not a string", what, end.kind()));
      return name == "startswith" ? text.bytes().starts_with(end.text()->bytes())
                                  : text.bytes().ends_with(end.text()->bytes());
    });
  }
  if (name == "format") return formatted(text, arguments, work);
  if (name == "split") {
    const ArgumentReader reader(what, arguments, {"sep", "maxsplit"}, work);
    const auto separator = reader.text_or_none("sep");
    if (separator && separator->empty()) work.stop("the separator of split() is empty");
    const std::vector<Text> pieces = text.split(separator, reader.integer_or("maxsplit", -1));
    work.spend(pieces.size() * 8);
    return std::vector<Value>(pieces.begin(), pieces.end());
  }
  if (name == "replace") {
    const ArgumentReader reader(what, arguments, {"old", "new", "count"}, work);
    const Text& from = reader.text("old");
    work.spend_bytes((text.size() / std::max<std::size_t>(from.size(), 1) + 1) * reader.text("new").size());
    const Text& to = reader.text("new");
    return text.replace(from, text.is_markup() ? to.escaped() : to, reader.integer_or("count", -1));
  }
  if (name == "find" || name == "count") {
    const ArgumentReader reader(what, arguments, {"sub"}, work);
    const std::string& part = reader.text("sub").bytes();
    if (name == "find") {
      const std::size_t at = text.bytes().find(part);
      return at == std::string::npos ? std::int64_t{-1} : text.part(0, at).characters();
    }
    if (part.empty()) return text.characters() + 1;
    return static_cast<std::int64_t>(text.split(reader.text("sub"), -1).size()) - 1;
  }
  if (name == "join") {
    const ArgumentReader reader(what, arguments, {"iterable"}, work);
    for (const Value& item : items_of(reader.value("iterable"), work)) {
      if (!item.text()) work.stop(fmt::format("join() of {}, which is not a string", item.kind()));
    }
    return joined(reader.value("iterable"), text, nullptr, work);
  }
  const ArgumentReader reader(what, arguments, {}, work);
  if (name == "upper") return text.upper();
  if (name == "lower") return text.lower();
  return text.capitalize();
}

Value call_method(const Value& receiver, std::string_view name, const Arguments& arguments, Work& work) {
  work.spend(1);
  if (receiver.text() && has_method(receiver, name)) return call_text_method(*receiver.text(), name, arguments, work);
  if (receiver.dict() && has_method(receiver, name)) return call_on_dict(*receiver.dict(), name, arguments, work);
  work.stop(fmt::format("the method {}() of {} is not supported", name, receiver.kind()));
}

}  // namespace nodewright::jinja
