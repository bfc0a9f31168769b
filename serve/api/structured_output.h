// The fields that say which texts an answer may be: response_format, structured_outputs and vLLM's older guided_*.
#pragma once

#include <optional>
#include <string>

#include "serve/api/request_body.h"

namespace nodewright {

// The expression (text/grammar/byte_pattern.h) that the whole text must match; nothing where the body asks for none.
// Throws ApiError 400 naming the field for a schema or an expression beyond our subset, for json_object, grammars and
// structural tags, which no expression is equal to, and for two of them.
std::optional<std::string> structure_of(const RequestBody& body);

// The expression of texts that follow the schema, which is a part of `field`. Throws ApiError 400.
std::string schema_pattern(const RequestBody& body, const std::string& field, const RequestJson& schema);

}  // namespace nodewright
