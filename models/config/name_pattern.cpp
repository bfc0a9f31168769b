#include "models/config/name_pattern.h"

#include <fmt/format.h>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr size_t kLongestPattern = 512;  // characters
constexpr size_t kMostDigits = 6;        // of a number in a pattern

}  // namespace

std::regex name_pattern(const std::string& doing, const std::filesystem::path& path, const std::string& key,
                        const std::string& pattern) {
  const auto refuse = [&](std::string detail) {
    throw Error({.doing = doing, .object = path.string(), .detail = std::move(detail)});
  };
  if (pattern.size() > kLongestPattern)
    refuse(
        fmt::format("the pattern of {} has {} characters, expected at most {}", key, pattern.size(), kLongestPattern));
  size_t digits = 0;  // in a row: std::regex counts beyond what an integer holds
  for (const char c : pattern)
    if ((digits = c >= '0' && c <= '9' ? digits + 1 : 0) > kMostDigits)
      refuse(fmt::format("{} is {}, with a number of more than {} digits", key, in_quotes(pattern), kMostDigits));
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    refuse(fmt::format("{} is {}, no regular expression that is understood here: {}", key, in_quotes(pattern),
                       error.what()));
  }
  return {};  // not reached
}

}  // namespace nodewright
