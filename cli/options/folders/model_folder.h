// The folder that --model names: a path, the folder of a model in Hugging Face's cache, or the name OWNER/NAME of one
// that is there.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>

namespace nodewright::cli {

// -m, --model, or a word without an option.
CLI::Option* add_model_option(CLI::App& command, std::filesystem::path& folder, const std::string& about);

// "models--X--Y", or "X/Y" that is no path: its snapshot in the cache, the one that refs/main names. Anything else, and
// what is not there, stays as it is.
std::filesystem::path model_folder(const std::filesystem::path& words);

// Throws Error (usage) naming what `option` names, where it is no folder of a model.
void check_model_folder(const std::filesystem::path& folder, const std::string& option = "--model");

// The last name of its path, also with a trailing slash; OWNER/NAME for a snapshot in the hub's cache.
std::string folder_name(const std::filesystem::path& folder);

}  // namespace nodewright::cli
