// Renders a parsed template. Whatever the template does, it ends: the work it may do, the depth of its calls and what
// it may make are limited, and beyond that it is an Error.
#pragma once

#include <ctime>
#include <string>

#include "text/jinja/scopes.h"
#include "text/jinja/syntax/syntax.h"
#include "text/jinja/values/text.h"

namespace nodewright::jinja {

// `file` is named in errors, `now` is what strftime_now tells. Thread-safe.
// Throws Error naming the file, the line and what was wrong, or what the template says in raise_exception.
Text render(const Body& body, Variables variables, const std::string& file, std::time_t now);

}  // namespace nodewright::jinja
