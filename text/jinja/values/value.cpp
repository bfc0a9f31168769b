#include "text/jinja/values/value.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/unicode/utf8.h"

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

// The code point that begins at bytes[i] as \uXXXX, of two halves where it is large. `size`: of its bytes.
std::string ascii_escape(std::string_view bytes, std::size_t& size) {
  const Utf8Step step = read_utf8(bytes);
  size = step.size;
  const auto code = static_cast<std::uint32_t>(step.code_point);
  if (code < 0x10000) return fmt::format("\\u{:04x}", code);
  return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + ((code - 0x10000) >> 10), 0xDC00 + ((code - 0x10000) & 0x3FF));
}

void append_quoted(const Text& text, char quote, bool json, Text& out, bool ensure_ascii = false) {
  out.append(std::string(1, quote));
  const std::string& bytes = text.bytes();
  std::size_t done = 0;
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    const auto code = static_cast<unsigned char>(c);
    const bool beyond = ensure_ascii && code >= 0x7F;
    if (!beyond && c != quote && c != '\\' && code >= 0x20 && (json || code != 0x7F)) continue;
    constexpr std::string_view kControls = "\n\r\t\b\f";
    const std::size_t control = json ? kControls.find(c) : kControls.substr(0, 3).find(c);
    std::string escaped = std::string("\\") + c;
    std::size_t size = 1;
    if (beyond) {
      escaped = ascii_escape(std::string_view(bytes).substr(i), size);
    } else if (control != std::string_view::npos) {
      escaped = std::string("\\") + "nrtbf"[control];
    } else if (c != quote && c != '\\') {
      escaped = json ? fmt::format("\\u{:04x}", code) : fmt::format("\\x{:02x}", code);
    }
    out.append(text.part(done, i - done));
    out.append(Text(std::move(escaped), text.mask()[i]));
    done = i + size;
    i = done - 1;
  }
  out.append(text.part(done, bytes.size() - done));
  out.append(std::string(1, quote));
}

bool is_too_long(const Text& out, std::string& why) {
  if (out.size() <= kLongestForm) return false;
  why = fmt::format("a value prints as more than {} bytes", kLongestForm);
  return true;
}

bool append_json_at(const Value& value, const JsonForm& form, int level, Text& out, std::string& why);

// The entries in json.dumps()'s order. False where it has none.
bool json_entries(const Dict& dict, const JsonForm& form, std::vector<const std::pair<Value, Value>*>& entries,
                  std::string& why) {
  for (const auto& entry : dict.entries) entries.push_back(&entry);
  if (!form.sort_keys) return true;
  const bool all_texts = std::ranges::all_of(entries, [](const auto* e) { return e->first.text() != nullptr; });
  if (!all_texts && !std::ranges::all_of(entries, [](const auto* e) { return e->first.is_number(); })) {
    why = "keys of a dict have no order";
    return false;
  }
  std::ranges::stable_sort(entries, [&](const auto* a, const auto* b) {
    return all_texts ? a->first.text()->bytes() < b->first.text()->bytes()
                     : a->first.as_double() < b->first.as_double();
  });
  return true;
}

bool append_json_key(const Value& key, const JsonForm& form, Text& out, std::string& why) {
  if (const Text* text = key.text()) {
    append_quoted(*text, '"', true, out, form.ensure_ascii);
    return true;
  }
  if (!key.is_number() && !key.is_none()) {
    why = fmt::format("{} cannot be a key of JSON", key.kind());
    return false;
  }
  out.append("\"");
  if (!append_json_at(key, form, 0, out, why)) return false;
  out.append("\"");
  return true;
}

void break_line(const JsonForm& form, int level, Text& out) {
  if (form.indent >= 0) out.append("\n" + std::string(static_cast<std::size_t>(form.indent * level), ' '));
}

bool append_json_dict(const Dict& dict, const JsonForm& form, int level, Text& out, std::string& why) {
  std::vector<const std::pair<Value, Value>*> entries;
  if (!json_entries(dict, form, entries, why)) return false;
  out.append("{");
  for (std::size_t i = 0; i < entries.size(); ++i) {
    if (i > 0) out.append(form.between_items);
    break_line(form, level + 1, out);
    if (!append_json_key(entries[i]->first, form, out, why)) return false;
    out.append(form.after_key);
    if (!append_json_at(entries[i]->second, form, level + 1, out, why)) return false;
  }
  if (!entries.empty()) break_line(form, level, out);
  out.append("}");
  return true;
}

bool append_json_at(const Value& value, const JsonForm& form, int level, Text& out, std::string& why) {
  if (is_too_long(out, why)) return false;
  if (value.is_none()) {
    out.append("null");
  } else if (const bool* truth = value.boolean()) {
    out.append(*truth ? "true" : "false");
  } else if (const WrittenNumber* number = value.written()) {
    out.append(Text(number->text, true));
  } else if (const double* real = value.real(); real && !std::isfinite(*real)) {
    out.append(std::isnan(*real) ? "NaN" : *real < 0 ? "-Infinity" : "Infinity");
  } else if (value.is_number()) {
    return append_str(value, out, why);
  } else if (const Text* text = value.text()) {
    append_quoted(*text, '"', true, out, form.ensure_ascii);
  } else if (const List* list = value.list(); list && list->kind <= ListKind::tuple) {
    out.append("[");
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out.append(form.between_items);
      break_line(form, level + 1, out);
      if (!append_json_at(list->items[i], form, level + 1, out, why)) return false;
    }
    if (!list->items.empty()) break_line(form, level, out);
    out.append("]");
  } else if (const Dict* dict = value.dict()) {
    return append_json_dict(*dict, form, level, out, why);
  } else {
    why = fmt::format("{} has no JSON", value.kind());
    return false;
  }
  return true;
}

}  // namespace

Value::Value(std::vector<Value> items) : Value(list_of(std::move(items), ListKind::list)) {}

Value Value::tuple(std::vector<Value> items) { return list_of(std::move(items), ListKind::tuple); }

Value Value::list_of(std::vector<Value> items, ListKind kind) {
  List list{.items = std::move(items), .kind = kind};
  list.depth = depth_over(list.items, [](const Value& item) -> const Value& { return item; });
  Value value;
  value.data_ = std::make_shared<const List>(std::move(list));
  return value;
}

Value::Value(std::vector<std::pair<Value, Value>> entries) {
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
  if (const List* items = list()) return items->kind == ListKind::stream || !items->items.empty();
  if (const Dict* entries = dict()) return !entries->entries.empty();
  return true;
}

bool Value::is_hashable() const {
  if (list() && list()->kind == ListKind::tuple)
    return std::ranges::all_of(list()->items, [](const Value& item) { return item.is_hashable(); });
  return !dict() && (!list() || list()->kind == ListKind::stream);
}

std::string_view Value::kind() const {
  if (const WrittenNumber* number = written()) return number->is_whole ? "an integer" : "a float";
  if (list() && list()->kind == ListKind::stream) return "a generator";
  if (list() && list()->kind > ListKind::tuple) return "a view of a dict";
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
    if (name.text() && name.text()->bytes() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.text()) return find(key.text()->bytes());
  for (const auto& [name, value] : entries) {
    std::uint64_t left = 1000;  // keys are small
    if (!name.text() && equal(name, key, left)) return &value;
  }
  return nullptr;
}

bool equal(const Value& a, const Value& b, std::uint64_t& left) {
  if (left == 0) return false;
  --left;
  if (a.is_number() && b.is_number()) {
    if (a.integer() && b.integer()) return *a.integer() == *b.integer();
    if (a.written() && b.written() && a.written()->is_whole && b.written()->is_whole)
      return a.written()->text == b.written()->text;
    return a.as_double() == b.as_double();
  }
  if (a.text() && b.text()) return a.text()->bytes() == b.text()->bytes();
  if (a.list() && b.list() && a.list()->kind != b.list()->kind) return false;
  if (a.list() && b.list())
    return a.list() == b.list() ||
           std::equal(a.list()->items.begin(), a.list()->items.end(), b.list()->items.begin(), b.list()->items.end(),
                      [&](const Value& one, const Value& other) { return equal(one, other, left); });
  if (a.dict() && b.dict()) {
    if (a.dict()->entries.size() != b.dict()->entries.size()) return false;
    return std::all_of(a.dict()->entries.begin(), a.dict()->entries.end(), [&](const auto& entry) {
      const Value* other = b.dict()->find(entry.first);
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
  } else if (const WrittenNumber* number = value.written()) {
    out.append(Text(number->text, true));
  } else if (const double* real = value.real()) {
    out.append(python_float(*real));
  } else if (const Text* text = value.text()) {
    const bool single = text->bytes().find('\'') != std::string::npos && text->bytes().find('"') == std::string::npos;
    append_quoted(*text, single ? '"' : '\'', false, out);
  } else if (const List* list = value.list()) {
    if (list->kind == ListKind::stream) {
      why = "a generator prints as an address: | list makes a list of it";
      return false;
    }
    constexpr const char* kOpen[] = {"[", "(", "", "dict_keys([", "dict_values([", "dict_items(["};
    out.append(kOpen[static_cast<int>(list->kind)]);
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) out.append(", ");
      if (!append_repr(list->items[i], out, why)) return false;
    }
    out.append(list->kind == ListKind::list   ? "]"
               : list->kind > ListKind::tuple ? "])"
               : list->items.size() == 1      ? ",)"
                                              : ")");
  } else if (const Dict* dict = value.dict()) {
    out.append("{");
    for (std::size_t i = 0; i < dict->entries.size(); ++i) {
      if (i > 0) out.append(", ");
      if (!append_repr(dict->entries[i].first, out, why)) return false;
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
