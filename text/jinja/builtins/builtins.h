// The filters, tests, methods and functions of the language that chat templates use, as Jinja 3.1 and Python define
// them; each group has a source of its own. What is not here is refused by name.
#pragma once

#include <string_view>

#include "text/jinja/builtins/arguments.h"
#include "text/jinja/values/value.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {

bool is_filter(std::string_view name);
bool is_test(std::string_view name);
// A function that Jinja has and this does not.
bool is_unsupported_function(std::string_view name);
// A function that every template may call: range, namespace, dict, raise_exception, strftime_now.
bool is_function(std::string_view name);
// A method that a value of this type has.
bool has_method(const Value& receiver, std::string_view name);

// All throw Error through `work`: a value of the wrong type, a wrong argument, something that is undefined.
Value apply_filter(std::string_view name, const Value& value, const Arguments& arguments, Work& work);
bool apply_test(std::string_view name, const Value& value, const Arguments& arguments, Work& work);
Value call_method(const Value& receiver, std::string_view name, const Arguments& arguments, Work& work);
// As call_method(), of a string that has it; the call itself is paid for.
Value call_text_method(const Text& text, std::string_view name, const Arguments& arguments, Work& work);
Value call_function(std::string_view name, const Arguments& arguments, Work& work);

}  // namespace nodewright::jinja
