// The block that takes one row of logits.
#pragma once

namespace nodewright {

inline constexpr unsigned kLogitRowThreads = 512;

}  // namespace nodewright
