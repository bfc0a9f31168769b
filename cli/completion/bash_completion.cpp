// The script for bash: one function, which cuts the line into words again and looks up what may stand there.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/completion/completion_scripts.h"

namespace nodewright::cli {
namespace {

constexpr const char* kBashBeginning =
    R"(# Completes the words of nodewright in bash 4 and later. Made by `nodewright completion bash`.

# Sets COMPREPLY: what $2 may become as $1 (file, folder, words), and which of the words in $3 begin so.
_nodewright_offer() {
  local paths=() found=()
  mapfile -t found < <(compgen -W "$3" -- "$2")
  if [[ $1 == file || $1 == folder ]]; then
    compopt -o filenames 2>/dev/null
    mapfile -t paths < <(compgen -A "${1/folder/directory}" -- "$2")
  fi
  COMPREPLY=("${found[@]}" "${paths[@]}")
}

_nodewright() {
  local raw=${COMP_WORDS[COMP_CWORD]} tokens=() glued='' i one
  # bash takes --name=value for three words.
  for ((i = 1; i <= COMP_CWORD; ++i)); do
    one=${COMP_WORDS[i]}
    if ((${#tokens[@]} > 0)) && [[ -n $glued || $one =~ ^[=:]+$ ]]; then tokens[-1]+=$one; else tokens+=("$one"); fi
    if [[ $one =~ ^[=:]+$ ]]; then glued=1; else glued=''; fi
  done
  if [[ $raw =~ ^[=:]+$ ]]; then raw=''; fi
  local word=${tokens[-1]}
  unset 'tokens[-1]'

  local command='' help=''
  for one in "${tokens[@]}"; do
    case "$command $one" in
)";

constexpr const char* kBashMiddle = R"(      ' help') help=1 ;;
      *) break ;;
    esac
  done

  local option='' value=$word
  if [[ $word == --*=* ]]; then
    option=${word%%=*} value=${word#*=}
  elif ((${#tokens[@]} > 0)) && [[ ${tokens[-1]} == -* ]]; then
    option=${tokens[-1]}
  fi
  local options='' commands='' kind='' words='' place='' place_words=''  # of an option's value, of a word alone
  case $command in
)";

constexpr const char* kBashEnd = R"(  esac
  if [[ -n $help ]]; then
    _nodewright_offer words "$value" "$commands"
  elif [[ $kind == after_sign_* ]]; then
    if [[ $value == *=* ]]; then value=${value#*=} && _nodewright_offer "${kind#after_sign_}" "$value" ''; fi
  elif [[ -n $kind ]]; then
    _nodewright_offer "$kind" "$value" "$words"
  elif [[ $word == -* ]]; then
    _nodewright_offer words "$word" "$options"
  elif [[ -n $commands ]]; then
    if [[ -z $command ]]; then commands+=' help'; fi
    _nodewright_offer words "$word" "$commands"
  elif [[ -n $place ]]; then
    _nodewright_offer "$place" "$word" "$place_words"
  fi
  # bash replaces the part of the word that it takes for one.
  local before=${word%"$value"} skip=$((${#word} - ${#raw}))
  for i in "${!COMPREPLY[@]}"; do
    one=$before${COMPREPLY[i]}
    COMPREPLY[i]=${one:skip}
  done
}

complete -F _nodewright nodewright
)";

std::string bash_kind(const OptionOutline& option) {
  const std::string path = option.names_folder ? "folder" : option.names_file ? "file" : "";
  if (!path.empty()) return option.after_sign ? "after_sign_" + path : path;
  return option.choices.empty() ? "anything" : "words";
}

std::string bash_command(const CommandOutline& command) {
  std::vector<std::string> names, commands;
  std::string values;
  for (const OptionGroup& group : command.groups)
    for (const OptionOutline& option : group.options) {
      names.insert(names.end(), option.names.begin(), option.names.end());
      if (!option.value.empty())
        values += fmt::format("        {}) kind={} words='{}' ;;\n", fmt::join(option.names, "|"), bash_kind(option),
                              fmt::join(option.choices, " "));
    }
  for (const CommandOutline& one : command.commands) commands.push_back(one.name);
  std::string text = fmt::format("    '{}')\n      options='{}'\n", command.path, fmt::join(names, " "));
  if (!commands.empty()) text += fmt::format("      commands='{}'\n", fmt::join(commands, " "));
  if (!values.empty()) text += "      case $option in\n" + values + "      esac\n";
  if (!command.positionals.empty())
    text += fmt::format("      place={} place_words='{}'\n", bash_kind(command.positionals.front()),
                        fmt::join(command.positionals.front().choices, " "));
  return text + "      ;;\n";
}

}  // namespace

std::string bash_completion(const CommandOutline& program) {
  std::string paths, cases;
  for (const CommandOutline* command : every_command(program)) {
    const size_t blank = command->path.rfind(' ');
    const std::string typed = blank == std::string::npos ? " " + command->path : command->path;
    if (!command->path.empty()) paths += fmt::format("      '{}') command='{}' ;;\n", typed, command->path);
    cases += bash_command(*command);
  }
  return kBashBeginning + paths + kBashMiddle + cases + kBashEnd;
}

}  // namespace nodewright::cli
