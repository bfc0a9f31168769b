// Numbers of request lines, checked.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

namespace nodewright::cli {

// An integer from `least` to `most`; JSON's own conversion would cut 1.5 and wrap what is too large.
inline int64_t integer(const nlohmann::ordered_json& value, const std::string& name, int64_t least, int64_t most) {
  const bool wraps = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX;
  if (!value.is_number_integer() || wraps || value.get<int64_t>() < least || value.get<int64_t>() > most)
    throw std::invalid_argument(
        fmt::format("{} is {}, expected an integer from {} to {}", name, value.dump(), least, most));
  return value.get<int64_t>();
}

}  // namespace nodewright::cli
