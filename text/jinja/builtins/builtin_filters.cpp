// The filters: what stands behind |.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "text/jinja/builtins/builtins.h"
#include "text/jinja/builtins/order_filters.h"
#include "text/jinja/values/operations.h"

namespace nodewright::jinja {
namespace {

constexpr auto kFilters = std::to_array<std::string_view>(
    {"abs",    "capitalize",  "count",  "d",      "default", "dictsort",   "e",       "escape",  "first",
     "float",  "forceescape", "indent", "int",    "items",   "join",       "last",    "length",  "list",
     "lower",  "map",         "max",    "min",    "reject",  "rejectattr", "replace", "reverse", "safe",
     "select", "selectattr",  "sort",   "string", "tojson",  "trim",       "unique",  "upper"});

// The filters that take any value as its printed text; Markup stays Markup.
Text text_of(const Value& value, Work& work) {
  Text text = value.text() ? *value.text() : printed(value, work);
  work.spend_bytes(text.size());
  return text;
}

std::int64_t length_of(const Value& value, Work& work) {
  if (const Text* text = value.text()) return text->characters();
  if (const List* list = value.list(); list && list->kind != ListKind::stream)
    return static_cast<std::int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<std::int64_t>(dict->entries.size());
  if (value.is_undefined()) return 0;
  work.stop(fmt::format("{} has no length", value.kind()));
}

Value json_of(const Value& value, const Arguments& arguments, Work& work) {
  const ArgumentReader reader("the filter tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"},
                              work);
  JsonForm form;
  if (reader.given("indent") && !reader.given("indent")->is_none()) {
    const std::int64_t indent = reader.integer_or("indent", 0);
    if (indent < 0 || indent > 64)
      work.stop(fmt::format("an indent of {} of the filter tojson is not supported", indent));
    form = {.indent = static_cast<int>(indent), .between_items = ","};
  }
  form.ensure_ascii = reader.truth_or("ensure_ascii", false);
  form.sort_keys = reader.truth_or("sort_keys", false);
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

// What map, select and reject go through: nothing where the value counts as false, none among it.
std::vector<Value> items_if_true(const Value& value, Work& work) {
  return value.truth() ? items_of(value, work) : std::vector<Value>();
}

// select, reject, selectattr, rejectattr.
Value selected(std::string_view filter, const Value& value, const Arguments& arguments, Work& work) {
  const bool by_attribute = filter.ends_with("attr");
  const bool keeps = filter.starts_with("select");
  const std::size_t first = by_attribute ? 1 : 0;
  if (by_attribute && arguments.positional.empty()) work.stop(fmt::format("the filter {} needs a name", filter));
  const bool has_test = arguments.positional.size() > first;
  const std::string test = has_test ? name_at(arguments, first, filter, work) : "";
  if (has_test && !is_test(test)) work.stop(fmt::format("the test '{}' is not supported", test));
  const Arguments rest = rest_of(arguments, first + 1);
  std::vector<Value> kept;
  for (const Value& item : items_if_true(value, work)) {
    const Value looked_at = by_attribute ? member_at(item, arguments.positional[0], work) : item;
    const bool passes = has_test ? apply_test(test, looked_at, rest, work) : looked_at.truth();
    if (passes == keeps) kept.push_back(item);
  }
  return Value::list_of(std::move(kept), ListKind::stream);
}

Value mapped(const Value& value, const Arguments& arguments, Work& work) {
  std::vector<Value> results;
  if (arguments.positional.empty()) {
    const ArgumentReader reader("the filter map", arguments, {"attribute", "default"}, work);
    for (const Value& item : items_if_true(value, work)) {
      Value found = member_at(item, reader.value("attribute"), work);
      if (found.is_undefined() && reader.given("default")) found = *reader.given("default");
      results.push_back(std::move(found));
    }
    return Value::list_of(std::move(results), ListKind::stream);
  }
  const std::string& filter = name_at(arguments, 0, "map", work);
  if (filter == "map") work.stop("the filter map of the filter map is not supported");
  const Arguments rest = rest_of(arguments, 1);
  for (const Value& item : items_if_true(value, work)) results.push_back(apply_filter(filter, item, rest, work));
  return Value::list_of(std::move(results), ListKind::stream);
}

Value indented(const Value& value, const Arguments& arguments, Work& work) {
  const ArgumentReader reader("the filter indent", arguments, {"width", "first", "blank"}, work);
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
  return result.as_markup(value.text() && value.text()->is_markup());
}

// int() and float() of a string, or the default.
Value number_of(std::string_view filter, const Value& value, const Arguments& arguments, Work& work) {
  const ArgumentReader reader(fmt::format("the filter {}", filter), arguments, {"default"}, work);
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

Value replaced(const Value& value, const ArgumentReader& reader, Work& work) {
  Arguments as_method{.positional = {text_of(reader.value("old"), work), text_of(reader.value("new"), work)}};
  if (reader.given("count") && !reader.given("count")->is_none())
    as_method.positional.push_back(*reader.given("count"));
  return call_text_method(text_of(value, work).as_markup(false), "replace", as_method, work);
}

Value absolute(const Value& value, Work& work) {
  if (value.integer() && *value.integer() != INT64_MIN) return std::abs(*value.integer());
  if (value.real()) return std::fabs(*value.real());
  work.stop(fmt::format("abs of {}", value.kind()));
}

Value dict_items(const Value& value, Work& work) {
  if (value.is_undefined()) return Value::list_of({}, ListKind::stream);
  if (!value.dict()) work.stop(fmt::format("items of {}, not a dict", value.kind()));
  return Value::list_of(pairs_of(*value.dict(), work), ListKind::stream);
}

Value reversed(const Value& value, Work& work) {
  if (value.text()) {
    Text text;
    const auto characters = value.text()->split_to_characters();
    work.spend(characters.size() * 8);
    for (auto one = characters.rbegin(); one != characters.rend(); ++one) text.append(*one);
    return text;
  }
  if (value.list() && value.list()->kind == ListKind::stream) work.stop("reverse of a generator");
  std::vector<Value> items = items_of(value, work);
  std::reverse(items.begin(), items.end());
  return Value::list_of(std::move(items), ListKind::stream);
}

// The filters that take no argument.
Value filtered(std::string_view name, const Value& value, Work& work) {
  if (name == "length" || name == "count") return length_of(value, work);
  if (name == "string") return text_of(value, work);
  if (name == "safe") return text_of(value, work).as_markup();
  if (name == "escape" || name == "e") return text_of(value, work).escaped();
  if (name == "forceescape") return text_of(value, work).as_markup(false).escaped();
  if (name == "upper") return text_of(value, work).upper();
  if (name == "lower") return text_of(value, work).lower();
  if (name == "capitalize") return text_of(value, work).capitalize();
  if (name == "abs") return absolute(value, work);
  if (name == "items") return dict_items(value, work);
  if (name == "reverse") return reversed(value, work);
  const List* stream = value.list() && value.list()->kind == ListKind::stream ? value.list() : nullptr;
  if (name == "last" && stream) work.stop("last of a generator");
  const std::size_t before = stream ? stream->taken : 0;
  std::vector<Value> items = items_of(value, work);
  if (name == "first") {
    if (stream) stream->taken = std::min(before + 1, stream->items.size());
    return items.empty() ? Value(Undefined{"the first of nothing"}) : items.front();
  }
  if (name == "last") return items.empty() ? Value(Undefined{"the last of nothing"}) : items.back();
  return items;  // list
}

}  // namespace

bool is_filter(std::string_view name) { return std::ranges::find(kFilters, name) != kFilters.end(); }

Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Work& work) {
  work.spend(1);
  if (!is_filter(name)) work.stop(fmt::format("the filter '{}' is not supported", name));
  if (name == "tojson") return json_of(value, arguments, work);
  if (name == "map") return mapped(value, arguments, work);
  if (name == "sort") return sorted(value, arguments, work);
  if (name == "dictsort") return sorted_items(value, arguments, work);
  if (name == "unique") return distinct(value, arguments, work);
  if (name == "min" || name == "max") return extreme(value, name == "max", arguments, work);
  if (name == "select" || name == "reject" || name == "selectattr" || name == "rejectattr")
    return selected(name, value, arguments, work);
  if (name == "indent") return indented(value, arguments, work);
  if (name == "int" || name == "float") return number_of(name, value, arguments, work);
  const std::string what = fmt::format("the filter {}", name);
  if (name == "default" || name == "d") {
    const ArgumentReader reader(what, arguments, {"default_value", "boolean"}, work);
    const bool missing = value.is_undefined() || (reader.truth_or("boolean", false) && !value.truth());
    return !missing ? value : reader.given("default_value") ? *reader.given("default_value") : Value("");
  }
  if (name == "trim") {
    const ArgumentReader reader(what, arguments, {"chars"}, work);
    return text_of(value, work).strip(reader.text_or_none("chars"), true, true);
  }
  if (name == "join") {
    const ArgumentReader reader(what, arguments, {"d", "attribute"}, work);
    return joined(value, reader.given("d") ? text_of(*reader.given("d"), work) : Text(), reader.given("attribute"),
                  work);
  }
  if (name == "replace") return replaced(value, ArgumentReader(what, arguments, {"old", "new", "count"}, work), work);
  const ArgumentReader none(what, arguments, {}, work);
  return filtered(name, value, work);
}

}  // namespace nodewright::jinja
