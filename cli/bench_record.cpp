#include "cli/bench_record.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

namespace nodewright::cli {
namespace {

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string words{std::istreambuf_iterator<char>(file), {}};
  if (!words.empty()) words.pop_back();
  std::replace(words.begin(), words.end(), '\0', ' ');
  return words;
}

}  // namespace

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[16];
  std::strftime(text, sizeof text, "%Y-%m-%d", &utc);
  return text;
}

nlohmann::ordered_json measurement_record(const Device& device, const std::string& commit) {
  return {{"gpu", device.name()},
          {"driver", device.driver().version()},
          {"date", today()},
          {"commit", commit},
          {"command", command_line()}};
}

nlohmann::ordered_json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.least}, {"max", s.most}};
}

}  // namespace nodewright::cli
