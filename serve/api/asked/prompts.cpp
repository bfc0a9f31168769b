#include "serve/api/asked/prompts.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/written_number.h"

namespace nodewright {
namespace {

constexpr size_t kMostPrompts = 2048;  // of one call: more would fill any queue

CallPrompt prompt_of_text(const RequestBody& body, const ServedModel& model, const std::string& text) {
  if (!model.tokenizer) throw bad_request("prompt is text, and the model has no tokenizer.json", "prompt");
  if (!body.has("truncate_prompt_tokens")) refuse_endless_text(model, text.size(), "prompt");
  CallPrompt prompt{.text = text};
  const EncodeOptions encoding{.parse_special = true, .add_special_tokens = body.flag("add_special_tokens", true)};
  refusing(body, "prompt", [&] { prompt.tokens = model.tokenizer->encode(text, encoding); });
  return prompt;
}

CallPrompt prompt_of_ids(const RequestBody& body, const ServedModel& model, const RequestJson& ids) {
  CallPrompt prompt;
  refusing(body, "prompt", [&] { prompt.tokens = token_ids_of(ids, "prompt", model.config.vocab); });
  return prompt;
}

}  // namespace

void refuse_endless_text(const ServedModel& model, size_t bytes, const std::string& field) {
  const auto most = model.tokenizer->longest_text(static_cast<size_t>(std::max<int64_t>(model.max_model_len, 0)));
  if (most && bytes > *most)
    throw bad_request(
        fmt::format("{} has {} bytes, and this model's maximum context length of {} tokens holds at most {} bytes",
                    field, bytes, model.max_model_len, *most),
        field);
}

void refuse_long_text(size_t bytes, const std::string& field, const char* verb) {
  constexpr size_t kMost = size_t{8} << 20;
  if (bytes > kMost)
    throw bad_request(
        fmt::format("{} {} {} bytes of text, and at most {} are taken: send it in parts", field, verb, bytes, kMost),
        field);
}

std::vector<CallPrompt> completion_prompts(const RequestBody& body, const CallOptions& options,
                                           const ServedModel& model) {
  const RequestJson* asked = body.find("prompt");
  if (asked == nullptr) throw bad_request("prompt is missing", "prompt");
  std::vector<CallPrompt> prompts;
  if (asked->is_string()) {
    prompts.push_back(prompt_of_text(body, model, asked->get_ref<const std::string&>()));
  } else if (asked->is_array() && !asked->empty() && is_json_number(asked->front())) {
    prompts.push_back(prompt_of_ids(body, model, *asked));
  } else if (asked->is_array() && !asked->empty()) {
    if (asked->size() > kMostPrompts)
      throw bad_request(fmt::format("prompt has {} prompts, and a call at most {}", asked->size(), kMostPrompts),
                        "prompt");
    for (const RequestJson& one : *asked) {
      if (!one.is_string() && !one.is_array())
        throw bad_request(fmt::format("prompt holds {}, expected strings or lists of token ids", shown(one)), "prompt");
      prompts.push_back(one.is_string() ? prompt_of_text(body, model, one.get_ref<const std::string&>())
                                        : prompt_of_ids(body, model, one));
    }
  } else {
    throw bad_request(
        fmt::format("prompt is {}, expected a string, a list of token ids, or a list of these", shown(*asked)),
        "prompt");
  }
  for (CallPrompt& prompt : prompts) {
    truncate(body, options, model, prompt.tokens);
    if (prompt.tokens.empty()) throw bad_request("prompt has no tokens", "prompt");
  }
  return prompts;
}

void truncate(const RequestBody& body, const CallOptions& options, const ServedModel& model,
              std::vector<int32_t>& tokens) {
  const auto asked = body.integer("truncate_prompt_tokens", -1, INT32_MAX);
  if (!asked) return;
  if (*asked == 0)
    throw bad_request("truncate_prompt_tokens is 0, expected -1 or at least 1", "truncate_prompt_tokens");
  const int64_t room = model.max_model_len - std::max<int64_t>(1, options.max_tokens.value_or(1));
  const auto kept = static_cast<size_t>(std::max<int64_t>(*asked < 0 ? room : *asked, 1));
  if (tokens.size() > kept) tokens.erase(tokens.begin(), tokens.end() - static_cast<std::ptrdiff_t>(kept));
}

int64_t most_outputs(const CallOptions& options, const ServedModel& model, int64_t prompt_tokens,
                     const std::string& field) {
  constexpr int64_t kDefault = 16;  // of completions, as OpenAI's and vLLM's
  const int64_t room = model.max_model_len - prompt_tokens;
  if (room < 1)
    throw bad_request(
        fmt::format("{} has {} tokens, and this model's maximum context length is {} tokens, of which one "
                    "at least is an output",
                    field, prompt_tokens, model.max_model_len),
        field);
  if (!options.max_tokens) return options.endpoint == Endpoint::chat ? room : std::min(kDefault, room);
  if (*options.max_tokens > room)
    throw bad_request(
        fmt::format("{} is {}, and {} has {} tokens: together more than this model's maximum context "
                    "length of {} tokens",
                    options.max_tokens_field, *options.max_tokens, field, prompt_tokens, model.max_model_len),
        options.max_tokens_field);
  return std::max<int64_t>(*options.max_tokens, 1);
}

}  // namespace nodewright
