#include "cli/report/bench_record.h"

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>

#include "cli/output/output_file.h"
#include "cli/session.h"

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

void add_record_options(CLI::App& command, RecordOptions& options, const std::string& what) {
  command.add_option("--out", options.out, what);
  command.add_option("--commit", options.commit, "what the JSON file calls the program's commit");
}

nlohmann::ordered_json measurement_record(const RecordOptions& options) {
  return {{"date", today()}, {"commit", options.commit}, {"command", command_line()}};
}

nlohmann::ordered_json measurement_record(const Device& device, const RecordOptions& options) {
  nlohmann::ordered_json record{{"gpu", device.name()}, {"driver", device.driver().version()}};
  record.update(measurement_record(options));
  return record;
}

nlohmann::ordered_json measurement_record(const Device& device, const RecordOptions& options,
                                          const std::filesystem::path& model) {
  nlohmann::ordered_json record = measurement_record(device, options);
  record["model"] = folder_name(model);
  return record;
}

void write_record(const RecordOptions& options, const nlohmann::ordered_json& record) {
  write_whole_file(options.out, record.dump(2) + "\n");
}

nlohmann::ordered_json spread_json(const Spread& s) {
  return {{"median", s.median}, {"min", s.least}, {"max", s.most}};
}

}  // namespace nodewright::cli
