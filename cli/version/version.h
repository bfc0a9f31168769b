// What `nodewright --version` prints.
#pragma once

#include <string>

namespace nodewright::cli {

// The first line is "nodewright X.Y.Z"; below it the commit, the CUDA driver, the first device, and CUDA's headers and
// compiler, each in a line. Never throws for what this machine lacks: the line says so.
std::string version_text();

}  // namespace nodewright::cli
