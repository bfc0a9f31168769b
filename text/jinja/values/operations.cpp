#include "text/jinja/values/operations.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

namespace nodewright::jinja {
namespace {

Value concatenated(const Text& left, const Text& right, Work& work) {
  work.spend_bytes(left.size() + right.size());
  Text text = left;
  text.append(right);
  return text;
}

// A comparison of long strings, which many places of a list may share.
void pay_for_texts(const Value& a, const Value& b, Work& work) {
  if (a.text() && b.text()) work.spend(std::min(a.text()->size(), b.text()->size()) / 256);
}

// + of strings: Markup escapes the other.
Value added(const Text& left, const Text& right, Work& work) {
  if (!left.is_markup() && !right.is_markup()) return concatenated(left, right, work);
  return concatenated(left.escaped(), right.escaped(), work);
}

Value repeated(const Text& text, const Value& count, Work& work) {
  const std::int64_t times = std::max<std::int64_t>(static_cast<std::int64_t>(std::min(count.as_double(), 1e9)), 0);
  work.spend(static_cast<std::uint64_t>(times));
  work.spend_bytes(static_cast<std::uint64_t>(times) * text.size());
  Text result;
  for (std::int64_t i = 0; i < times; ++i) result.append(text);
  return result.as_markup(text.is_markup());
}

Value arithmetic(char sign, bool floors, const Value& left, const Value& right, Work& work) {
  const bool whole = !left.real() && !right.real();
  const double a = left.as_double(), b = right.as_double();
  if ((sign == '/' || sign == '%') && b == 0) work.stop("a division by 0");
  if (!whole || (sign == '/' && !floors)) {
    switch (sign) {
      case '+':
        return a + b;
      case '-':
        return a - b;
      case '*':
        return a * b;
      case '/':
        return floors ? std::floor(a / b) : a / b;
      default:
        return a - b * std::floor(a / b);
    }
  }
  const auto integer_of = [](const Value& v) { return v.integer() ? *v.integer() : std::int64_t{*v.boolean()}; };
  const std::int64_t m = integer_of(left), n = integer_of(right);
  std::int64_t result = 0;
  bool overflow = false;
  if (sign == '+') {
    overflow = __builtin_add_overflow(m, n, &result);
  } else if (sign == '-') {
    overflow = __builtin_sub_overflow(m, n, &result);
  } else if (sign == '*') {
    overflow = __builtin_mul_overflow(m, n, &result);
  } else if (n == -1) {  // INT64_MIN / -1 does not fit
    overflow = sign == '/' && __builtin_sub_overflow(std::int64_t{0}, m, &result);
  } else {  // Python rounds down
    const bool down = m % n != 0 && (m < 0) != (n < 0);
    result = sign == '/' ? m / n - down : m % n + (down ? n : 0);
  }
  if (overflow) work.stop("a number is too large");
  return result;
}

}  // namespace

Text printed(const Value& value, Work& work) {
  Text text;
  std::string why;
  if (!append_str(value, text, why)) work.stop(why);
  return text;
}

std::vector<Value> items_of(const Value& value, Work& work) {
  std::vector<Value> items;
  if (const List* list = value.list()) {
    items.assign(list->items.begin() + static_cast<std::ptrdiff_t>(list->taken), list->items.end());
    if (list->kind == ListKind::stream) list->taken = list->items.size();
  } else if (const Dict* dict = value.dict()) {
    for (const auto& [key, unused] : dict->entries) items.push_back(key);
  } else if (const Text* text = value.text()) {
    work.spend(text->size());
    for (Text& character : text->split_to_characters()) items.emplace_back(std::move(character));
  } else if (!value.is_undefined()) {
    work.stop(fmt::format("{} cannot be gone through", value.kind()));
  }
  work.spend(items.size());
  return items;
}

std::vector<Value> pairs_of(const Dict& dict, Work& work) {
  work.spend(dict.entries.size());
  std::vector<Value> pairs;
  for (const auto& [key, value] : dict.entries) pairs.push_back(Value::tuple({key, value}));
  return pairs;
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
  }
  return Undefined{std::string(name)};
}

Value subscript_of(const Value& value, const Value& key, Work& work) {
  if (value.is_undefined() || (key.text() && !value.list()))
    return member_of(value, key.text() ? key.text()->bytes() : "", work);
  if (const Dict* dict = value.dict()) {
    work.spend(dict->entries.size() / 16);
    const Value* found = dict->find(key);
    return found ? *found : Value(Undefined{"a key"});
  }
  if (value.list() && value.list()->kind > ListKind::tuple) return Undefined{"an index"};
  const std::int64_t* index = key.integer();
  const bool is_text = value.text() != nullptr;
  if (!index || !(value.list() || is_text)) return Undefined{"an index"};
  const auto size = is_text ? value.text()->characters() : static_cast<std::int64_t>(value.list()->items.size());
  const std::int64_t at = *index < 0 ? *index + size : *index;
  if (at < 0 || at >= size) return Undefined{fmt::format("index {} of {} items", *index, size)};
  if (!is_text) return value.list()->items[static_cast<std::size_t>(at)];
  return items_of(value, work)[static_cast<std::size_t>(at)];
}

Value slice_of(const Value& value, const SliceBounds& bounds, Work& work) {
  if (value.is_undefined()) member_of(value, "", work);  // the error that names it
  if (!value.text() && !(value.list() && value.list()->kind <= ListKind::tuple)) return Undefined{"a slice"};
  const std::vector<Value> items = items_of(value, work);
  const auto size = static_cast<std::int64_t>(items.size());
  const std::int64_t step = bounds.step.value_or(1);
  if (step == 0) work.stop("the step of a slice is 0");
  const auto clamp = [&](std::optional<std::int64_t> bound, std::int64_t otherwise) {
    if (!bound) return otherwise;
    const std::int64_t at = *bound < 0 ? *bound + size : *bound;
    return step > 0 ? std::clamp<std::int64_t>(at, 0, size) : std::clamp<std::int64_t>(at, -1, size - 1);
  };
  std::vector<Value> taken;
  const std::int64_t end = clamp(bounds.end, step > 0 ? size : -1);
  for (std::int64_t i = clamp(bounds.first, step > 0 ? 0 : size - 1); step > 0 ? i < end : i > end;) {
    taken.push_back(items[static_cast<std::size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (value.list()) return Value::list_of(std::move(taken), value.list()->kind);
  Text text;
  for (const Value& character : taken) text.append(*character.text());
  return text.as_markup(value.text()->is_markup());
}

Text joined(const Value& value, const Text& between, const Value* attribute, Work& work) {
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

bool less(const Value& a, const Value& b, Work& work) {
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() < *b.integer();
    return a.as_double() < b.as_double();
  }
  pay_for_texts(a, b, work);
  if (a.text() && b.text()) return a.text()->bytes() < b.text()->bytes();  // UTF-8 keeps the order of code points
  if (a.list() && b.list() && a.list()->kind == b.list()->kind && a.list()->kind <= ListKind::tuple) {
    const auto &x = a.list()->items, &y = b.list()->items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i], work)) return less(x[i], y[i], work);
    }
    return x.size() < y.size();
  }
  if (a.is_undefined()) work.stop(undefined_words(a));
  if (b.is_undefined()) work.stop(undefined_words(b));
  work.stop(fmt::format("{} and {} have no order", a.kind(), b.kind()));
}

bool equal(const Value& a, const Value& b, Work& work) {
  pay_for_texts(a, b, work);
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
    if (!item.is_hashable()) work.stop(fmt::format("{} cannot be a key of a dict", item.kind()));
    return dict->find(item) != nullptr;
  }
  const List* stream = container.list() && container.list()->kind == ListKind::stream ? container.list() : nullptr;
  const std::size_t before = stream ? stream->taken : 0;
  const std::vector<Value> items = items_of(container, work);
  const auto found = std::ranges::find_if(items, [&](const Value& one) { return equal(one, item, work); });
  if (stream && found != items.end()) stream->taken = before + static_cast<std::size_t>(found - items.begin()) + 1;
  return found != items.end();
}

bool compares(const Value& left, std::string_view sign, const Value& right, Work& work) {
  if (sign == "==") return equal(left, right, work);
  if (sign == "!=") return !equal(left, right, work);
  if (sign == "<") return less(left, right, work);
  if (sign == ">") return less(right, left, work);
  if (sign == "<=") return less(left, right, work) || equal(left, right, work);
  if (sign == ">=") return less(right, left, work) || equal(left, right, work);
  return contains(right, left, work) == (sign == "in");
}

Value unary(std::string_view sign, const Value& value, Work& work) {
  if (sign == "not") return !value.truth();
  if (!value.is_number()) work.stop(fmt::format("'{}' of {}", sign, value.kind()));
  if (value.real()) return sign == "-" ? -*value.real() : *value.real();
  const std::int64_t whole = value.integer() ? *value.integer() : *value.boolean();
  std::int64_t result = whole;
  if (sign == "-" && __builtin_sub_overflow(std::int64_t{0}, whole, &result)) work.stop("a number is too large");
  return result;
}

Value binary(const Value& left, std::string_view sign, const Value& right, Work& work) {
  if (sign == "~") return concatenated(printed(left, work).as_markup(false), printed(right, work), work);
  if (sign == "+" && left.text() && right.text()) return added(*left.text(), *right.text(), work);
  if (sign == "+" && left.list() && right.list() && left.list()->kind == right.list()->kind &&
      left.list()->kind <= ListKind::tuple) {
    std::vector<Value> items = items_of(left, work);
    const std::vector<Value> more = items_of(right, work);
    items.insert(items.end(), more.begin(), more.end());
    return Value::list_of(std::move(items), left.list()->kind);
  }
  if (sign == "*" && left.text() && (right.integer() || right.boolean())) return repeated(*left.text(), right, work);
  if (sign == "*" && right.text() && (left.integer() || left.boolean())) return repeated(*right.text(), left, work);
  if (left.is_number() && right.is_number()) return arithmetic(sign[0], sign == "//", left, right, work);
  if (left.is_undefined() || right.is_undefined()) work.stop(undefined_words(left.is_undefined() ? left : right));
  work.stop(fmt::format("'{}' of {} and {} is not supported", sign, left.kind(), right.kind()));
}

Value storable(Value value, Work& work) {
  if (value.depth() >= kDeepestValue)
    work.stop(value.names() ? "a namespace in another value is not supported" : "lists and dicts are nested too deep");
  return value;
}

std::string undefined_words(const Value& value) { return fmt::format("'{}' is undefined", value.undefined().name); }

}  // namespace nodewright::jinja
