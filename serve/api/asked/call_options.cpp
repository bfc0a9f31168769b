#include "serve/api/asked/call_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "kernels_src/sampling/record_choice.h"
#include "serve/api/asked/structured_output.h"

namespace nodewright {
namespace {

// Fields that both endpoints share with docs/requests.md.
constexpr const char* kSharedFields[] = {"n",
                                         "temperature",
                                         "top_k",
                                         "top_p",
                                         "min_p",
                                         "stop_token_ids",
                                         "ignore_eos",
                                         "min_tokens",
                                         "logit_bias",
                                         "suppress_tokens",
                                         "bad_sequences",
                                         "bad_words",
                                         "repetition_penalty",
                                         "presence_penalty",
                                         "frequency_penalty"};

void read_stream_options(const RequestBody& body, CallOptions& options) {
  const RequestJson* asked = body.object("stream_options");
  if (asked == nullptr) return;
  if (!options.stream) throw bad_request("stream_options is there, and stream is not true", "stream_options");
  const auto flag = [&](const char* name) {
    const auto value = asked->find(name);
    if (value == asked->end() || value->is_null()) return false;
    if (!value->is_boolean())
      throw bad_request(fmt::format("stream_options.{} is {}, expected true or false", name, shown(*value)),
                        "stream_options");
    return value->get<bool>();
  };
  options.include_usage = flag("include_usage");
  options.continuous_usage = options.include_usage && flag("continuous_usage_stats");
}

void read_logprobs(const RequestBody& body, CallOptions& options) {
  options.prompt_logprobs = static_cast<int>(body.integer("prompt_logprobs", 0, kMostLogprobs).value_or(-1));
  if (options.endpoint == Endpoint::completions) {
    options.logprobs = static_cast<int>(body.integer("logprobs", 0, kMostLogprobs).value_or(-1));
  } else {
    const int64_t top = body.integer("top_logprobs", 0, kMostLogprobs).value_or(0);
    if (body.flag("logprobs", false))
      options.logprobs = static_cast<int>(top);
    else if (top > 0)
      throw bad_request("top_logprobs is there, and logprobs is not true", "top_logprobs");
  }
  if (options.stream && options.prompt_logprobs >= 0)
    throw not_supported("prompt_logprobs", "a stream does not have them");
  if (options.stream && options.echo && options.logprobs >= 0 && options.n > 1)
    throw not_supported("echo", "a stream of several outputs does not have it together with logprobs");
}

void read_max_tokens(const RequestBody& body, CallOptions& options) {
  const bool chat = options.endpoint == Endpoint::chat;
  const int64_t least = chat || !options.echo ? 1 : 0;
  options.max_tokens = body.integer("max_tokens", least, INT32_MAX);
  // The newer name counts where a chat has both, as in vLLM; of completions it is an alias.
  const char* const newer_name = "max_completion_tokens";
  const std::optional<int64_t> newer = body.integer(newer_name, least, INT32_MAX);
  if (!newer || (!chat && options.max_tokens)) return;
  options.max_tokens = newer;
  options.max_tokens_field = newer_name;
}

void refuse_what_changes_the_answer(const RequestBody& body, const CallOptions& options) {
  if (const RequestJson* suffix = body.find("suffix"); suffix != nullptr && *suffix != "")
    throw not_supported("suffix", "no model here fills in the middle");
  if (const auto best_of = body.integer("best_of", 0, INT32_MAX); best_of && *best_of > options.n)
    throw not_supported("best_of", "all outputs that are computed are sent; see n");
  if (body.flag("use_beam_search", false)) throw not_supported("use_beam_search");
  for (const char* name : {"prompt_embeds", "logits_processors", "kv_transfer_params", "mm_processor_kwargs"})
    if (body.has(name)) throw not_supported(name);
  if (options.endpoint == Endpoint::completions) return;
  if (options.echo) throw not_supported("echo", "continue_final_message continues a message");
  for (const char* name : {"functions", "function_call"})
    if (body.has(name)) throw not_supported(name, "see tools and tool_choice");
  for (const char* name : {"audio", "web_search_options"})
    if (body.has(name)) throw not_supported(name);
  if (const RequestJson* modalities = body.find("modalities");
      modalities != nullptr && *modalities != RequestJson{"text"})
    throw not_supported("modalities", "text is the only one");
}

// Where neither a call nor the command line says: OpenAI's default is 1, and a checkpoint that has one for itself knows
// better, as in vLLM.
std::optional<double> own_temperature(const ServedModel& model) {
  const SamplingOptions& defaults = model.defaults.sampling;
  if (defaults.temperature || defaults.greedy) return std::nullopt;
  return model.config.generation.temperature.value_or(1.0);
}

}  // namespace

CallOptions call_options(const RequestBody& body, Endpoint endpoint, const ServedModel& model) {
  CallOptions options{.endpoint = endpoint};
  options.stream = body.flag("stream", false);
  read_stream_options(body, options);
  options.echo = body.flag("echo", false);
  options.n = body.integer("n", 1, 128).value_or(1);
  read_max_tokens(body, options);
  read_logprobs(body, options);
  options.skip_special = body.flag("skip_special_tokens", true);
  options.include_stop = body.flag("include_stop_str_in_output", false);
  options.return_token_ids = body.flag("return_token_ids", false);
  options.tokens_as_ids = body.flag("return_tokens_as_token_ids", false);
  const auto ids = [&](const char* name) {
    std::vector<int32_t> found;
    if (const RequestJson* value = body.find(name))
      refusing(body, name, [&] { found = token_ids_of(*value, name, model.config.vocab); });
    return found;
  };
  options.stop_ids = ids("stop_token_ids");
  options.allowed = ids("allowed_token_ids");
  if (body.has("allowed_token_ids") && options.allowed.empty())
    throw bad_request("allowed_token_ids is [], expected at least one token", "allowed_token_ids");
  refuse_what_changes_the_answer(body, options);
  return options;
}

Sampling default_sampling(const ServedModel& model) {
  SamplingOptions options = model.defaults.sampling;
  if (const std::optional<double> own = own_temperature(model)) options.temperature = own;
  Sampling sampling = sampling_of(options, model.config.generation);
  sampling.seed = options.seed;
  return sampling;
}

ChoiceLine choice_line(const RequestBody& body, const CallOptions& options, const ServedModel& model) {
  ChoiceLine made{RequestJson::object(), structure_of(body)};
  RequestJson& line = made.fields;
  for (const char* name : kSharedFields)
    if (const RequestJson* value = body.find(name)) line[name] = *value;
  if (const RequestJson* stop = body.find("stop"); stop != nullptr && !(stop->is_array() && stop->empty())) {
    line["stop"] = *stop;
    if (!options.skip_special)
      throw not_supported("skip_special_tokens", "false together with stop, which looks at text without them");
  }
  if (const RequestJson* seed = body.find("seed")) {
    const bool negative = seed->is_number_integer() && !seed->is_number_unsigned() && seed->get<int64_t>() < 0;
    line["seed"] = negative ? RequestJson(static_cast<uint64_t>(seed->get<int64_t>())) : *seed;
  }
  if (const std::optional<double> own = own_temperature(model); own && !line.contains("temperature"))
    line["temperature"] = *own;
  if (options.logprobs >= 0) line["logprobs"] = options.logprobs;
  if (options.scored_prompt() >= 0) line["prompt_logprobs"] = options.scored_prompt();
  if (made.structure && !options.allowed.empty())
    throw not_supported("allowed_token_ids", fmt::format("together with {}: drop one of them", made.structure->field));
  return made;
}

}  // namespace nodewright
