// The kernel sources as the library carries them: every file of kernels_src, and the CPU driver's emulation header.
// Filled at build time by cmake/EmbedSources.cmake; host only.
#pragma once

#include <span>
#include <string_view>

namespace nodewright {

struct EmbeddedSource {
  std::string_view path;  // from the project root, as it is included: "kernels_src/args.h"
  std::string_view text;
};

// Sorted by path.
std::span<const EmbeddedSource> embedded_sources();

}  // namespace nodewright
