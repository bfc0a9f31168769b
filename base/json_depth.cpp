#include "base/json_depth.h"

#include <cstddef>

namespace nodewright {

bool nests_too_deep(std::string_view json) {
  int depth = 0;
  bool in_string = false;
  for (size_t at = 0; at < json.size(); ++at) {
    const char c = json[at];
    if (in_string && c == '\\')
      ++at;
    else if (c == '"')
      in_string = !in_string;
    else if (!in_string && (c == '{' || c == '['))
      if (++depth > kDeepestRequestJson) return true;
    if (!in_string && (c == '}' || c == ']')) --depth;
  }
  return false;
}

}  // namespace nodewright
