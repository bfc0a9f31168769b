// The first of several files that is a library with all that is needed of it.
#pragma once

#include <functional>
#include <span>
#include <string>

namespace nodewright {

// Takes what is needed of an open library (dlsym). Returns the name of what it lacks, or null.
using TakeEntries = std::function<const char*(void* library)>;

// Opens `places` in order until `take` lacks nothing, and returns that place; what was opened stays open, since it may
// leave kernels and threads behind. Where there is none, returns "" and says in `tried` why each was not taken.
std::string open_first(std::span<const std::string> places, const TakeEntries& take, std::string& tried);

}  // namespace nodewright
