// The components of a tokenizer.json that are pipelines of steps, read from their JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "text/tokenizer/files/section_reader.h"
#include "text/tokenizer/steps/normalizer.h"
#include "text/tokenizer/steps/pre_tokenizer.h"
#include "text/tokenizer/steps/token_decoder.h"

namespace nodewright {

// Each throws Error naming the file and the part: a field that is missing or of the wrong type, a component or flag
// that is not supported. Null: no step, and for the decoder a space between two tokens, as the oracle has it.
Normalizer read_normalizer(const SectionReader& reader, const nlohmann::json& normalizer);
PreTokenizer read_pre_tokenizer(const SectionReader& reader, const nlohmann::json& pre_tokenizer);
TokenDecoder read_decoder(const SectionReader& reader, const nlohmann::json& decoder);

// "pattern" and "content" of a Replace, named `where` in errors.
Replacement read_replacement(const SectionReader& reader, const nlohmann::json& component, const std::string& where);

}  // namespace nodewright
