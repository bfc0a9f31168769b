// The script for zsh: a function for each command, for _arguments.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/completion/completion_scripts.h"

namespace nodewright::cli {
namespace {

// Within single quotes, in a description that _arguments reads.
std::string zsh_words(const std::string& text) {
  std::string quoted;
  for (const char c : text) {
    if (c == '\'') quoted += "'\\''";
    if (c == '[' || c == ']' || c == ':' || c == '\\') quoted += '\\';
    if (c != '\'') quoted += c;
  }
  return quoted;
}

std::string zsh_function(const CommandOutline& command) {
  std::string name = "_nodewright" + (command.path.empty() ? "" : "_" + command.path);
  std::ranges::replace(name, ' ', '_');
  return name;
}

// ":DIR:_files -/": what completes the value.
std::string zsh_value(const OptionOutline& option) {
  std::string action = " ";
  const char* const paths = option.names_folder ? "_files -/" : "_files";
  const bool has_paths = option.names_folder || option.names_file;
  if (option.after_sign && has_paths)
    action = fmt::format("{{compset -P \"*=\" && {}}}", paths);
  else if (has_paths && !option.choices.empty())
    action = fmt::format("{{compadd -- {}; {}}}", fmt::join(option.choices, " "), paths);
  else if (has_paths)
    action = paths;
  else if (!option.choices.empty())
    action = fmt::format("({})", fmt::join(option.choices, " "));
  return fmt::format(":{}:{}", zsh_words(option.value), action);
}

// A line each for its names, which exclude each other unless they may come again.
std::string zsh_option(const OptionOutline& option) {
  std::string lines;
  for (const std::string& name : option.names) {
    const bool is_long = name.starts_with("--");
    lines += fmt::format("    '{}{}{}[{}]{}' \\\n",
                         option.repeats ? "*" : fmt::format("({})", fmt::join(option.names, " ")), name,
                         option.value.empty() ? ""
                         : is_long            ? "="
                                              : "+",
                         zsh_words(short_about(option.about)), option.value.empty() ? "" : zsh_value(option));
  }
  return lines;
}

std::string zsh_command(const CommandOutline& command) {
  std::string text = fmt::format("\n{}() {{\n", zsh_function(command));
  const bool is_group = !command.commands.empty();
  if (is_group) text += "  local context state state_descr line curcontext=$curcontext\n  typeset -A opt_args\n";
  text += fmt::format("  _arguments -s {}: \\\n", is_group ? "-C " : "");
  for (const OptionGroup& group : command.groups)
    for (const OptionOutline& option : group.options) text += zsh_option(option);
  if (!is_group) {
    for (const OptionOutline& one : command.positionals) text += fmt::format("    '1{}' \\\n", zsh_value(one));
    return text.substr(0, text.size() - 3) + "\n}\n";
  }
  text += "    '1: :->command' '*:: :->rest'\n  case $state in\n    command)\n      local -a commands=(\n";
  for (const CommandOutline& one : command.commands)
    text += fmt::format("        '{}:{}'\n", one.name, zsh_words(short_about(one.about)));
  if (command.path.empty()) text += "        'help:Tell the options of a command'\n";
  text += fmt::format("      )\n      _describe command commands\n      ;;\n    rest)\n      case $words[1] in\n");
  for (const CommandOutline& one : command.commands)
    text += fmt::format("        {}) {} ;;\n", one.name, zsh_function(one));
  if (command.path.empty()) text += fmt::format("        help) {} ;;\n", zsh_function(command));
  return text + "      esac\n      ;;\n  esac\n}\n";
}

}  // namespace

std::string zsh_completion(const CommandOutline& program) {
  std::string text = "#compdef nodewright\n# Made by `nodewright completion zsh`.\n";
  for (const CommandOutline* command : every_command(program)) text += zsh_command(*command);
  // As a file of $fpath it is the body of the function that completes; sourced, it says who does.
  return text +
         "\nif [[ $zsh_eval_context[-1] == loadautofunc ]]; then\n  _nodewright \"$@\"\nelse\n"
         "  compdef _nodewright nodewright\nfi\n";
}

}  // namespace nodewright::cli
