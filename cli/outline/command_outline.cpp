#include "cli/outline/command_outline.h"

#include <algorithm>
#include <cctype>

#include "cli/help.h"

namespace nodewright::cli {
namespace {

std::vector<std::string> parts_between(const std::string& text, char mark) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(mark, begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// A word that is typed as it is, and not the name of a kind of value.
bool is_choice(const std::string& word) {
  return std::ranges::none_of(word, [](unsigned char c) { return std::isupper(c) != 0; });
}

OptionOutline outline_of_option(const CLI::Option& option, bool positional) {
  OptionOutline outline{.value = value_word(option),
                        .repeats = option.get_expected_max() == CLI::detail::expected_max_vector_size,
                        .required = option.get_required(),
                        .about = option.get_description(),
                        .by_default = option.get_default_str()};
  if (positional) {
    outline.names.push_back(option.get_name(true));
  } else {
    for (const std::string& name : option.get_snames()) outline.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) outline.names.push_back("--" + name);
  }
  for (const std::string& word : parts_between(outline.value, '|')) {
    const std::string kind = word.substr(word.find('=') + 1);  // all of it where there is no sign
    if (kind.starts_with("FILE")) outline.names_file = true;
    if (kind == "DIR") outline.names_folder = true;
    if (kind != word) outline.after_sign = true;
    if (is_choice(word)) outline.choices.push_back(word);
  }
  return outline;
}

std::vector<std::string> example_lines(const std::string& footer) {
  std::vector<std::string> lines;
  for (const std::string& line : parts_between(footer, '\n'))
    if (line.starts_with("  ")) lines.push_back(line.substr(2));
  return lines;
}

CommandOutline outline_below(const CLI::App& app, const std::string& parent) {
  CommandOutline outline{.about = app.get_description()};
  const bool is_program = app.get_parent() == nullptr;
  outline.name = app.get_name();
  if (!is_program) outline.path = parent.empty() ? app.get_name() : parent + " " + app.get_name();
  outline.usage = "nodewright" + (outline.path.empty() ? "" : " " + outline.path);
  for (const std::string& title : groups_in_order(app)) {
    OptionGroup group{.title = title, .options = {}};
    for (const CLI::Option* option : app.get_options())
      if (option->get_group() == title && option->nonpositional())
        group.options.push_back(outline_of_option(*option, false));
    if (!title.empty() && !group.options.empty()) outline.groups.push_back(std::move(group));
  }
  if (!outline.groups.empty()) outline.usage += " [OPTIONS]";
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_positional() || option->get_group().empty()) continue;
    outline.positionals.push_back(outline_of_option(*option, true));
    const std::string& name = outline.positionals.back().names.front();
    outline.usage += option->get_required() ? " " + name : " [" + name + "]";
  }
  outline.examples = example_lines(app.get_footer());
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    if (!command->get_group().empty()) outline.commands.push_back(outline_below(*command, outline.path));
  if (!outline.commands.empty()) outline.usage += " COMMAND";
  return outline;
}

void add_with_all_below(const CommandOutline& command, std::vector<const CommandOutline*>& all) {
  all.push_back(&command);
  for (const CommandOutline& one : command.commands) add_with_all_below(one, all);
}

}  // namespace

CommandOutline outline_of(const CLI::App& app) { return outline_below(app, ""); }

std::string value_word(const CLI::Option& option) {
  if (option.get_type_size() == 0) return "";
  std::string type = option.get_type_name();
  const size_t open = type.find('{'), close = type.find('}');
  if (open != std::string::npos && close != std::string::npos) {
    type = type.substr(open + 1, close - open - 1);
    std::ranges::replace(type, ',', '|');
    return type;
  }
  if (type.starts_with("INT") || type.starts_with("UINT")) return "N";
  if (type.starts_with("FLOAT")) return "X";
  return type;
}

std::vector<const CommandOutline*> every_command(const CommandOutline& program) {
  std::vector<const CommandOutline*> all;
  add_with_all_below(program, all);
  return all;
}

}  // namespace nodewright::cli
