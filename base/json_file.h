// A JSON file of a checkpoint folder, parsed strictly: what a lenient parser lets pass is how a hostile file hides.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace nodewright {

// The whole file as JSON. Refuses a file above `max_bytes`, text that is not UTF-8 or not JSON, duplicate keys, nesting
// deeper than 64, and a document that is not an object. `doing` completes "cannot ..." in the errors.
nlohmann::json read_json_object(const std::filesystem::path& path, const std::string& doing, uint64_t max_bytes);

// The text of such a file, to be parsed by the caller. Refuses a file above `max_bytes` and one that holds a zero byte,
// which a parser would take for the end.
std::string read_json_text(const std::filesystem::path& path, const std::string& doing, uint64_t max_bytes);

// What a parser of nlohmann's says of a text, without its own name for the fault: "parse error at line 1, column 5:
// ...".
std::string json_fault(const std::exception& fault);

// The text between quotes, shortened to its first 120 bytes, control characters as \xNN: names come from files and may
// be hostile.
std::string in_quotes(std::string_view name);

}  // namespace nodewright
