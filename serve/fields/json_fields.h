// Fields of request lines as values. Each function throws std::invalid_argument naming the field, what it is and what
// it should be: JSON's own conversions cut 1.5, wrap what is too large, and name nothing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace nodewright {

using RequestJson = nlohmann::ordered_json;

int64_t integer_of(const RequestJson& value, const std::string& name, int64_t least, int64_t most);
uint64_t seed_of(const RequestJson& value, const std::string& name);  // 0 to 2^64 - 1
double number_of(const RequestJson& value, const std::string& name);
std::string string_of(const RequestJson& value, const std::string& name);
bool flag_of(const RequestJson& value, const std::string& name);
// A list of tokens of a vocabulary of `vocab`.
std::vector<int32_t> token_ids_of(const RequestJson& value, const std::string& name, int64_t vocab);

// The value as JSON, its beginning where it is long.
std::string shown(const RequestJson& value);
// The same with its kind: the string "x", the number 3, null.
std::string described(const RequestJson& value);
// Throws std::invalid_argument: `place` is missing (null), or what it is, and `expected`. `place` is a path from the
// field: messages[2].content.
[[noreturn]] void refuse_value(const std::string& place, const RequestJson* found, const std::string& expected);

}  // namespace nodewright
