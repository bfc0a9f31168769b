#include "models/config/config_fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/json_file.h"
#include "runtime/error.h"

namespace nodewright {

using nlohmann::json;

namespace {

// 1.0 is 1.
bool is_whole(const json& value) {
  if (value.is_number_integer()) return true;
  if (!value.is_number_float()) return false;
  const double number = value.get<double>();
  return std::trunc(number) == number && std::abs(number) < 1e15;
}

}  // namespace

const json* ConfigFields::find(const std::string& key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

ConfigFields ConfigFields::inside(const json& object, std::string prefix) const {
  ConfigFields fields(object, path_, doing_, faults_);
  fields.prefix_ = std::move(prefix);
  return fields;
}

int64_t ConfigFields::integer(const std::string& key, int64_t absent, int64_t least, int64_t most) const {
  const json* value = find(key);
  return value ? integer_in(*value, key, least, most).value_or(absent) : absent;
}

std::optional<int64_t> ConfigFields::integer_in(const json& value, const std::string& key, int64_t least,
                                                int64_t most) const {
  if (!is_whole(value)) {
    wrong_type(key, value, "an integer");
    return std::nullopt;
  }
  if (value.is_number_float()) return integer_in(json(value.get<int64_t>()), key, least, most);
  const bool beyond = value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(most);
  if (!beyond && value.get<int64_t>() >= least && value.get<int64_t>() <= most) return value.get<int64_t>();
  fault(fmt::format("{}{} is {}, expected {} to {}", prefix_, key, value.dump(), least, most));
  return std::nullopt;
}

double ConfigFields::number(const std::string& key, double absent, double least, double most, bool open) const {
  const json* value = find(key);
  if (!value) return absent;
  if (!value->is_number()) {
    wrong_type(key, *value, "a number");
    return absent;
  }
  const double number = value->get<double>();
  if (std::isfinite(number) && number >= least && number <= most && !(open && number == least)) return number;
  fault(fmt::format("{}{} is {}, expected {} {} and at most {}", prefix_, key, value->dump(),
                    open ? "above" : "at least", least, most));
  return absent;
}

bool ConfigFields::boolean(const std::string& key, bool absent) const {
  const json* value = find(key);
  if (!value) return absent;
  if (value->is_boolean()) return value->get<bool>();
  wrong_type(key, *value, "true or false");
  return absent;
}

std::string ConfigFields::text(const std::string& key, std::string absent) const {
  const json* value = find(key);
  if (!value) return absent;
  if (value->is_string()) return value->get<std::string>();
  wrong_type(key, *value, "text");
  return absent;
}

std::vector<int64_t> ConfigFields::integers(const std::string& key) const {
  const json* value = find(key);
  if (!value) return {};
  if (!value->is_array() || !std::ranges::all_of(*value, is_whole)) {
    wrong_type(key, *value, "a list of integers");
    return {};
  }
  std::vector<int64_t> integers;
  for (const json& entry : *value) integers.push_back(entry.get<int64_t>());
  return integers;
}

const json* ConfigFields::object(const std::string& key) const {
  const json* value = find(key);
  if (!value) return nullptr;
  if (value->is_object()) return value->empty() ? nullptr : value;
  wrong_type(key, *value, "an object");
  return nullptr;
}

std::vector<int64_t> ConfigFields::token_ids(const std::string& key) const {
  std::vector<int64_t> ids;
  const json* value = find(key);
  if (!value) return ids;
  if (!value->is_array() && !value->is_number()) {
    wrong_type(key, *value, "an integer or a list of integers");
    return ids;
  }
  for (const json& id : value->is_array() ? *value : json::array({*value})) {
    const int64_t token = integer_in(id, key, -1, kMostTokens).value_or(-1);
    if (token >= 0) ids.push_back(token);
  }
  return ids;
}

std::optional<int64_t> ConfigFields::token_id(const std::string& key, std::optional<int64_t> absent) const {
  if (!object_.contains(key)) return absent;
  const std::vector<int64_t> ids = token_ids(key);
  if (ids.size() > 1) fault(fmt::format("{}{} has {} token ids, expected one", prefix_, key, ids.size()));
  return ids.empty() ? std::nullopt : std::optional(ids.front());
}

void ConfigFields::fault(std::string detail, std::string advice) const {
  try {
    refuse(std::move(detail), std::move(advice));
  } catch (const Error& error) {
    if (faults_ == nullptr) throw;
    faults_->push_back(error);
  }
}

void ConfigFields::refuse(std::string detail, std::string advice) const {
  throw Error({.doing = doing_, .object = path_, .detail = std::move(detail), .advice = std::move(advice)});
}

void ConfigFields::wrong_type(const std::string& key, const json& value, std::string_view expected) const {
  fault(fmt::format("{}{} is {}, expected {}", prefix_, key, in_quotes(value.dump()), expected));
}

}  // namespace nodewright
