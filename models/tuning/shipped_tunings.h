// The files of this folder as the library carries them: what `nodewright tune` has found on the GPUs that it was made
// for. Filled at build time by cmake/EmbedSources.cmake.
#pragma once

#include <span>

#include "kernels_src/kernel_sources.h"

namespace nodewright {

// "models/tuning/h200-llama-3.2-1b.json" and the others, sorted by path.
std::span<const EmbeddedSource> shipped_tunings();

}  // namespace nodewright
