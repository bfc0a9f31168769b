// JSON schemas without $ref: what a reference to the schema's own definitions stands for is put in its place, as the
// schemas of pydantic's nested models need it. Recursion cannot be put in place.
#pragma once

#include "serve/fields/json_fields.h"

namespace nodewright {

// `schema` without $defs, definitions and references to them. Throws std::invalid_argument or Error naming a reference
// that leads elsewhere, nowhere or back to itself, one with a keyword beside it that says something, references nested
// 32 deep, and a schema that grows beyond 20 000 values.
RequestJson without_references(const RequestJson& schema);

}  // namespace nodewright
