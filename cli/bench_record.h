// What a JSON file of measurements says besides the figures: where, when and how they were made.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "bench/spread.h"
#include "runtime/device.h"

namespace nodewright::cli {

// {"gpu", "driver", "date" (UTC), "commit", "command"}: the command is the words this process was started with.
nlohmann::ordered_json measurement_record(const Device& device, const std::string& commit);

// "2026-11-25", UTC.
std::string today();

// {"median", "min", "max"}
nlohmann::ordered_json spread_json(const Spread& spread);

}  // namespace nodewright::cli
