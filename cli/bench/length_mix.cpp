#include "cli/bench/length_mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "runtime/error.h"

namespace nodewright::cli {
namespace {

// Whether all of `word` is a number.
template <typename Number>
bool read_all(std::string_view word, Number& number) {
  const auto [end, failure] = std::from_chars(word.data(), word.data() + word.size(), number);
  return failure == std::errc() && end == word.data() + word.size();
}

}  // namespace

LengthMix length_mix(const std::string& option, const std::string& words) {
  constexpr int64_t kMostTokens = 1 << 30;
  LengthMix mix;
  for (size_t begin = 0; begin <= words.size();) {
    const size_t comma = std::min(words.find(',', begin), words.size());
    const std::string_view part = std::string_view(words).substr(begin, comma - begin);
    begin = comma + 1;
    const auto refuse_part = [&](const char* detail) {
      throw Error({.doing = "use " + option,
                   .object = std::string(part),
                   .detail = detail,
                   .advice = "lengths or ranges, each with a weight: 128, 128,1024:0.5 or 100-2000",
                   .fault = Fault::usage});
    };
    LengthRange range;
    const size_t colon = std::min(part.find(':'), part.size());
    const std::string_view lengths = part.substr(0, colon);
    if (colon < part.size() &&
        !(read_all(part.substr(colon + 1), range.weight) && range.weight > 0 && range.weight < 1e9))
      refuse_part("its weight is no number above 0");
    const size_t dash = std::min(lengths.find('-'), lengths.size());
    if (!read_all(lengths.substr(0, dash), range.least)) refuse_part("it is no number of tokens");
    range.most = range.least;
    if (dash < lengths.size() && !read_all(lengths.substr(dash + 1), range.most))
      refuse_part("its end is no number of tokens");
    if (range.least < 1 || range.most > kMostTokens || range.most < range.least)
      refuse_part("it is no length of 1 token or more");
    mix.push_back(range);
  }
  return mix;
}

}  // namespace nodewright::cli
