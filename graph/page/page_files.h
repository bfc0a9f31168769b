// The files of this folder as the library carries them. Filled at build time by cmake/EmbedSources.cmake.
#pragma once

#include <span>

#include "kernels_src/kernel_sources.h"

namespace nodewright {

// "graph/page/page.html" and the others, sorted by path.
std::span<const EmbeddedSource> page_files();

}  // namespace nodewright
