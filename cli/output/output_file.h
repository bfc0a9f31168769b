// A file that appears whole or not at all.
#pragma once

#include <filesystem>
#include <string_view>

namespace nodewright::cli {

// Writes beside `path` and renames. Throws Error naming the path and the system's words; nothing is left behind then.
void write_whole_file(const std::filesystem::path& path, std::string_view contents);

}  // namespace nodewright::cli
