// The filters that order and compare values: sort, dictsort, unique, min, max; and how filters look up an attribute of
// an item.
#pragma once

#include "text/jinja/builtins/arguments.h"
#include "text/jinja/values/value.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {

// "a.b.0" or 3 of a filter's attribute: digits are places. Throws Error through `work` where the path leads nowhere.
Value member_at(Value value, const Value& path, Work& work);

// All throw Error through `work`: values without an order, a wrong argument.
Value sorted(const Value& value, const Arguments& arguments, Work& work);
Value sorted_items(const Value& value, const Arguments& arguments, Work& work);
Value distinct(const Value& value, const Arguments& arguments, Work& work);
Value extreme(const Value& value, bool largest, const Arguments& arguments, Work& work);

}  // namespace nodewright::jinja
