// What generate and chat take beyond the numbers of cli/options/request/sampling_options.h, as options of the command
// line: the fields of a request line of `run` that ask for the same (serve/fields/choice_fields.h).
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "serve/fields/choice_fields.h"

namespace nodewright::cli {

struct ChoiceFlags {
  std::vector<std::string> stop, bad_words, logit_bias;
  std::string stop_token_ids, regex, json_schema;
  std::optional<int64_t> min_tokens;
};

// --stop, --stop-token-ids, --min-tokens, --logit-bias, --bad-word, --regex, --json-schema.
void add_choice_flags(CLI::App& command, ChoiceFlags& flags);

// As a request line says them. Throws Error (usage) naming the option that cannot be read.
nlohmann::ordered_json line_of(const ChoiceFlags& flags);

// The same, read. `eos`: what ends the text of a grammar. Throws Error (usage) naming the option that cannot be.
RequestChoice read_choice(ChoiceReader& reader, const ChoiceFlags& flags, const SamplingOptions& sampling,
                          const std::vector<int32_t>& eos);

// Throws Error where --min-tokens exceeds --max-tokens.
void check_least(const ChoiceFlags& flags, int64_t max_tokens);

// The stop ids of a request: those of the flags, then `eos`. Throws Error (usage) for one outside the vocabulary.
std::vector<int32_t> stop_ids_of(const ChoiceFlags& flags, std::vector<int32_t> eos, int64_t vocab);

}  // namespace nodewright::cli
