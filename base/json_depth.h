// How deep JSON of a request may nest lists and objects: a body, a line, a schema, and the arguments of an earlier
// call, which are JSON in a text. So code may recurse over what it holds.
#pragma once

#include <string_view>

namespace nodewright {

// Schemas nest as deep as text/grammar takes them, each level of one in two of JSON, within the fields around it.
inline constexpr int kDeepestRequestJson = 160;

// Whether the text nests deeper than that. Brackets in strings do not count.
bool nests_too_deep(std::string_view json);

}  // namespace nodewright
