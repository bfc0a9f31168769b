// Work that several threads share.
#pragma once

#include <cstddef>
#include <functional>

namespace nodewright {

// As many threads as the machine has cores; 1 where it does not say.
size_t usable_threads();

// Calls work(i) for every i below `count`, begun in this order, on this thread and at most `threads` - 1 others, and
// returns when all have ended. After a failure no other call is begun; throws the failure of the smallest i.
void in_parallel(size_t count, size_t threads, const std::function<void(size_t)>& work);

}  // namespace nodewright
