// What a JSON file of measurements says besides the figures: where, when and how they were made.
#pragma once

#include <CLI/CLI.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "bench/spread.h"
#include "runtime/device.h"

namespace nodewright::cli {

struct RecordOptions {
  std::filesystem::path out;       // empty: no file
  std::string commit = "unknown";  // of the program
};

// --out, --commit.
void add_record_options(CLI::App& command, RecordOptions& options, const std::string& what = "JSON file");

// {"date" (UTC), "commit", "command"}: the command is the words this process was started with.
nlohmann::ordered_json measurement_record(const RecordOptions& options);
// And "gpu", "driver" before them.
nlohmann::ordered_json measurement_record(const Device& device, const RecordOptions& options);
// And "model", the last name of its folder's path.
nlohmann::ordered_json measurement_record(const Device& device, const RecordOptions& options,
                                          const std::filesystem::path& model);

// [json_of(item), ...]
template <class Items, class JsonOf>
nlohmann::ordered_json json_list(const Items& items, const JsonOf& json_of) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& item : items) list.push_back(json_of(item));
  return list;
}

// To the file that the options name.
void write_record(const RecordOptions& options, const nlohmann::ordered_json& record);

// "2026-11-25", UTC.
std::string today();

// {"median", "min", "max"}
nlohmann::ordered_json spread_json(const Spread& spread);

}  // namespace nodewright::cli
