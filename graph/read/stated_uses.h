// What people say of kernels that read_graph finds (StatedKernel): from a file, and of a kernel by its name.
#pragma once

#include <span>
#include <string_view>

#include "graph/read/read_graph.h"

namespace nodewright {

// The first that is of the kernel with this demangled name, whole or short; null where there is none.
const StatedKernel* stated_of(std::span<const StatedKernel> stated, std::string_view name, std::string_view short_name);

}  // namespace nodewright
