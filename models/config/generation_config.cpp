#include "models/config/generation_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <unordered_set>

#include "base/json_file.h"
#include "models/config/config_fields.h"

namespace nodewright {
namespace {

using nlohmann::json;

// What is read here and in model_config.cpp.
constexpr std::string_view kRead[] = {"eos_token_id",    "do_sample",    "temperature",        "top_k",
                                      "top_p",           "min_p",        "repetition_penalty", "min_new_tokens",
                                      "suppress_tokens", "bad_words_ids"};
// What changes no choice of a token here: how `transformers` stores and returns things, other ids, and the most
// tokens, which are the command's (--max-tokens).
constexpr std::string_view kHarmless[] = {"bos_token_id",
                                          "pad_token_id",
                                          "decoder_start_token_id",
                                          "transformers_version",
                                          "_from_model_config",
                                          "max_length",
                                          "max_new_tokens",
                                          "use_cache",
                                          "cache_implementation",
                                          "cache_config",
                                          "output_attentions",
                                          "output_hidden_states",
                                          "output_scores",
                                          "output_logits",
                                          "max_time",
                                          "chat_format",
                                          "max_window_size",
                                          "return_dict_in_generate",
                                          "user_token_id",
                                          "assistant_token_id",
                                          "trust_remote_code",
                                          "length_penalty",
                                          "early_stopping",
                                          "is_assistant",
                                          "num_assistant_tokens",
                                          "num_assistant_tokens_schedule",
                                          "assistant_confidence_threshold",
                                          "prompt_lookup_num_tokens",
                                          "max_matching_ngram_size",
                                          "compile_config",
                                          "disable_compile",
                                          "prefill_chunk_size",
                                          "low_memory",
                                          "remove_invalid_values",
                                          "renormalize_logits",
                                          "_commit_hash",
                                          "assistant_early_exit",
                                          "assistant_lookbehind",
                                          "target_lookbehind"};
// 1 is what these are where they ask for nothing; of others 0, false, null and what is empty.
constexpr std::string_view kNeutralAtOne[] = {
    "typical_p",      "num_beams", "num_beam_groups", "num_return_sequences", "encoder_repetition_penalty",
    "guidance_scale", "top_h"};

bool asks_for_nothing(const std::string& key, const json& value) {
  if (value.is_null() || (value.is_structured() && value.empty())) return true;
  if (value.is_boolean()) return !value.get<bool>();
  if (!value.is_number()) return false;
  return value.get<double>() == (std::ranges::count(kNeutralAtOne, key) > 0 ? 1.0 : 0.0);
}

std::vector<std::vector<int64_t>> read_bad_words(const ConfigFields& fields) {
  const json* list = fields.find("bad_words_ids");
  if (!list) return {};
  const auto is_id = [](const json& id) {
    return id.is_number_integer() && id.get<int64_t>() >= 0 && id.get<int64_t>() <= kMostTokens;
  };
  const auto is_word = [&](const json& word) {
    return word.is_array() && !word.empty() && std::ranges::all_of(word, is_id);
  };
  if (list->is_array() && std::ranges::all_of(*list, is_word)) return list->get<std::vector<std::vector<int64_t>>>();
  fields.fault(fmt::format("bad_words_ids is {}, expected a list of lists of token ids", in_quotes(list->dump())));
  return {};
}

}  // namespace

GenerationDefaults read_generation_defaults(const ConfigFields& fields) {
  GenerationDefaults g;
  if (fields.find("do_sample")) g.sample = fields.boolean("do_sample", false);
  if (fields.find("temperature")) g.temperature = fields.number("temperature", 1, 0, 1e4, false);
  if (fields.find("top_k")) g.top_k = std::max<int64_t>(fields.integer("top_k", 0, -1, INT32_MAX), 0);
  if (fields.find("top_p")) g.top_p = fields.number("top_p", 1, 0, 1, false);
  if (fields.find("min_p")) g.min_p = fields.number("min_p", 0, 0, 1, false);
  if (fields.find("repetition_penalty")) g.repetition_penalty = fields.number("repetition_penalty", 1, 0, 100, true);
  if (fields.find("min_new_tokens")) g.min_new_tokens = fields.integer("min_new_tokens", 0, 0, kMostTokens);
  std::unordered_set<int64_t> known;
  for (const int64_t token : fields.token_ids("suppress_tokens"))
    if (known.insert(token).second) g.suppress_tokens.push_back(token);
  g.bad_words_ids = read_bad_words(fields);
  for (const auto& [key, value] : fields.object().items())
    if (std::ranges::count(kRead, key) + std::ranges::count(kHarmless, key) == 0 && !asks_for_nothing(key, value))
      g.ignored.push_back(fmt::format("{} {}", key, value.dump(-1, ' ', true, json::error_handler_t::replace)));
  return g;
}

}  // namespace nodewright
