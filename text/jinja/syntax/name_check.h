// Whether the filters and tests that a template names are known, where Jinja asks before it renders.
#pragma once

#include <string>

#include "text/jinja/syntax/syntax.h"

namespace nodewright::jinja {

// Throws Error naming `file`, the line and the filter or test. One within an {% if %} or a conditional expression, but
// in no loop, macro or block inside of it, is looked up when it is reached: templates ask which filters there are so.
// Source: CodeGenerator.pull_dependencies and Frame.soft of Jinja 3.1.
void check_names(const Body& body, const std::string& file);

}  // namespace nodewright::jinja
