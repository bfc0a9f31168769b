#include "text/chat/jinja_builtins.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "runtime/error.h"
#include "text/unicode/utf8.h"

namespace nodewright::jinja {
namespace {

constexpr std::uint64_t kMostWork = 5'000'000;

constexpr auto kFilters = std::to_array<std::string_view>(
    {"abs",     "capitalize", "count",  "d",          "default", "dictsort", "first", "float",  "indent",     "int",
     "items",   "join",       "last",   "length",     "list",    "lower",    "map",   "reject", "rejectattr", "replace",
     "reverse", "safe",       "select", "selectattr", "string",  "tojson",   "trim",  "upper"});
constexpr auto kTests = std::to_array<std::string_view>(
    {"==",    "boolean", "callable", "defined", "divisibleby", "eq",       "equalto", "even",     "false",
     "float", "ge",      "gt",       "in",      "integer",     "iterable", "le",      "lt",       "mapping",
     "ne",    "none",    "number",   "odd",     "sequence",    "string",   "true",    "undefined"});
constexpr auto kFunctions =
    std::to_array<std::string_view>({"dict", "namespace", "raise_exception", "range", "strftime_now"});
constexpr auto kUnsupportedFunctions =
    std::to_array<std::string_view>({"caller", "cycler", "joiner", "lipsum", "self", "super"});
constexpr auto kTextMethods =
    std::to_array<std::string_view>({"capitalize", "count", "endswith", "find", "join", "lower", "lstrip", "replace",
                                     "rstrip", "split", "startswith", "strip", "upper"});
constexpr auto kDictMethods = std::to_array<std::string_view>({"get", "items", "keys", "values"});

template <std::size_t n>
bool holds(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The arguments of one call, by position or by name.
class Reader {
 public:
  Reader(std::string what, const Arguments& arguments, std::vector<std::string_view> names, Work& work)
      : what_(std::move(what)), names_(std::move(names)), values_(names_.size()), work_(work) {
    if (arguments.positional.size() > names_.size())
      work.stop(
          fmt::format("{} takes at most {} arguments, not {}", what_, names_.size(), arguments.positional.size()));
    for (std::size_t i = 0; i < arguments.positional.size(); ++i) values_[i] = &arguments.positional[i];
    for (const auto& [name, value] : arguments.named) {
      const auto known = std::find(names_.begin(), names_.end(), name);
      if (known == names_.end()) work.stop(fmt::format("the argument '{}' of {} is not supported", name, what_));
      values_[static_cast<std::size_t>(known - names_.begin())] = &value;
    }
  }

  // Null where it is not given.
  const Value* given(std::string_view name) const {
    return values_[static_cast<std::size_t>(std::find(names_.begin(), names_.end(), name) - names_.begin())];
  }
  const Value& value(std::string_view name) const {
    if (const Value* found = given(name)) return *found;
    work_.stop(fmt::format("{} needs the argument '{}'", what_, name));
  }
  const Text& text(std::string_view name) const {
    if (const Text* found = value(name).text()) return *found;
    work_.stop(fmt::format("the argument '{}' of {} is {}, not a string", name, what_, value(name).kind()));
  }
  std::optional<Text> text_or_none(std::string_view name) const {
    if (!given(name) || given(name)->is_none()) return std::nullopt;
    return text(name);
  }
  std::int64_t integer_or(std::string_view name, std::int64_t otherwise) const {
    const Value* found = given(name);
    if (!found) return otherwise;
    if (const bool* truth = found->boolean()) return *truth ? 1 : 0;
    if (const std::int64_t* whole = found->integer()) return *whole;
    work_.stop(fmt::format("the argument '{}' of {} is {}, not an integer", name, what_, found->kind()));
  }
  bool truth_or(std::string_view name, bool otherwise) const { return given(name) ? given(name)->truth() : otherwise; }

 private:
  std::string what_;
  std::vector<std::string_view> names_;
  std::vector<const Value*> values_;
  Work& work_;
};

std::string undefined_words(const Value& value) { return fmt::format("'{}' is undefined", value.undefined().name); }

// The filters that take any value as its printed text.
Text text_of(const Value& value, Work& work) {
  Text text = printed(value, work);
  work.spend_bytes(text.size());
  return text;
}

std::int64_t length_of(const Value& value, Work& work) {
  if (const Text* text = value.text()) return text->characters();
  if (const List* list = value.list()) return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->entries.size());
  if (value.is_undefined()) return 0;
  work.stop(fmt::format("{} has no length", value.kind()));
}

Value pair_of(Value first, Value second) { return Value::tuple({std::move(first), std::move(second)}); }

std::vector<Value> pairs_of(const Dict& dict, Work& work) {
  work.spend(dict.entries.size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries) pairs.push_back(pair_of(key, value));
  return pairs;
}

Value json_of(const Value& value, const Arguments& arguments, Work& work) {
  const Reader reader("the filter tojson", arguments, {"ensure_ascii", "indent", "separators"}, work);
  if (reader.truth_or("ensure_ascii", false)) work.stop("ensure_ascii of the filter tojson is not supported");
  JsonForm form;
  if (reader.given("indent") && !reader.given("indent")->is_none()) {
    const std::int64_t indent = reader.integer_or("indent", 0);
    if (indent < 0 || indent > 64)
      work.stop(fmt::format("an indent of {} of the filter tojson is not supported", indent));
    form = {.indent = static_cast<int>(indent), .between_items = ","};
  }
  if (const Value* separators = reader.given("separators"); separators && !separators->is_none()) {
    const List* two = separators->list();
    if (!two || two->items.size() != 2 || !two->items[0].text() || !two->items[1].text())
      work.stop("the separators of the filter tojson are not two strings");
    form.between_items = two->items[0].text()->bytes();
    form.after_key = two->items[1].text()->bytes();
  }
  Text json;
  std::string why;
  if (!append_json(value, form, json, why)) work.stop(why);
  work.spend_bytes(json.size());
  return json;
}

Value joined(const Value& value, const Text& between, const Value* attribute, Work& work) {
  Text text;
  bool first = true;
  for (const Value& item : items_of(value, work)) {
    if (!first) text.append(between);
    first = false;
    const Text one =
        printed(attribute ? member_of(item, attribute->text() ? attribute->text()->bytes() : "", work) : item, work);
    work.spend_bytes(one.size() + between.size());
    text.append(one);
  }
  return text;
}

// "a.b.0" of map, selectattr and rejectattr.
Value path_of(Value value, const Text& path, Work& work) {
  for (const Text& name : path.split(Text("."), -1)) value = member_of(value, name.bytes(), work);
  return value;
}

Arguments rest_of(const Arguments& arguments, std::size_t from) {
  Arguments rest{.named = arguments.named};
  for (std::size_t i = from; i < arguments.positional.size(); ++i) rest.positional.push_back(arguments.positional[i]);
  return rest;
}

const std::string& name_at(const Arguments& arguments, std::size_t at, std::string_view filter, Work& work) {
  const Text* name = at < arguments.positional.size() ? arguments.positional[at].text() : nullptr;
  if (!name) work.stop(fmt::format("the filter {} needs a name", filter));
  return name->bytes();
}

// select, reject, selectattr, rejectattr.
Value selected(std::string_view filter, const Value& value, const Arguments& arguments, Work& work) {
  const bool by_attribute = filter.ends_with("attr");
  const bool keeps = filter.starts_with("select");
  const std::size_t first = by_attribute ? 1 : 0;
  if (by_attribute) name_at(arguments, 0, filter, work);
  const bool has_test = arguments.positional.size() > first;
  const std::string test = has_test ? name_at(arguments, first, filter, work) : "";
  if (has_test && !is_test(test)) work.stop(fmt::format("the test '{}' is not supported", test));
  const Arguments rest = rest_of(arguments, first + 1);
  std::vector<Value> kept;
  for (const Value& item : items_of(value, work)) {
    const Value looked_at = by_attribute ? path_of(item, *arguments.positional[0].text(), work) : item;
    const bool passes = has_test ? apply_test(test, looked_at, rest, work) : looked_at.truth();
    if (passes == keeps) kept.push_back(item);
  }
  return kept;
}

Value mapped(const Value& value, const Arguments& arguments, Work& work) {
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    const Reader reader("the filter map", arguments, {"attribute", "default"}, work);
    for (const Value& item : items_of(value, work)) {
      Value found = path_of(item, reader.text("attribute"), work);
      if (found.is_undefined() && reader.given("default")) found = *reader.given("default");
      results.push_back(std::move(found));
    }
    return results;
  }
  const std::string& filter = name_at(arguments, 0, "map", work);
  if (!is_filter(filter)) work.stop(fmt::format("the filter '{}' is not supported", filter));
  if (filter == "map") work.stop("the filter map of the filter map is not supported");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_of(value, work)) results.push_back(apply_filter(filter, item, rest, work));
  return results;
}

Value indented(const Value& value, const Arguments& arguments, Work& work) {
  const Reader reader("the filter indent", arguments, {"width", "first", "blank"}, work);
  Text margin;
  if (const Value* width = reader.given("width"); width && width->text()) {
    margin = *width->text();
  } else {
    const std::int64_t spaces = std::max<std::int64_t>(reader.integer_or("width", 4), 0);
    work.spend_bytes(static_cast<std::uint64_t>(spaces));
    margin = Text(std::string(static_cast<std::size_t>(spaces), ' '));
  }
  const std::vector<Text> lines = text_of(value, work).split(Text("\n"), -1);
  work.spend_bytes(lines.size() * (margin.size() + 1));
  Text result;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n");
    const bool wanted = i == 0 ? reader.truth_or("first", false) : !lines[i].empty() || reader.truth_or("blank", false);
    if (wanted) result.append(margin);
    result.append(lines[i]);
  }
  return result;
}

// int() and float() of a string, or the default.
Value number_of(std::string_view filter, const Value& value, const Arguments& arguments, Work& work) {
  const Reader reader(fmt::format("the filter {}", filter), arguments, {"default"}, work);
  const bool whole = filter == "int";
  const Value otherwise = reader.given("default") ? *reader.given("default")
                          : whole                 ? Value(std::int64_t{0})
                                                  : Value(0.0);
  if (value.is_undefined()) work.stop(undefined_words(value));
  double number = 0;
  if (value.is_number()) {
    if (whole && value.integer()) return value;
    number = value.as_double();
  } else if (value.text()) {
    const std::string text = value.text()->strip(std::nullopt, true, true).bytes();
    const char* end = text.data() + text.size();
    const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
    std::int64_t integer = 0;
    if (const auto [stopped, failure] = std::from_chars(begin, end, integer);
        whole && failure == std::errc() && stopped == end)
      return integer;
    const auto [stopped, failure] = std::from_chars(begin, end, number);
    if (failure != std::errc() || stopped != end) return otherwise;
  } else {
    return otherwise;
  }
  if (!whole) return number;
  if (!(std::fabs(number) < 9e18)) return otherwise;
  return static_cast<std::int64_t>(number);
}

Value call_on_text(const Text& text, std::string_view name, const Arguments& arguments, Work& work) {
  const std::string what = fmt::format("the method {}()", name);
  work.spend_bytes(text.size());
  if (name == "strip" || name == "lstrip" || name == "rstrip") {
    const Reader reader(what, arguments, {"chars"}, work);
    return text.strip(reader.text_or_none("chars"), name != "rstrip", name != "lstrip");
  }
  if (name == "startswith" || name == "endswith") {
    const Reader reader(what, arguments, {"prefix"}, work);
    std::vector<Value> ends{reader.value("prefix")};
    if (ends[0].list()) ends = std::vector<Value>(ends[0].list()->items);  // a tuple: any of them
    return std::any_of(ends.begin(), ends.end(), [&](const Value& end) {
      if (!end.text()) work.stop(fmt::format("the argument of {} is {}, not a string", what, end.kind()));
      return name == "startswith" ? text.bytes().starts_with(end.text()->bytes())
                                  : text.bytes().ends_with(end.text()->bytes());
    });
  }
  if (name == "split") {
    const Reader reader(what, arguments, {"sep", "maxsplit"}, work);
    const auto separator = reader.text_or_none("sep");
    if (separator && separator->empty()) work.stop("the separator of split() is empty");
    const std::vector<Text> pieces = text.split(separator, reader.integer_or("maxsplit", -1));
    work.spend(pieces.size() * 8);
    return std::vector<Value>(pieces.begin(), pieces.end());
  }
  if (name == "replace") {
    const Reader reader(what, arguments, {"old", "new", "count"}, work);
    const Text& from = reader.text("old");
    work.spend_bytes((text.size() / std::max<std::size_t>(from.size(), 1) + 1) * reader.text("new").size());
    return text.replace(from, reader.text("new"), reader.integer_or("count", -1));
  }
  if (name == "find" || name == "count") {
    const Reader reader(what, arguments, {"sub"}, work);
    const std::string& part = reader.text("sub").bytes();
    if (name == "find") {
      const std::size_t at = text.bytes().find(part);
      return at == std::string::npos ? std::int64_t{-1} : text.part(0, at).characters();
    }
    if (part.empty()) return text.characters() + 1;
    return static_cast<std::int64_t>(text.split(reader.text("sub"), -1).size()) - 1;
  }
  if (name == "join") {
    const Reader reader(what, arguments, {"iterable"}, work);
    for (const Value& item : items_of(reader.value("iterable"), work)) {
      if (!item.text()) work.stop(fmt::format("join() of {}, which is not a string", item.kind()));
    }
    return joined(reader.value("iterable"), text, nullptr, work);
  }
  const Reader reader(what, arguments, {}, work);
  if (name == "upper") return text.upper();
  if (name == "lower") return text.lower();
  return text.capitalize();
}

Value call_on_dict(const Dict& dict, std::string_view name, const Arguments& arguments, Work& work) {
  work.spend(dict.entries.size());
  if (name == "get") {
    const Reader reader("the method get()", arguments, {"key", "default"}, work);
    const Value& key = reader.value("key");
    if (const Value* found = key.text() ? dict.find(key.text()->bytes()) : nullptr) return *found;
    return reader.given("default") ? *reader.given("default") : Value(None{});
  }
  const Reader reader(fmt::format("the method {}()", name), arguments, {}, work);
  if (name == "items") return pairs_of(dict, work);
  std::vector<Value> found;
  for (const auto& [key, value] : dict.entries) found.push_back(name == "keys" ? Value(key) : value);
  return found;
}

Value names_from(const Arguments& arguments, bool as_namespace, Work& work) {
  std::vector<std::pair<Text, Value>> entries;
  const auto put = [&](const Text& key, const Value& value) {
    const auto same =
        std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first.bytes() == key.bytes(); });
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
  for (auto& [key, value] : entries) names->entries.emplace_back(key.bytes(), std::move(value));
  return names;
}

Value range_of(const Arguments& arguments, Work& work) {
  const Reader reader("range()", arguments, {"first", "second", "step"}, work);
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

bool is_filter(std::string_view name) { return holds(kFilters, name); }
bool is_test(std::string_view name) { return holds(kTests, name); }
bool is_function(std::string_view name) { return holds(kFunctions, name); }
bool is_unsupported_function(std::string_view name) { return holds(kUnsupportedFunctions, name); }
bool has_method(const Value& receiver, std::string_view name) {
  return (receiver.text() && holds(kTextMethods, name)) || (receiver.dict() && holds(kDictMethods, name));
}

void Work::spend(std::uint64_t units) {
  spent_ += std::min(units, kMostWork + 1);
  if (spent_ > kMostWork) stop("the template runs for too long or makes too much");
}

void Work::stop(const std::string& detail) const {
  throw Error(
      {.doing = "render the chat template", .object = file_, .detail = fmt::format("line {}: {}", line, detail)});
}

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Work& work) {
  work.spend(1);
  const std::string what = fmt::format("the filter {}", name);
  if (name == "tojson") return json_of(value, arguments, work);
  if (name == "map") return mapped(value, arguments, work);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return selected(name, value, arguments, work);
  if (name == "indent") return indented(value, arguments, work);
  if (name == "int" || name == "float") return number_of(name, value, arguments, work);
  if (name == "default" || name == "d") {
    const Reader reader(what, arguments, {"default_value", "boolean"}, work);
    const bool missing = value.is_undefined() || (reader.truth_or("boolean", false) && !value.truth());
    return !missing ? value : reader.given("default_value") ? *reader.given("default_value") : Value("");
  }
  if (name == "trim") {
    const Reader reader(what, arguments, {"chars"}, work);
    return text_of(value, work).strip(reader.text_or_none("chars"), true, true);
  }
  if (name == "join") {
    const Reader reader(what, arguments, {"d", "attribute"}, work);
    return joined(value, reader.given("d") ? text_of(*reader.given("d"), work) : Text(), reader.given("attribute"),
                  work);
  }
  if (name == "replace") {
    const Reader reader(what, arguments, {"old", "new", "count"}, work);
    Arguments as_method{.positional = {text_of(reader.value("old"), work), text_of(reader.value("new"), work)}};
    if (reader.given("count") && !reader.given("count")->is_none())
      as_method.positional.push_back(*reader.given("count"));
    return call_on_text(text_of(value, work), "replace", as_method, work);
  }
  const Reader reader(what, arguments, {}, work);
  if (name == "length" || name == "count") return length_of(value, work);
  if (name == "string" || name == "safe") return text_of(value, work);
  if (name == "upper") return text_of(value, work).upper();
  if (name == "lower") return text_of(value, work).lower();
  if (name == "capitalize") return text_of(value, work).capitalize();
  if (name == "abs") {
    if (value.integer() && *value.integer() != INT64_MIN) return std::abs(*value.integer());
    if (value.real()) return std::fabs(*value.real());
    work.stop(fmt::format("abs of {}", value.kind()));
  }
  if (name == "items") {
    if (value.is_undefined()) return std::vector<Value>{};
    if (!value.dict()) work.stop(fmt::format("items of {}, not a dict", value.kind()));
    return pairs_of(*value.dict(), work);
  }
  if (name == "dictsort") {
    if (!value.dict()) work.stop(fmt::format("dictsort of {}, not a dict", value.kind()));
    std::vector<Value> pairs = pairs_of(*value.dict(), work);
    std::stable_sort(pairs.begin(), pairs.end(), [](const Value& a, const Value& b) {
      return a.list()->items[0].text()->lower().bytes() < b.list()->items[0].text()->lower().bytes();
    });
    return pairs;
  }
  if (name == "reverse" && value.text()) {
    Text reversed;
    const auto characters = value.text()->split_to_characters();
    work.spend(characters.size() * 8);
    for (auto one = characters.rbegin(); one != characters.rend(); ++one) reversed.append(*one);
    return reversed;
  }
  std::vector<Value> items = items_of(value, work);
  if (name == "first") return items.empty() ? Value(Undefined{"the first of nothing"}) : items.front();
  if (name == "last") return items.empty() ? Value(Undefined{"the last of nothing"}) : items.back();
  if (name == "reverse") std::reverse(items.begin(), items.end());
  return items;  // list, reverse
}

bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Work& work) {
  work.spend(1);
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
  if (name == "iterable" || name == "sequence")
    return value.text() || value.list() || value.dict() || value.is_undefined();
  if (name == "number") return value.is_number();
  if (name == "integer") return value.integer() != nullptr;
  if (name == "float") return value.real() != nullptr;
  if (name == "boolean") return value.boolean() != nullptr;
  if (name == "true") return value.boolean() && *value.boolean();
  if (name == "false") return value.boolean() && !*value.boolean();
  if (name == "callable") return value.callable() != nullptr;
  return (whole(value) % 2 != 0) == (name == "odd");  // odd, even
}

Value call_method(const Value& receiver, std::string_view name, const Arguments& arguments, Work& work) {
  work.spend(1);
  if (receiver.text() && holds(kTextMethods, name)) return call_on_text(*receiver.text(), name, arguments, work);
  if (receiver.dict() && holds(kDictMethods, name)) return call_on_dict(*receiver.dict(), name, arguments, work);
  work.stop(fmt::format("the method {}() of {} is not supported", name, receiver.kind()));
}

Value call_function(std::string_view name, const Arguments& arguments, Work& work) {
  work.spend(1);
  if (name == "range") return range_of(arguments, work);
  if (name == "namespace" || name == "dict") return names_from(arguments, name == "namespace", work);
  const Reader reader(fmt::format("{}()", name), arguments, {name == "raise_exception" ? "message" : "format"}, work);
  if (name == "strftime_now") return time_as(reader.text("format").bytes(), work);
  work.stop("the template refuses: " + printed(reader.value("message"), work).bytes());  // raise_exception
}

Text printed(const Value& value, Work& work) {
  Text text;
  std::string why;
  if (!append_str(value, text, why)) work.stop(why);
  return text;
}

std::vector<Value> items_of(const Value& value, Work& work) {
  std::vector<Value> items;
  if (const List* list = value.list()) {
    items = list->items;
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, unused] : dict->entries) items.emplace_back(key);
  } else if (const Text* text = value.text()) {
    work.spend(text->size());
    for (Text& character : text->split_to_characters()) items.emplace_back(std::move(character));
  } else if (!value.is_undefined()) {
    work.stop(fmt::format("{} cannot be gone through", value.kind()));
  }
  work.spend(items.size());
  return items;
}

Value member_of(const Value& value, std::string_view name, Work& work) {
  if (value.is_undefined()) work.stop(undefined_words(value));
  if (const Dict* dict = value.dict()) {
    work.spend(dict->entries.size() / 16);
    if (const Value* found = dict->find(name)) return *found;
  } else if (const Namespace* names = value.names()) {
    for (const auto& [key, found] : names->entries) {
      if (key == name) return found;
    }
  } else if (const List* list = value.list()) {  // "0" in the path of a filter
    std::size_t index = 0;
    const auto [end, failure] = std::from_chars(name.data(), name.data() + name.size(), index);
    if (failure == std::errc() && end == name.data() + name.size() && index < list->items.size())
      return list->items[index];
  }
  return Undefined{std::string(name)};
}

bool less(const Value& a, const Value& b, Work& work) {
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() < *b.integer();
    return a.as_double() < b.as_double();
  }
  if (a.text() && b.text()) return a.text()->bytes() < b.text()->bytes();  // UTF-8 keeps the order of code points
  if (a.is_undefined()) work.stop(undefined_words(a));
  if (b.is_undefined()) work.stop(undefined_words(b));
  work.stop(fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

bool equal(const Value& a, const Value& b, Work& work) {
  std::uint64_t left = kMostWork;
  const bool same = equal(a, b, left);
  work.spend(kMostWork - left);
  return same;
}

bool contains(const Value& container, const Value& item, Work& work) {
  if (const Text* text = container.text()) {
    if (!item.text()) work.stop(fmt::format("'in' a string looks for a string, not {}", item.kind()));
    work.spend_bytes(text->size());
    return text->bytes().find(item.text()->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    work.spend(dict->entries.size() / 16);
    return item.text() && dict->find(item.text()->bytes());
  }
  const std::vector<Value> items = items_of(container, work);
  return std::any_of(items.begin(), items.end(), [&](const Value& one) { return equal(one, item, work); });
}

Value storable(Value value, Work& work) {
  if (value.depth() >= kDeepestValue)
    work.stop(value.names() ? "a namespace in another value is not supported" : "lists and dicts are nested too deep");
  return value;
}

}  // namespace nodewright::jinja
