// A folder that somebody took for a checkpoint: what is in it, and what they may have meant.
#pragma once

#include <filesystem>

namespace nodewright::cli {

// `folder` has no config.json. Throws Error, the fault of the command line unless it
// holds weights.
[[noreturn]] void refuse_strange_folder(const std::filesystem::path& folder);

}  // namespace nodewright::cli
