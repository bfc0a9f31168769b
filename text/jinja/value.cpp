#include "text/jinja/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace nodewright::jinja {
namespace {

constexpr std::size_t kLongestForm = 16 << 20;

template <typename Range, typename Of>
int depth_over(const Range& range, Of of) {
  int depth = 0;
  for (const auto& one : range) depth = std::max(depth, of(one).depth());
  return depth + 1;
}

// Python's repr of a float: the shortest digits that read back, an exponent below 1e-4 and from 1e16 on.
std::string python_float(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[40];
  const double size = std::fabs(value);
  const bool exponent = size != 0 && (size < 1e-4 || size >= 1e16);
  const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                 exponent ? std::chars_format::scientific : std::chars_format::fixed)
                       .ptr;
  std::string text(digits, end);
  if (!exponent && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_quoted(const Text& text, char quote, bool json, Text& out) {
  out.append(std::string(1, quote));
  const std::string& bytes = text.bytes();
  std::size_t done = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const auto code = static_cast<unsigned char>(c);
    if (c != quote && c != '\\' && code >= 0x20 && (json || code != 0x7F)) continue;
    constexpr std::string_view kControls = "\n\r\t\b\f";
    const std::size_t control = json ? kControls.find(c) : kControls.substr(0, 3).find(c);
    std::string escaped = std::string("\\") + c;
    if (control != std::string_view::npos) {
      escaped = std::string("\\") + "nrtbf"[control];
    } else if (c != quote && c != '\\') {
      escaped = json ? fmt::format("\\u{:04x}", code) : fmt::format("\\x{:02x}", code);
    }
    out.append(text.part(done, i - done));
    out.append(Text(std::move(escaped), text.mask()[i] == Text::kUser));
    done = i + 1;
  }
  out.append(text.part(done, bytes.size() - done));
  out.append(std::string(1, quote));
}

bool is_too_long(const Text& out, std::string& why) {
  if (out.size() <= kLongestForm) return false;
  why = fmt::format("a value prints as more than {} bytes", kLongestForm);
  return true;
}

bool append_json_at(const Value& value, const JsonForm& form, int level, Text& out, std::string& why) {
  if (is_too_long(out, why)) return false;
  const auto break_line = [&](int to) {
    if (form.indent >= 0) out.append("\n" + std::string(static_cast<std::size_t>(form.indent) * to, ' '));
  };
  if (value.is_none()) {
    out.append("null");
  } else if (const bool* truth = value.boolean()) {
    out.append(*truth ? "true" : "false");
  } else if (const double* real = value.real(); real && !std::isfinite(*real)) {
    out.append(std::isnan(*real) ? "NaN" : *real < 0 ? "-Infinity" : "Infinity");
  } else if (value.is_number()) {
    return append_str(value, out, why);
  } else if (const Text* text = value.text()) {
    append_quoted(*text, '"', true, out);
  } else if (const List* list = value.list()) {
    out.append("[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out.append(form.between_items);
      break_line(level + 1);
      if (!append_json_at(list->items[i], form, level + 1, out, why)) return false;
    }
    if (!list->items.empty()) break_line(level);
    out.append("]");
  } else if (const Dict* dict = value.dict()) {
    out.append("{");
    for (std::size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out.append(form.between_items);
      break_line(level + 1);
      append_quoted(dict->entries[i].first, '"', true, out);
      out.append(form.after_key);
      if (!append_json_at(dict->entries[i].second, form, level + 1, out, why)) return false;
    }
    if (!dict->entries.empty()) break_line(level);
    out.append("}");
  } else {
    why = fmt::format("{} has no JSON", value.kind());
    return false;
  }
  return true;
}

}  // namespace

Value::Value(std::vector<Value> items) {
  List list{std::move(items)};
  list.depth = depth_over(list.items, [](const Value& item) -> const Value& { return item; });
  data_ = std::make_shared<const List>(std::move(list));
}

Value Value::tuple(std::vector<Value> items) {
  Value value(std::move(items));
  List list = *value.list();
  list.is_tuple = true;
  value.data_ = std::make_shared<const List>(std::move(list));
  return value;
}

Value::Value(std::vector<std::pair<Text, Value>> entries) {
  Dict dict{std::move(entries)};
  dict.depth = depth_over(dict.entries, [](const auto& entry) -> const Value& { return entry.second; });
  data_ = std::make_shared<const Dict>(std::move(dict));
}

Value::Value(Callable callable) : data_(std::make_shared<const Callable>(std::move(callable))) {}

double Value::as_double() const {
  if (const bool* truth = boolean()) return *truth ? 1 : 0;
  if (const std::int64_t* whole = integer()) return static_cast<double>(*whole);
  return *real();
}

bool Value::truth() const {
  if (is_undefined() || is_none()) return false;
  if (is_number()) return as_double() != 0;
  if (const Text* string = text()) return !string->empty();
  if (const List* items = list()) return !items->items.empty();
  if (const Dict* entries = dict()) return !entries->entries.empty();
  return true;
}

std::string_view Value::kind() const {
  static constexpr std::string_view kKinds[] = {
      "an undefined value", "none",   "a boolean", "an integer",  "a float",
      "a string",           "a list", "a dict",    "a namespace", "a function"};
  return kKinds[data_.index()];
}

int Value::depth() const {
  if (const List* items = list()) return items->depth;
  if (const Dict* entries = dict()) return entries->depth;
  if (const Callable* function = callable()) return function->receiver.depth() + 1;
  return names() ? kDeepestValue + 1 : 0;
}

const Value* Dict::find(std::string_view key) const {
  for (const auto& [name, value] : entries) {
    if (name.bytes() == key) return &value;
  }
  return nullptr;
}

bool equal(const Value& a, const Value& b, std::uint64_t& left) {
  if (left == 0) return false;
  --left;
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() == *b.integer();
    return a.as_double() == b.as_double();
  }
  if (a.text() && b.text()) return a.text()->bytes() == b.text()->bytes();
  if (a.list() && b.list())
    return std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(), b.list()->items.end(),
                      [&](const Value& one, const Value& other) { return equal(one, other, left); });
  if (a.dict() && b.dict()) {
    if (a.dict()->entries.size() != b.dict()->entries.size()) return false;
    return std::all_of(a.dict()->entries.begin(), a.dict()->entries.end(), [&](const auto& entry) {
      const Value* other = b.dict()->find(entry.first.bytes());
      return other && equal(entry.second, *other, left);
    });
  }
  if (a.names() || b.names()) return a.names() == b.names();
  return (a.is_undefined() && b.is_undefined()) || (a.is_none() && b.is_none());
}

bool append_str(const Value& value, Text& out, std::string& why) {
  if (const Text* text = value.text()) {
    out.append(*text);
    return true;
  }
  return value.is_undefined() || append_repr(value, out, why);
}

bool append_repr(const Value& value, Text& out, std::string& why) {
  if (is_too_long(out, why)) return false;
  if (value.is_undefined()) {
    out.append("Undefined");
  } else if (value.is_none()) {
    out.append("None");
  } else if (const bool* truth = value.boolean()) {
    out.append(*truth ? "True" : "False");
  } else if (const std::int64_t* whole = value.integer()) {
    out.append(std::to_string(*whole));
  } else if (const double* real = value.real()) {
    out.append(python_float(*real));
  } else if (const Text* text = value.text()) {
    const bool single = text->bytes().find('\'') != std::string::npos && text->bytes().find('"') == std::string::npos;
    append_quoted(*text, single ? '"' : '\'', false, out);
  } else if (const List* list = value.list()) {
    out.append(list->is_tuple ? "(" : "[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out.append(", ");
      if (!append_repr(list->items[i], out, why)) return false;
    }
    out.append(!list->is_tuple ? "]" : list->items.size() == 1 ? ",)" : ")");
  } else if (const Dict* dict = value.dict()) {
    out.append("{");
    for (std::size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out.append(", ");
      append_repr(Value(dict->entries[i].first), out, why);
      out.append(": ");
      if (!append_repr(dict->entries[i].second, out, why)) return false;
    }
    out.append("}");
  } else {
    why = fmt::format("{} cannot be printed", value.kind());
    return false;
  }
  return true;
}

bool append_json(const Value& value, const JsonForm& form, Text& out, std::string& why) {
  return append_json_at(value, form, 0, out, why);
}

}  // namespace nodewright::jinja
