#include "cli/parser_words.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <string_view>
#include <vector>

#include "base/json_file.h"
#include "base/nearest_name.h"
#include "cli/outline/command_outline.h"

namespace nodewright::cli {
namespace {

std::vector<std::string> parts_of(const std::string& list) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    parts.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

bool is_number(const std::string& text) {
  double number = 0;
  const auto [stopped, failure] = std::from_chars(text.data(), text.data() + text.size(), number);
  return failure == std::errc() && stopped == text.data() + text.size();
}

// "--model DIR", or "SHELL" of a word without a name.
std::string written(const CLI::Option& option) {
  const std::string name = option.get_name();
  const std::string value = option.nonpositional() ? value_word(option) : "";
  return value.empty() ? name : name + " " + value;
}

std::string is_missing(const std::string& command, const CLI::Option& option) {
  return fmt::format("{} needs {}: {}", command, written(option), option.get_description());
}

std::string needs_value(const CLI::Option& option) {
  return fmt::format("{} needs a value, and none is given: {}", option.get_name(), written(option));
}

std::string given_often(const CLI::Option& option) {
  std::vector<std::string> values;
  for (const std::string& value : option.results()) values.push_back(in_quotes(value));
  if (values.size() < 2) return option.get_name() + " is given more than once, and has one value";
  const std::string last = values.back();
  values.pop_back();
  return fmt::format("{} is given {}, as {} and {}, and has one value", option.get_name(),
                     values.size() == 1 ? std::string("twice") : fmt::format("{} times", values.size() + 1),
                     fmt::join(values, ", "), last);
}

std::string no_flag_value(const CLI::Option& option) {
  return option.get_name() + " is a flag, which has no value: leave out the = and its value";
}

std::string no_number(const CLI::Option& option) {
  for (const std::string& result : option.results())
    for (const std::string& one : parts_of(result))
      if (!is_number(one)) return fmt::format("{}: {} is not a number", option.get_name(), in_quotes(one));
  return fmt::format("{}: {} is not a whole number in its range", option.get_name(),
                     in_quotes(fmt::format("{}", fmt::join(option.results(), ","))));
}

// "--mode: x not in {explicit,captured,eager}" and "--runs: Value 0 not in range 1 to 1000"; other words are our own.
std::string invalid(std::string words) {
  constexpr std::string_view kList = " not in {", kRange = " not in range ", kValue = "Value ";
  const size_t sign = words.find(": ");
  if (sign == std::string::npos) return words;
  const std::string name = words.substr(0, sign), why = words.substr(sign + 2);
  if (const size_t list = why.find(kList); list != std::string::npos && why.ends_with('}')) {
    const std::string value = why.substr(0, list);
    const size_t first = list + kList.size();
    const std::vector<std::string> choices = parts_of(why.substr(first, why.size() - 1 - first));
    const std::string near = nearest_name(value, choices);
    return fmt::format("{}: {} is none of {}{}", name, in_quotes(value), fmt::join(choices, ", "),
                       near.empty() ? "" : fmt::format("; did you mean {}?", near));
  }
  if (const size_t range = why.find(kRange); range != std::string::npos && why.starts_with(kValue))
    return fmt::format("{}: {} is not a whole number from {}", name,
                       in_quotes(why.substr(kValue.size(), range - kValue.size())), why.substr(range + kRange.size()));
  return words;
}

// The option that the parser's words name: they begin with it, or hold it.
const CLI::Option* option_in(const CLI::App& command, const std::string& words) {
  const CLI::Option* found = nullptr;
  for (const CLI::Option* option : command.get_options()) {
    const std::string name = option->get_name();
    for (const std::string& flag : option->get_lnames())  // as the parser calls those that have a value
      if (words.starts_with(flag + " was given ")) return option;
    if (words == name || words.starts_with(name + ":") || words.starts_with(name + " ")) return option;
    if (words.find(" " + name + " = ") != std::string::npos || words.ends_with(" " + name)) found = option;
  }
  return found;
}

template <class Kind>
bool is(const CLI::ParseError& error) {
  return dynamic_cast<const Kind*>(&error) != nullptr;
}

}  // namespace

std::string parser_words(const std::string& name, const CLI::App& command, const CLI::ParseError& error) {
  const std::string words = error.what();
  if (is<CLI::ValidationError>(error)) return invalid(words);
  if (const size_t pair = words.find(" excludes "); is<CLI::ExcludesError>(error) && pair != std::string::npos)
    return fmt::format("{} and {} cannot be used together", words.substr(0, pair), words.substr(pair + 10));
  if (const size_t pair = words.find(" requires "); is<CLI::RequiresError>(error) && pair != std::string::npos)
    return fmt::format("{} has no effect without {}", words.substr(0, pair), words.substr(pair + 10));
  const CLI::Option* option = option_in(command, words);
  if (option == nullptr) return words;
  const bool is_flag = option->get_items_expected_max() == 0;
  if (is<CLI::RequiredError>(error)) return is_missing(name, *option);
  if (is_flag) return no_flag_value(*option);
  if (is<CLI::ConversionError>(error)) return no_number(*option);
  if (is<CLI::ArgumentMismatch>(error))
    return words.find("At Most") != std::string::npos ? given_often(*option) : needs_value(*option);
  return words;
}

}  // namespace nodewright::cli
