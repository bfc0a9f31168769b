// The endpoints that tell tokens and choose none: /tokenize, /detokenize, and the two that render a call.
#include <fmt/format.h>

#include <iterator>

#include "serve/api/answer/event_text.h"
#include "serve/api/asked/prompts.h"
#include "serve/api/openai_api.h"

namespace nodewright {
namespace {

const Tokenizer& tokenizer_of(const ServedModel& model) {
  if (!model.tokenizer) throw bad_request("the model has no tokenizer.json");
  return *model.tokenizer;
}

// How a call's tokens would be chosen, in vLLM's words.
std::string sampling_params(const AskedRequest& asked) {
  const Sampling& sampling = asked.outputs.front().sampling;
  const ChoiceOptions& choice = asked.outputs.front().choice.options;
  std::string text = fmt::format(
      R"({{"n":{},"temperature":{},"top_p":{},"top_k":{},"min_p":{},"seed":{},"max_tokens":{},"min_tokens":{})",
      asked.outputs.size(), sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p,
      sampling.seed.value_or(0), asked.spec.max_tokens, choice.min_tokens);
  fmt::format_to(std::back_inserter(text),
                 R"(,"repetition_penalty":{},"presence_penalty":{},"frequency_penalty":{},"stop_token_ids":)",
                 choice.repetition_penalty, choice.presence_penalty, choice.frequency_penalty);
  append_json_ids(text, asked.spec.stop_ids);
  return text + "}";
}

std::string rendered(const CallParts& parts, size_t prompt) {
  std::string text = R"({"request_id":)";
  append_json_string(text, parts.prompts.size() > 1 ? fmt::format("{}-{}", parts.id, prompt) : parts.id);
  text += R"(,"token_ids":)";
  append_json_ids(text, parts.prompts[prompt].tokens);
  text += R"(,"token_offsets":null,"sampling_params":)" + sampling_params(parts.submissions[prompt].asked);
  text += R"(,"model":)";
  append_json_string(text, parts.model);
  fmt::format_to(std::back_inserter(text), R"(,"stream":{},"stream_options":)", parts.options.stream);
  if (parts.options.include_usage)
    fmt::format_to(std::back_inserter(text), R"({{"include_usage":true,"continuous_usage_stats":{}}}}})",
                   parts.options.continuous_usage);
  else
    text += "null}";
  return text;
}

}  // namespace

std::string OpenAiApi::tokenize(std::string_view text) const {
  const RequestBody body = RequestBody::parse(text);
  check_model(model_, body);
  asked_adapter(model_, body);
  const Tokenizer& tokenizer = tokenizer_of(model_);
  std::vector<int32_t> tokens;
  if (body.has("messages") && body.has("prompt"))
    throw bad_request("prompt and messages are both there, and one of them is tokenized: drop prompt, or messages",
                      "prompt");
  if (body.has("messages")) {
    tokens = chat_prompts_.tokens_of(body, true).tokens;
  } else {
    const auto prompt = body.string("prompt");
    if (!prompt) throw bad_request("prompt is missing, and so are messages", "prompt");
    refuse_long_text(prompt->size(), "prompt", "has");
    const EncodeOptions encoding{.parse_special = true, .add_special_tokens = body.flag("add_special_tokens", true)};
    refusing(body, "prompt", [&] { tokens = tokenizer.encode(*prompt, encoding); });
  }
  std::string answer = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":)", tokens.size(), model_.max_model_len);
  append_json_ids(answer, tokens);
  answer += R"(,"token_strs":)";
  if (!body.flag("return_token_strs", false)) return answer + "null}";
  for (size_t i = 0; i < tokens.size(); ++i) {
    answer += i == 0 ? '[' : ',';
    append_json_string(answer, tokenizer.id_to_bytes(tokens[i]));
  }
  return answer + (tokens.empty() ? "[]}" : "]}");
}

std::string OpenAiApi::detokenize(std::string_view text) const {
  const RequestBody body = RequestBody::parse(text);
  check_model(model_, body);
  asked_adapter(model_, body);
  const RequestJson* ids = body.find("tokens");
  if (ids == nullptr) throw bad_request("tokens is missing", "tokens");
  std::vector<int32_t> tokens;
  refusing(body, "tokens", [&] { tokens = token_ids_of(*ids, "tokens", model_.config.vocab); });
  const Tokenizer& tokenizer = tokenizer_of(model_);
  size_t bytes = 0;
  for (const int32_t token : tokens) bytes += tokenizer.has(token) ? tokenizer.id_to_bytes(token).size() : 0;
  refuse_long_text(bytes, "tokens", "make");
  std::string answer = R"({"prompt":)";
  append_json_string(answer, tokenizer.decode(tokens, false));
  return answer + "}";
}

std::string OpenAiApi::render_completion(std::string_view text) {
  const CallParts parts = parsed_completions(text, {}).parts;
  std::string answer = "[";
  for (size_t i = 0; i < parts.prompts.size(); ++i) answer += (i > 0 ? "," : "") + rendered(parts, i);
  return answer + "]";
}

std::string OpenAiApi::render_chat(std::string_view text) { return rendered(parsed_chat(text, {}).parts, 0); }

}  // namespace nodewright
