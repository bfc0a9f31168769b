// What the readers of JSON schemas share: references, kinds of keys, and whether a schema can hold at all.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

namespace nodewright {

// Throws Error (usage): the schema cannot be read at `place` because of `what`, of both the first part.
[[noreturn]] void refuse_schema(const std::string& place, const std::string& what);

// The same: the keyword `key` is of another kind than `expected`, or empty.
[[noreturn]] void refuse_schema_kind(const std::string& place, const std::string& key,
                                     const nlohmann::ordered_json& found, const char* expected);

// Units of WorkBudget that the reading of one schema may take. A schema of a hundred properties takes some thousands;
// these are a tenth of a second.
inline constexpr uint64_t kMostSchemaWork = 20'000'000;
// Calls `read`. Throws Error (usage) where it takes more.
std::string within_schema_work(const std::function<std::string()>& read);
// What one value of a schema costs: its place in words, and the text that is made of it.
void spend_on_schema(const std::string& place, size_t text_bytes);

// Keys that say nothing about a text.
const std::set<std::string>& silent_schema_keys();

// The values of a schema with "const", "enum" or both: those that both have, of its "type". Throws Error where none is.
std::vector<nlohmann::ordered_json> schema_constants(const nlohmann::ordered_json& schema, const std::string& place);

// The keyword `key` as a count of 0 to `most`; `otherwise` where it is absent.
int64_t schema_count(const nlohmann::ordered_json& schema, const std::string& place, const char* key, int64_t most,
                     int64_t otherwise);

// What the reference `path`, such as "#/$defs/node", leads to in `root`: a pointer of RFC 6901, escaped as in URIs
// where it must be. Throws Error where that is nothing.
const nlohmann::ordered_json& referred_schema(const nlohmann::ordered_json& root, const nlohmann::ordered_json& path,
                                              const std::string& place);

// A reference reachable from `root` that only endless texts satisfy; empty where there is none.
std::string endless_reference(const nlohmann::ordered_json& root);

// Whether no text can follow two of `options`: their types differ, or their constants, or those of a property that each
// of them requires. False where that cannot be told.
bool are_disjoint(const nlohmann::ordered_json& root, const nlohmann::ordered_json& options);

}  // namespace nodewright
