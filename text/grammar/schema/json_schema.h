// A JSON schema as a regular expression over JSON text (text/grammar/patterns/byte_pattern.h), for answers that must
// follow it. A subset, in which every schema says how its text looks; everything else is refused by name:
//
//   type         object, string, integer, number, boolean, null, array, or a list of them
//   properties   in the order in which they stand, those that are not required may be left out; additionalProperties
//                may be false or absent; one of the two must be there
//   items, minItems, maxItems; of strings minLength and maxLength, or format (string_formats.h)
//   minimum, maximum and the exclusive ones, of numbers
//   enum, const, anyOf; title, description, default, examples, $schema say nothing
//
// The text is compact but for one space that may follow a comma or a colon.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace nodewright {

// Throws Error (usage) naming the place in the schema, and the keyword.
std::string json_schema_pattern(const nlohmann::ordered_json& schema);

// The same of a schema of one `type` that is neither object nor array, whatever its own "type" says; `place`: of it in
// the whole schema.
std::string json_scalar_pattern(const nlohmann::ordered_json& schema, const std::string& type,
                                const std::string& place);
// One character of a JSON string, escaped where it must be.
std::string json_character_pattern();

}  // namespace nodewright
