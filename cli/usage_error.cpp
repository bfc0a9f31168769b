#include "cli/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/json_file.h"
#include "base/nearest_name.h"
#include "cli/parser_words.h"

namespace nodewright::cli {
namespace {

// The command that was named, "bench decode", and its parser.
std::pair<std::string, const CLI::App*> command_of(const CLI::App& app) {
  std::string name;
  const CLI::App* command = &app;
  for (auto named = command->get_subcommands(); !named.empty(); named = command->get_subcommands()) {
    command = named.front();
    name += (name.empty() ? "" : " ") + command->get_name();
  }
  return {name, command};
}

std::string meant(const std::string& word, const std::vector<std::string>& names) {
  const std::string near = nearest_name(word, names);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

// "generate and run have it": the commands of the program that have this option; empty where none has.
std::string commands_with(const CLI::App& app, const std::string& option) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    if (const CLI::Option* found = one->get_option_no_throw(option); found != nullptr && !found->get_group().empty())
      names.push_back(one->get_name());
  if (names.empty()) return "";
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last + " has it" : fmt::format("{} and {} have it", fmt::join(names, ", "), last);
}

// A word after the one that is the folder of the model, or LOG; or where there is none.
std::string surplus_word(const std::string& name, const CLI::App& command, const std::string& word) {
  for (const CLI::Option* one : command.get_options())
    if (one->get_positional() && !one->results().empty())
      return fmt::format("{}: {} takes one {}, and {} was given before it{}", word, name, one->get_name(true),
                         in_quotes(one->results().front()),
                         command.get_option_no_throw("--prompt") != nullptr ? "; a text stands after --prompt" : "");
  return fmt::format("{}: {} takes options and no such word", word, name);
}

std::string unknown_word(const CLI::App& app) {
  const auto [name, command] = command_of(app);
  const std::vector<std::string> words = app.remaining(true);
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  std::vector<std::string> names;
  if (option == words.end()) return surplus_word(name, *command, words.front());
  const std::string word = option->substr(0, option->find('='));
  for (const CLI::Option* one : command->get_options()) {
    for (const std::string& known : one->get_lnames()) names.push_back(known);
  }
  const std::string whose = name.empty() ? "nodewright" : name;
  if (const std::string others = commands_with(app, word); !others.empty())
    return fmt::format("{}: {} has no such option; {}", word, whose, others);
  // Without the dashes, which any two have in common.
  const std::string near = nearest_name(word.substr(std::min(word.find_first_not_of('-'), word.size())), names);
  return fmt::format("{}: {} has no such option{}", word, whose,
                     near.empty() ? "" : fmt::format("; did you mean --{}?", near));
}

// What stands before a first word that names none of the commands, without options.
std::string no_such_command(const std::string& parent, const CLI::App& app, const std::string& word) {
  std::vector<std::string> names;
  for (const CLI::App* one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return fmt::format("{}: there is no {}command of this name{}", word, parent.empty() ? "" : parent + " ",
                     meant(word, names));
}

std::string see(const std::string& name) {
  return fmt::format(" (see nodewright {}--help)", name.empty() ? "" : name + " ");
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const auto [name, command] = command_of(app);
  // Before what is missing: a name with a slip in it is both.
  if (!app.remaining(true).empty()) return unknown_word(app) + see(name);
  return parser_words(name, *command, error) + see(name);
}

std::string unknown_command(const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  std::string name;
  const bool asks = !words.empty() && words.front() == "help";
  for (size_t i = asks ? 1 : 0; i < words.size(); ++i) {
    const std::string& word = words[i];
    const bool is_help = word == "-h" || word == "--help" || (asks && i == 1 && word == "help");
    if (is_help || (word.starts_with('-') && !asks)) continue;
    const std::vector<const CLI::App*> all = command->get_subcommands([](const CLI::App*) { return true; });
    if (all.empty() && !asks) return "";  // its own options and words
    const auto named = std::ranges::find(all, word, &CLI::App::get_name);
    if (named == all.end())
      return all.empty() || word.starts_with('-')
                 ? fmt::format("{}: help is followed by the name of a command alone", word) + see(name)
                 : no_such_command(name, *command, word) + see(name);
    command = *named;
    name += (name.empty() ? "" : " ") + command->get_name();
  }
  return "";
}

std::string help_of_named(const CLI::App& app) {
  const auto [name, command] = command_of(app);
  return command->help(name.empty() ? "" : "nodewright");
}

}  // namespace nodewright::cli
