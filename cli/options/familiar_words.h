// Command lines written for vLLM or llama.cpp: their options under our names.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>
#include <vector>

namespace nodewright::cli {

// `words`: the command line without the program's name. Options of others that a command has under another name get
// that; those that ask for what is so anyway are left out, and `tell` hears why. Everything else stays as it is, also
// words that no one knows. `help COMMAND` becomes `COMMAND --help`. Throws Error (usage) where such an option has no
// value or one that cannot be done here.
std::vector<std::string> in_our_words(const CLI::App& app, const std::vector<std::string>& words,
                                      const std::function<void(const std::string&)>& tell);

}  // namespace nodewright::cli
