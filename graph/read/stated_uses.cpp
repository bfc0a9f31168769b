#include "graph/read/stated_uses.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <sstream>
#include <vector>

#include "runtime/error.h"

namespace nodewright {
namespace {

// As many bytes of them as a kernel takes (CUDA C++ Programming Guide, "Function Parameters").
constexpr uint64_t kMostParameters = 32764;

// `*` stands for any characters, and none.
bool matches(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, from = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      from = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++from;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t\r"), last = text.find_last_not_of(" \t\r");
  return first == std::string_view::npos ? "" : text.substr(first, last - first + 1);
}

// One line of a file.
class StatedLine {
 public:
  explicit StatedLine(std::string place) : place_(std::move(place)) {}

  // A demangled name may hold colons, but none before a space.
  StatedKernel parse(std::string_view line) const {
    const size_t colon = std::max(line.rfind(": ") + 1, line.rfind(":\t") + 1) - 1;  // npos + 1 is 0
    if (colon == std::string_view::npos || trimmed(line.substr(0, colon)).empty())
      refuse(fmt::format("'{}' names no kernel", line));
    StatedKernel kernel{.kernel = std::string(trimmed(line.substr(0, colon))), .source = place_};
    for (std::string_view rest = line.substr(colon + 2); !rest.empty();) {
      const size_t comma = std::min(rest.find(','), rest.size());
      add(trimmed(rest.substr(0, comma)), kernel);
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
    return kernel;
  }

 private:
  [[noreturn]] void refuse(std::string detail) const {
    throw Error({.doing = "read the stated uses in",
                 .object = place_,
                 .detail = std::move(detail),
                 .advice = "write 'kernel: argument 0 reads 4096, argument 1 at 8 writes, waits'",
                 .fault = Fault::usage});
  }

  // "argument 1 at 8 writes 4096", where `at` and the last number may be missing, or "waits".
  void add(std::string_view text, StatedKernel& kernel) const {
    std::vector<std::string_view> words;
    for (std::string_view rest = text; !rest.empty(); rest = trimmed(rest)) {
      const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
      words.push_back(rest.substr(0, end));
      rest.remove_prefix(end);
    }
    if (words.size() == 1 && words[0] == "waits") {
      kernel.waits = true;
      return;
    }
    const size_t access = words.size() > 3 && words[2] == "at" ? 4 : 2;
    if (words.empty() || words[0] != "argument" || words.size() < access + 1 || words.size() > access + 2)
      refuse(fmt::format("'{}' is no use of an argument", text));
    const uint64_t argument = number(words[1]);
    if (argument >= kMostParameters)
      refuse(fmt::format("'argument {}': a kernel has {} at most, counted from 0 on", argument, kMostParameters));
    StatedUse use{.argument = static_cast<uint32_t>(argument)};
    if (access == 4) use.at = number(words[3]);
    if (use.at % sizeof(uint64_t) != 0)
      refuse(fmt::format("'at {}': the place of an address is a multiple of 8 bytes", use.at));
    if (words[access] == "reads")
      use.access = Access::in;
    else if (words[access] == "writes")
      use.access = Access::out;
    else if (words[access] == "updates")
      use.access = Access::inout;
    else
      refuse(fmt::format("'{}' is none of reads, writes and updates", words[access]));
    if (words.size() == access + 2 && (use.bytes = number(words[access + 1])) == 0) refuse("a use of 0 bytes");
    kernel.uses.push_back(use);
  }

  uint64_t number(std::string_view word) const {
    uint64_t value = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (problem != std::errc() || end != word.data() + word.size())
      refuse(fmt::format("'{}' is no number of bytes, and no place of an argument", word));
    return value;
  }

  std::string place_;
};

}  // namespace

const StatedKernel* stated_of(std::span<const StatedKernel> stated, std::string_view name,
                              std::string_view short_name) {
  const auto is_of = [&](const StatedKernel& kernel) {
    return matches(kernel.kernel, name) || matches(kernel.kernel, short_name);
  };
  const auto found = std::ranges::find_if(stated, is_of);
  return found == stated.end() ? nullptr : &*found;
}

std::vector<StatedKernel> parse_uses(std::string_view text, const std::string& source) {
  std::vector<StatedKernel> stated;
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line[0] != '#') stated.push_back(StatedLine(fmt::format("{}:{}", source, number)).parse(line));
  }
  return stated;
}

std::vector<StatedKernel> read_uses(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  if (!(text << file.rdbuf()) && file.bad()) file.close();
  if (!file.is_open())
    throw Error({.doing = "read the stated uses in",
                 .object = path.string(),
                 .detail = "it cannot be read",
                 .advice = "name a text file that you may read",
                 .fault = Fault::usage});
  return parse_uses(text.str(), path.string());
}

}  // namespace nodewright
