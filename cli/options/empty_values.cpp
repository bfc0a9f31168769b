#include "cli/options/empty_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>
#include <type_traits>

namespace nodewright::cli {
namespace {

// Texts that may be empty: a prompt that begins one, a message. --api-key has words of its own.
constexpr std::string_view kMayBeEmpty[] = {"--prompt", "--text", "--system", "--api-key"};

bool may_be_empty(const CLI::Option& option) {
  return std::ranges::any_of(kMayBeEmpty, [&](std::string_view name) { return option.get_name() == name; });
}

std::string why_empty(const std::string& text) { return text.empty() ? "it is empty" : ""; }

bool is_number_of(const CLI::Option& option, std::string_view type) { return option.get_type_name().starts_with(type); }

// Nothing for what is no number at all: the parser finds that.
template <class Integer>
std::string why_beyond(const std::string& text) {
  Integer number{};
  const bool wraps = std::is_unsigned_v<Integer> && text.starts_with('-');
  const auto read = std::from_chars(text.data(), text.data() + text.size(), number);
  if (!wraps && read.ec != std::errc::result_out_of_range) return {};
  return fmt::format("'{}' is not a whole number in its range", text);
}

}  // namespace

void refuse_empty_values(CLI::App& app) {
  for (CLI::Option* option : app.get_options()) {
    if (option->get_items_expected_max() == 0)
      option->disable_flag_override();
    else if (!may_be_empty(*option))
      option->check(why_empty);
    if (is_number_of(*option, "INT")) option->check(why_beyond<int64_t>);
    if (is_number_of(*option, "UINT")) option->check(why_beyond<uint64_t>);
  }
  for (CLI::App* command : app.get_subcommands({})) refuse_empty_values(*command);
}

}  // namespace nodewright::cli
