#include "cli/usage_error.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/nearest_name.h"

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

std::string unknown_word(const CLI::App& app) {
  const auto [name, command] = command_of(app);
  const std::vector<std::string> words = app.remaining(true);
  const auto option = std::ranges::find_if(words, [](const std::string& word) { return word.starts_with('-'); });
  std::vector<std::string> names;
  if (option == words.end() && !command->get_subcommands({}).empty()) {
    for (const CLI::App* one : command->get_subcommands({})) names.push_back(one->get_name());
    const std::string& word = words.front();
    return fmt::format("{}: there is no {}command of this name{}", word, name.empty() ? "" : name + " ",
                       meant(word, names));
  }
  if (option == words.end()) return fmt::format("{}: {} takes options and no such word", words.front(), name);
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

bool is_number(const std::string& text) {
  double number = 0;
  const auto [stopped, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && stopped == text.data() + text.size();
}

// The parser's "Could not convert: --context = x" in our words: numbers are the only type that it may fail to read.
std::string no_number(const std::string& words) {
  const size_t name = words.find(": "), sign = words.find(" = ");
  if (name == std::string::npos || sign == std::string::npos) return words;
  const std::string value = words.substr(sign + 3);
  return fmt::format("{}: '{}' is not a {}", words.substr(name + 2, sign - name - 2), value,
                     is_number(value) ? "whole number in its range" : "number");
}

}  // namespace

std::string usage_error(const CLI::App& app, const CLI::ParseError& error) {
  const std::string name = command_of(app).first;
  const std::string help = fmt::format(" (see nodewright {}--help)", name.empty() ? "" : name + " ");
  // Before what is missing: a name with a slip in it is both.
  if (!app.remaining(true).empty()) return unknown_word(app) + help;
  if (dynamic_cast<const CLI::ConversionError*>(&error) != nullptr) return no_number(error.what()) + help;
  return error.what() + help;
}

std::string help_of_named(const CLI::App& app) {
  const auto [name, command] = command_of(app);
  return command->help(name.empty() ? "" : "nodewright");
}

}  // namespace nodewright::cli
