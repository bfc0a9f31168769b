// The fields that say which texts an answer may be: response_format, structured_outputs and vLLM's older guided_*.
#pragma once

#include <optional>
#include <string>

#include "serve/api/asked/request_body.h"
#include "serve/fields/text_structure.h"

namespace nodewright {

struct FieldStructure {
  std::string field;  // that asks for it: "guided_json", "structured_outputs.json"
  TextStructure structure;
};

// What the whole text must follow; nothing where the body asks for none. Throws ApiError 400 naming the field for a
// schema, an expression or a grammar that cannot be followed, and for two of them. json_object, grammars, structural
// tags and recursive schemas need xgrammar, and are refused without it.
std::optional<FieldStructure> structure_of(const RequestBody& body);

}  // namespace nodewright
