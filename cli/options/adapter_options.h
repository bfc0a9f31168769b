// --adapter, --max-adapters, --max-adapter-rank and --merge-adapter of the commands that serve requests.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <string>
#include <vector>

#include "cli/options/engine_options.h"
#include "cli/session.h"

namespace nodewright::cli {

void add_adapter_options(CLI::App& command, EngineSettings& settings, SessionOptions& session);
// --merge-adapter alone.
void add_merge_option(CLI::App& command, SessionOptions& session);

// NAME=DIR, as it stands on the command line.
struct NamedFolder {
  std::string name;
  std::filesystem::path folder;
};
// Throws Error (usage) naming `option` and the word that is not NAME=DIR, or whose name is there twice.
std::vector<NamedFolder> named_folders(const std::string& option, const std::vector<std::string>& words);

// Opens all adapters of the command line, so that a wrong one is reported before the model is loaded. Throws Error.
void check_adapters(const EngineSettings& settings, const SessionOptions& session, const ModelConfig& config);

// Slots for them: --max-adapters, or where it is silent 8 if there are any or some may come.
int adapter_slots(const EngineSettings& settings);

// The adapter of a command whose requests all use the same one: its name, or empty. Throws Error (usage) for several.
std::string only_adapter(const EngineSettings& settings);

}  // namespace nodewright::cli
