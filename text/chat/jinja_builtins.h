// The filters, tests, methods and functions of the language that chat templates use, as Jinja 3.1 and Python define
// them. What is not here is refused by name.
#pragma once

#include <cstdint>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/jinja_value.h"

namespace nodewright::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
// A function that Jinja has and this does not.
bool is_unsupported_function(std::string_view name);
// A function that every template may call: range, namespace, dict, raise_exception, strftime_now.
bool is_function(std::string_view name);
// A method that a value of this type has.
bool has_method(const Value& receiver, std::string_view name);

// What a rendering may still do, and where it is: whoever makes something large pays first.
class Work {
 public:
  Work(std::string file, std::time_t now) : file_(std::move(file)), now_(now) {}

  // A unit is about one evaluated expression, or 4 bytes made. Throws Error beyond 5 million in all.
  void spend(std::uint64_t units);
  void spend_bytes(std::uint64_t bytes) { spend(bytes / 4 + 1); }

  // Throws Error naming the template, the current line and `detail`.
  [[noreturn]] void stop(const std::string& detail) const;

  std::time_t now() const { return now_; }

  int line = 0;

 private:
  std::string file_;
  std::time_t now_;
  std::uint64_t spent_ = 0;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> named;
};

// All throw Error through `work`: a value of the wrong type, a wrong argument, something that is undefined.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Work& work);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Work& work);
Value call_method(const Value& receiver, std::string_view name, const Arguments& arguments, Work& work);
Value call_function(std::string_view name, const Arguments& arguments, Work& work);

// What {{ value }} prints.
Text printed(const Value& value, Work& work);
// What a loop sees: a dict's keys, a string's characters, nothing of an undefined value.
std::vector<Value> items_of(const Value& value, Work& work);
// value.name and value["name"]: an undefined value where there is none; of an undefined value an error.
Value member_of(const Value& value, std::string_view name, Work& work);
// < of Python, for numbers and strings.
bool less(const Value& a, const Value& b, Work& work);
bool equal(const Value& a, const Value& b, Work& work);
bool contains(const Value& container, const Value& item, Work& work);
// Refuses a value that is nested too deep to be put into another.
Value storable(Value value, Work& work);

}  // namespace nodewright::jinja
