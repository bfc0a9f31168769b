// The script for fish: a line for each option of each command.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/completion_scripts.h"

namespace nodewright::cli {
namespace {

std::string fish_quoted(const std::string& text) {
  std::string quoted = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + "'";
}

// -x: a value and no files; -r: a value; -F: files. Folders after a name and = are found by what stands after it.
std::string fish_value(const OptionOutline& option) {
  if (option.value.empty()) return "";
  if (option.after_sign && option.names_folder) return " -x -a '(__nodewright_folders_after_sign)'";
  std::string text = option.names_file ? " -r -F" : " -x";
  if (option.names_folder) text += " -a '(__fish_complete_directories)'";
  if (!option.choices.empty()) text += fmt::format(" -a '{}'", fmt::join(option.choices, " "));
  return text;
}

std::string fish_command(const CommandOutline& command) {
  const std::string begin = fmt::format("complete -c nodewright -n '__nodewright_at \"{}\"'", command.path);
  std::string text;
  for (const CommandOutline& one : command.commands)
    text += fmt::format("{} -a {} -d {}\n", begin, one.name, fish_quoted(short_about(one.about)));
  if (command.path.empty()) text += fmt::format("{} -a help -d 'Tell the options of a command'\n", begin);
  for (const OptionOutline& one : command.positionals) {
    if (!one.choices.empty()) text += fmt::format("{} -a '{}'\n", begin, fmt::join(one.choices, " "));
    if (one.names_folder) text += begin + " -a '(__fish_complete_directories)'\n";
    if (one.names_file) text += begin + " -F\n";
  }
  for (const OptionGroup& group : command.groups)
    for (const OptionOutline& option : group.options) {
      text += begin;
      for (const std::string& name : option.names)
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      text += fmt::format("{} -d {}\n", fish_value(option), fish_quoted(short_about(option.about)));
    }
  return text;
}

constexpr const char* kFishBeginning =
    R"(# Completes the words of nodewright in fish 3. Made by `nodewright completion fish`.

# Whether the words before the cursor name the command $argv[1].
function __nodewright_at
    set -l at ''
    set -l typed (commandline -opc)
    set -e typed[1]
    for word in $typed
        switch "$at $word"
            case ' help'
            case )";
constexpr const char* kFishEnd = R"(
                set at (string trim "$at $word")
            case '*'
                break
        end
    end
    test "$at" = "$argv[1]"
end

# NAME=DIR
function __nodewright_folders_after_sign
    set -l parts (string split -m 1 = (commandline -ct))
    if test (count $parts) -eq 2
        for folder in (__fish_complete_directories $parts[2])
            echo "$parts[1]=$folder"
        end
    end
end

complete -c nodewright -f
)";

}  // namespace

std::string fish_completion(const CommandOutline& program) {
  std::string paths, lines;
  for (const CommandOutline* command : every_command(program)) {
    const bool is_below = command->path.find(' ') != std::string::npos;
    if (!command->path.empty()) paths += fmt::format(" '{}{}'", is_below ? "" : " ", command->path);
    lines += fish_command(*command);
  }
  return kFishBeginning + paths.substr(1) + kFishEnd + lines;
}

}  // namespace nodewright::cli
