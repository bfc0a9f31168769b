// A time stamp as a node: brackets what cannot stamp itself.
#pragma once

#include "kernels_src/block_stamps.h"
#include "kernels_src/launch_shape.h"

namespace nodewright {

struct Stamp {
  Out<BlockStamps> stamps;  // [1]
};

inline constexpr unsigned kStampThreads = 32;
constexpr LaunchShape stamp_shape() { return launch_shape_1d(1, kStampThreads); }

}  // namespace nodewright
