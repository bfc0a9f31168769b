// What a template does with values of any type: prints them, goes through them, looks into them, compares them and
// calculates, as Python does. What takes long is paid for.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/jinja/values/value.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {

// All throw Error through `work`: a value of the wrong type, something that is undefined, a number that is too large.

// What {{ value }} prints.
Text printed(const Value& value, Work& work);
// What a loop sees: a dict's keys, a string's characters, nothing of an undefined value.
std::vector<Value> items_of(const Value& value, Work& work);
// The entries of a dict as tuples of key and value.
std::vector<Value> pairs_of(const Dict& dict, Work& work);
// value.name and value["name"]: an undefined value where there is none; of an undefined value an error.
Value member_of(const Value& value, std::string_view name, Work& work);
// value[key], with an integer from the end where it is negative; an undefined value where there is none.
Value subscript_of(const Value& value, const Value& key, Work& work);
// value[first:end:step] of a list or a string; None is no bound.
struct SliceBounds {
  std::optional<std::int64_t> first, end, step;
};
Value slice_of(const Value& value, const SliceBounds& bounds, Work& work);
// The printed items with `between` them; of each item its member `attribute` where that is not null.
Text joined(const Value& value, const Text& between, const Value* attribute, Work& work);

// < of Python, for numbers and strings.
bool less(const Value& a, const Value& b, Work& work);
bool equal(const Value& a, const Value& b, Work& work);
bool contains(const Value& container, const Value& item, Work& work);
// == != < > <= >= in, not in.
bool compares(const Value& left, std::string_view sign, const Value& right, Work& work);

// not, -, +.
Value unary(std::string_view sign, const Value& value, Work& work);
// + - * / // % ~.
Value binary(const Value& left, std::string_view sign, const Value& right, Work& work);

// Refuses a value that is nested too deep to be put into another.
Value storable(Value value, Work& work);
// "'name' is undefined".
std::string undefined_words(const Value& value);

}  // namespace nodewright::jinja
