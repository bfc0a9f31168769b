// A regular expression that a configuration file holds, over the names of modules.
#pragma once

#include <filesystem>
#include <regex>
#include <string>

namespace nodewright {

// Compiled for a matcher without backtracking: matching a name takes no more than linear time. Throws Error, naming
// `key` and the file, for one that is longer than 512 characters, has a number of more than six digits, repeats a part
// more than 1000 times, or is not understood. `doing` completes "cannot ...".
std::regex name_pattern(const std::string& doing, const std::filesystem::path& path, const std::string& key,
                        const std::string& pattern);

}  // namespace nodewright
