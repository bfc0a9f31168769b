// Whether the filters and tests that a template names are known, where Jinja asks before it renders.
#pragma once

#include <string>

#include "text/jinja/syntax/syntax.h"

namespace nodewright::jinja {

// Throws Error naming `file`, the line and the filter or test. Within an {% if %} or a conditional expression, but
// outside the loops, macros and blocks in it, a name is checked when it is reached: a template may ask there whether a
// filter exists.
// Source: CodeGenerator.pull_dependencies and Frame.soft of Jinja 3.1.
void check_names(const Body& body, const std::string& file);

}  // namespace nodewright::jinja
