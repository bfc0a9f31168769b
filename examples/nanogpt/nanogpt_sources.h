// The sources of the network's own kernels, and how a cache comes to know them.
#pragma once

#include <span>

#include "kernels_src/kernel_sources.h"
#include "runtime/kernels/kernel_cache.h"

namespace nodewright {

// The files of examples/nanogpt/kernels by their paths. Filled at build time by cmake/EmbedSources.cmake.
std::span<const EmbeddedSource> nanogpt_kernel_files();

// The same as a cache takes them: headers by their paths, a kernel's source as one below kernels_src/.
std::span<const EmbeddedSource> nanogpt_sources();

// Lets `cache` compile them. Adding them again does nothing.
void add_nanogpt_sources(KernelCache& cache);

}  // namespace nodewright
