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

// The kernel that a source of this path holds: "scale" of "kernels_src/scale.cu" and of "kernels_src/sums/scale.cu".
// Empty where it holds none.
inline std::string_view kernel_name_of(std::string_view path) {
  if (!path.starts_with("kernels_src/") || !path.ends_with(".cu")) return "";
  path.remove_prefix(path.rfind('/') + 1);
  path.remove_suffix(std::string_view(".cu").size());
  return path;
}

}  // namespace nodewright
