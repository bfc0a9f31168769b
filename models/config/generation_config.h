// What generation_config.json asks for where a request says nothing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nodewright {

class ConfigFields;

// An empty field is absent from the file, or asks for nothing.
struct GenerationDefaults {
  std::optional<bool> sample;                // do_sample: false means greedy
  std::optional<double> temperature;         // >= 0
  std::optional<int64_t> top_k;              // >= 0; 0 keeps every token, and so does -1 in the file
  std::optional<double> top_p;               // 0..1; 0 keeps the likeliest token alone
  std::optional<double> min_p;               // 0..1
  std::optional<double> repetition_penalty;  // > 0; 1 is none
  std::optional<int64_t> min_new_tokens;     // outputs before which no token ends the text
  std::vector<int64_t> suppress_tokens;      // never chosen; each once
  std::vector<std::vector<int64_t>> bad_words_ids;
  std::vector<std::string> ignored;  // keys, with their values, that would change what is chosen and are not supported
};

// Throws Error, naming file, key and value, for a value of the wrong type or out of range.
GenerationDefaults read_generation_defaults(const ConfigFields& fields);

}  // namespace nodewright
