// Counts the steps that deriving and checking edges takes, so that a test can hold how they grow, whatever the machine.
#pragma once

#include <cstdint>

namespace nodewright {

// Segments that a use touches, words of reachability, touches that are compared: of this thread, since it began.
inline thread_local uint64_t graph_work = 0;

}  // namespace nodewright
