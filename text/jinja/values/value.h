// What an expression of a template is worth, and how Python would print and compare it. Lists and dicts never change
// once made, as in the sandbox that `transformers` renders in; a namespace does.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "text/jinja/values/text.h"

namespace nodewright::jinja {

class Value;
struct Statement;

// What Python has beside lists. A stream is a generator: always true, without a length, an order or a form, and gone
// through once. The views of a dict print as dict_keys([...]) and so on, and have no places.
enum class ListKind : std::uint8_t { list, tuple, stream, keys, values, items };

struct Undefined {
  std::string name;  // of what was looked for
};
struct None {};
struct List;
struct Dict;
struct Namespace;
struct Callable;

// A number as it was written, where its value does not print so: 123456789012345678901, 1e5.
struct WrittenNumber {
  double value = 0;
  std::string text;
  bool is_whole = false;  // without a point or an exponent
};

class Value {
 public:
  Value() : data_(Undefined{}) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}                 // NOLINT: all of these convert
  Value(None none) : data_(none) {}                                           // NOLINT
  Value(bool value) : data_(value) {}                                         // NOLINT
  Value(std::int64_t value) : data_(value) {}                                 // NOLINT
  Value(double value) : data_(value) {}                                       // NOLINT
  Value(Text text) : data_(std::make_shared<const Text>(std::move(text))) {}  // NOLINT
  Value(const char* text) : Value(Text(text)) {}                              // NOLINT
  Value(std::vector<Value> items);                                            // NOLINT
  Value(std::vector<std::pair<Value, Value>> entries);                        // NOLINT
  Value(std::shared_ptr<Namespace> names) : data_(std::move(names)) {}        // NOLINT
  Value(WrittenNumber number) : data_(std::make_shared<const WrittenNumber>(std::move(number))) {}  // NOLINT
  Value(Callable callable);                                                                         // NOLINT

  static Value tuple(std::vector<Value> items);
  static Value list_of(std::vector<Value> items, ListKind kind);

  bool is_undefined() const { return holds<Undefined>(); }
  bool is_none() const { return holds<None>(); }
  const Undefined& undefined() const { return std::get<Undefined>(data_); }
  // Null where the value is something else.
  const bool* boolean() const { return std::get_if<bool>(&data_); }
  const std::int64_t* integer() const { return std::get_if<std::int64_t>(&data_); }
  const double* real() const { return written() ? &written()->value : std::get_if<double>(&data_); }
  const WrittenNumber* written() const { return pointer<const WrittenNumber>(); }
  const Text* text() const { return pointer<const Text>(); }
  const List* list() const { return pointer<const List>(); }
  const Dict* dict() const { return pointer<const Dict>(); }
  Namespace* names() const { return pointer<Namespace>(); }
  const Callable* callable() const { return pointer<const Callable>(); }

  // True, 1 and 1.0 are numbers; nothing else is.
  bool is_number() const { return boolean() || integer() || real(); }
  double as_double() const;

  bool truth() const;
  // Whether it may be a key of a dict, as Python's hash() says.
  bool is_hashable() const;
  // "a string", "a list", ..., for errors.
  std::string_view kind() const;
  // How many lists and dicts are in each other; large for a namespace, which must not be put into anything.
  int depth() const;

 private:
  template <typename T>
  bool holds() const {
    return std::holds_alternative<T>(data_);
  }
  template <typename T>
  T* pointer() const {
    const auto* found = std::get_if<std::shared_ptr<T>>(&data_);
    return found ? found->get() : nullptr;
  }

  std::variant<Undefined, None, bool, std::int64_t, double, std::shared_ptr<const Text>, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, std::shared_ptr<Namespace>, std::shared_ptr<const Callable>,
               std::shared_ptr<const WrittenNumber>>
      data_;
};

inline constexpr int kDeepestValue = 200;

struct List {
  std::vector<Value> items;
  int depth = 1;
  ListKind kind = ListKind::list;
  mutable std::size_t taken = 0;  // of a stream: items that were gone through
};

struct Dict {
  std::vector<std::pair<Value, Value>> entries;  // in the order of the file or the template, keys distinct
  int depth = 1;
  const Value* find(std::string_view key) const;
  // A key of any kind: 1, 1.0 and true are one.
  const Value* find(const Value& key) const;
};

struct Namespace {
  std::vector<std::pair<std::string, Value>> entries;
};

// A function of the language, a method with its object, or a macro.
struct Callable {
  std::string name;
  Value receiver;                    // of a method; else undefined
  const Statement* macro = nullptr;  // in the template that runs
};

// Python's ==. `left` is how many values may still be looked at: a small value may hold the same list many times over.
// At 0 the answer means nothing.
bool equal(const Value& a, const Value& b, std::uint64_t& left);

// Python's str() and repr(), and json.dumps(). False, and `why`, for what has no such form or makes `out` longer than
// 16 MiB.
struct JsonForm {
  int indent = -1;  // spaces of a level; negative: one line
  bool ensure_ascii = false, sort_keys = false;
  std::string between_items = ", ", after_key = ": ";
};
bool append_str(const Value& value, Text& out, std::string& why);
bool append_repr(const Value& value, Text& out, std::string& why);
bool append_json(const Value& value, const JsonForm& form, Text& out, std::string& why);

}  // namespace nodewright::jinja
