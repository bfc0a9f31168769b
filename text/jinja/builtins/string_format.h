// str.format() of Python.
#pragma once

#include "text/jinja/builtins/arguments.h"
#include "text/jinja/values/text.h"
#include "text/jinja/values/work.h"

namespace nodewright::jinja {

// The fields {}, {0} and {name}, with !s and !r, fill, width and alignment, and for numbers a sign, a precision and the
// types d, x, X, o, b, f, e, g. Throws Error through `work`: a field without its argument, another specification.
Text formatted(const Text& pattern, const Arguments& arguments, Work& work);

}  // namespace nodewright::jinja
