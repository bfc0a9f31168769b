// The #include lines of a program, and the files that they name. Knows no preprocessor: a line counts whatever
// conditions it stands under, and a name that a macro makes is not seen.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/compilers/content_hash.h"

namespace nodewright {

struct IncludeLine {
  std::string_view path;
  bool quoted = false;  // "path", not <path>
};
std::vector<IncludeLine> include_lines(std::string_view text);

// The digest of the files in `folders` that `texts` include, directly or not, with their paths.
Digest hash_included_files(const std::vector<std::string>& texts, const std::vector<std::string>& folders);

}  // namespace nodewright
