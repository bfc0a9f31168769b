// The commands and options of the program as data: what the man page and the shells' completions are made of.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace nodewright::cli {

struct OptionOutline {
  std::vector<std::string> names;    // "-m", "--model"; of a positional its one name
  std::string value;                 // "DIR", "N", "explicit|captured|eager"; empty: a flag
  std::vector<std::string> choices;  // words that the value may be, as they are typed
  bool names_file = false, names_folder = false;
  bool after_sign = false;  // the path is after a name and "="
  bool repeats = false, required = false;
  std::string about, by_default;  // one line each
};

struct OptionGroup {
  std::string title;  // "Options", "For developers"
  std::vector<OptionOutline> options;
};

struct CommandOutline {
  std::string name;   // "decode"
  std::string path;   // "bench decode"; empty for the program
  std::string about;  // one line
  std::string usage;  // "nodewright bench decode [OPTIONS] DIR"
  std::vector<OptionOutline> positionals;
  std::vector<OptionGroup> groups;  // in the order of --help
  std::vector<std::string> examples;
  std::vector<CommandOutline> commands;
};

CommandOutline outline_of(const CLI::App& app);

// "DIR", "N", "explicit|captured|eager"; empty for a flag.
std::string value_word(const CLI::Option& option);

// The program and all that is below it, each before its own commands.
std::vector<const CommandOutline*> every_command(const CommandOutline& program);

}  // namespace nodewright::cli
