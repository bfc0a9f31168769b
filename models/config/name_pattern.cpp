#include "models/config/name_pattern.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {
namespace {

constexpr size_t kLongestPattern = 512;  // characters
constexpr size_t kMostDigits = 6;        // of a number in a pattern
constexpr uint64_t kMostRepeats = 1000;  // the matcher calls itself for each that may be empty

// The product of what all {n} and {n,m} of the pattern say: no part of it is repeated more often.
uint64_t repeats_of(const std::string& pattern) {
  uint64_t product = 1;
  for (size_t at = pattern.find('{'); at != std::string::npos; at = pattern.find('{', at + 1)) {
    uint64_t number = 0, largest = 1;
    for (size_t i = at + 1; i < pattern.size() && pattern[i] != '}'; ++i) {
      const bool digit = pattern[i] >= '0' && pattern[i] <= '9';
      number = digit ? number * 10 + static_cast<uint64_t>(pattern[i] - '0') : 0;
      largest = std::max(largest, number);
    }
    product = std::min(product * largest, kMostRepeats + 1);
  }
  return product;
}

struct PatternPlace {
  const std::string& doing;
  const std::filesystem::path& path;

  [[noreturn]] void refuse(std::string detail) const {
    throw Error({.doing = doing, .object = path.string(), .detail = std::move(detail)});
  }
};

}  // namespace

std::regex name_pattern(const std::string& doing, const std::filesystem::path& path, const std::string& key,
                        const std::string& pattern) {
  const PatternPlace place{doing, path};
  if (pattern.size() > kLongestPattern)
    place.refuse(
        fmt::format("the pattern of {} has {} characters, expected at most {}", key, pattern.size(), kLongestPattern));
  size_t digits = 0;  // in a row: std::regex counts beyond what an integer holds
  for (const char c : pattern)
    if ((digits = c >= '0' && c <= '9' ? digits + 1 : 0) > kMostDigits)
      place.refuse(fmt::format("{} is {}, with a number of more than {} digits", key, in_quotes(pattern), kMostDigits));
  if (repeats_of(pattern) > kMostRepeats)
    place.refuse(
        fmt::format("{} is {}, which repeats a part more than {} times", key, in_quotes(pattern), kMostRepeats));
  try {
    return std::regex(pattern, std::regex::ECMAScript | std::regex_constants::__polynomial);
  } catch (const std::regex_error& error) {
    place.refuse(fmt::format("{} is {}, no regular expression that is understood here: {}", key, in_quotes(pattern),
                             error.what()));
  }
}

}  // namespace nodewright
