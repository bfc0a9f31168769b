#include "serve/api/openai_api.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <utility>

#include "runtime/error.h"
#include "serve/api/answer/chat_call.h"
#include "serve/api/answer/completion_call.h"
#include "serve/api/asked/prompts.h"
#include "serve/api/call_id.h"
#include "serve/fields/denying_fields.h"

namespace nodewright {
namespace {

constexpr int64_t kMostOutputsOfCall = 4096;
constexpr int64_t kMostScored = 4'000'000;  // of prompts in one answer: 80 MB of JSON

// vLLM's allowed_token_ids: one mask for all outputs of a call.
MaskFunction only(const std::vector<int32_t>& tokens, int64_t vocab) {
  auto mask = std::make_shared<std::vector<uint32_t>>(static_cast<size_t>((vocab + 31) / 32), 0);
  for (const int32_t id : tokens) (*mask)[static_cast<size_t>(id) / 32] |= 1u << (id % 32);
  return [mask = std::move(mask)](std::span<const int32_t>, std::span<uint32_t> allowed) {
    std::ranges::copy(std::span(*mask).first(std::min(mask->size(), allowed.size())), allowed.begin());
  };
}

// Every output of a completion repeats what its prompt was scored with.
void refuse_too_many_scores(const CallParts& parts) {
  const CallOptions& options = parts.options;
  if (options.scored_prompt() < 0) return;
  const int64_t repeated = options.endpoint == Endpoint::completions ? options.n : 1;
  int64_t tokens = 0;
  for (const CallPrompt& prompt : parts.prompts) tokens += std::ssize(prompt.tokens);
  const int64_t scored = tokens * repeated * (options.scored_prompt() + 1);
  if (scored > kMostScored)
    throw bad_request(
        fmt::format(
            "the answer would hold {} log probabilities of prompts ({} tokens, {} of each, for {} outputs), and "
            "at most {} are sent: ask for fewer of the likeliest, or in several calls",
            scored, tokens, options.scored_prompt() + 1, repeated, kMostScored),
        options.prompt_logprobs >= 0 ? "prompt_logprobs" : "logprobs");
}

// The text of the prompt as it will be echoed.
void fill_text(const ServedModel& model, const CallOptions& options, bool cut, CallPrompt& prompt) {
  if (!options.echo || (prompt.text && !cut)) return;
  if (model.tokenizer)
    prompt.text = model.tokenizer->decode(prompt.tokens, options.skip_special);
  else
    throw not_supported("echo", "the model has no tokenizer.json");
}

}  // namespace

OpenAiApi::OpenAiApi(ServedModel model)
    : model_(named(std::move(model))),
      reader_(model_.defaults, model_.config, model_.tokenizer),
      chat_prompts_(model_) {}

std::unique_ptr<ApiCall> OpenAiApi::completions(std::string_view body, std::string_view request_id) {
  return std::make_unique<CompletionCall>(parsed_completions(body, request_id).parts, model_);
}

std::unique_ptr<ApiCall> OpenAiApi::chat(std::string_view body, std::string_view request_id) {
  ParsedCall call = parsed_chat(body, request_id);
  return std::make_unique<ChatCall>(std::move(call.parts), model_, call.answer);
}

OpenAiApi::ParsedCall OpenAiApi::parsed_completions(std::string_view text, std::string_view request_id) {
  const RequestBody body = RequestBody::parse(text);
  check_model(model_, body);
  ParsedCall call{parts_of(body, call_options(body, Endpoint::completions, model_), "cmpl-", request_id), {}};
  const CallOptions& options = call.parts.options;
  const ChoiceLine line = choice_line(body, options, model_);
  call.parts.prompts = completion_prompts(body, options, model_);
  for (CallPrompt& prompt : call.parts.prompts) fill_text(model_, options, body.has("truncate_prompt_tokens"), prompt);
  add_submissions(body, line, "prompt", call.answer, call.parts);
  return call;
}

OpenAiApi::ParsedCall OpenAiApi::parsed_chat(std::string_view text, std::string_view request_id) {
  const RequestBody body = RequestBody::parse(text);
  check_model(model_, body);
  ParsedCall call{parts_of(body, call_options(body, Endpoint::chat, model_), "chatcmpl-", request_id), {}};
  ToolChoice tools = tool_choice(body);
  const ChoiceLine line = choice_line(body, call.parts.options, model_);
  const bool is_structured = line.structure.has_value();
  if (tools.structure && (is_structured || !call.parts.options.allowed.empty()))
    throw bad_request(
        fmt::format("tool_choice asks for a structure, and so does {}; one answer has one: drop one of them",
                    is_structured ? line.structure->field : "allowed_token_ids"),
        "tool_choice");
  auto [tokens, thought] = chat_prompts_.tokens_of(body);
  call.answer = chat_form(std::move(tools), is_structured ? ReasoningParser::none : model_.defaults.parsers.reasoning,
                          thought, model_.tokenizer);
  call.parts.options.shown = call.answer.shown;
  CallPrompt prompt{.tokens = std::move(tokens)};
  truncate(body, call.parts.options, model_, prompt.tokens);
  call.parts.prompts.push_back(std::move(prompt));
  add_submissions(body, line, "messages", call.answer, call.parts);
  return call;
}

ToolChoice OpenAiApi::tool_choice(const RequestBody& body) const {
  ToolChoice choice;
  const ToolFields fields{.tools = body.array("tools"),
                          .choice = body.find("tool_choice"),
                          .parallel = body.flag("parallel_tool_calls", true)};
  refusing(body, "", [&] {
    choice = tool_choice_of(fields, {.shape = chat_prompts_.shape(body),
                                     .tokenizer = model_.tokenizer,
                                     .parser = model_.defaults.parsers.tool_calls});
  });
  return choice;
}

CallParts OpenAiApi::parts_of(const RequestBody& body, CallOptions options, const char* prefix,
                              std::string_view request_id) const {
  constexpr size_t kLongestId = 512;
  CallParts parts{.options = std::move(options), .model = body.string("model").value_or(model_.names.front())};
  std::string id(request_id);
  if (const auto named = body.string("request_id"); named && id.empty()) id = *named;
  if (id.size() > kLongestId)
    throw bad_request(fmt::format("request_id has {} bytes, and at most {} are taken", id.size(), kLongestId),
                      "request_id");
  parts.id = id.empty() ? random_id(prefix) : prefix + id;
  parts.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return parts;
}

void OpenAiApi::add_submissions(const RequestBody& body, const ChoiceLine& line, const std::string& field,
                                const ChatForm& answer, CallParts& parts) {
  const int64_t outputs = std::ssize(parts.prompts) * parts.options.n;
  if (outputs > kMostOutputsOfCall)
    throw bad_request(fmt::format("n is {}, and {} has {} prompts: {} outputs, and a call has at most {}",
                                  parts.options.n, field, parts.prompts.size(), outputs, kMostOutputsOfCall),
                      "n");
  refuse_too_many_scores(parts);
  if (!parts.prompts.empty()) most_outputs(parts.options, model_, std::ssize(parts.prompts.front().tokens), field);
  CallFields call;
  const TextStructure* structure = line.structure ? &line.structure->structure : nullptr;
  const RequestFields fields(line.fields);
  const std::string structured = line.structure ? line.structure->field : answer.tools.structure ? "tool_choice" : "";
  parts.options.denying = denying_fields(fields, structured);
  if (!parts.options.allowed.empty()) parts.options.denying.insert(parts.options.denying.begin(), "allowed_token_ids");
  refusing(body, "", [&] {
    try {
      call = reader_.read_call(fields, answer, structure);
    } catch (const Error& error) {
      if (structured.empty() || !body.field_in(error.what()).empty()) throw;
      throw std::invalid_argument(fmt::format("{}: {}", structured, error.what()));
    }
  });
  if (!parts.options.allowed.empty())
    call.choice.options.allow = only(std::exchange(parts.options.allowed, {}), model_.config.vocab);
  call.stream = parts.options.stream;
  call.spec.adapter = asked_adapter(model_, body);
  const std::string reason = why_not(call.choice.options, call.spec.stop_ids, model_.config.vocab);
  if (!reason.empty()) {
    const std::string named = body.field_in(reason);
    throw bad_request(reason, named.empty() && body.has("logit_bias") ? "logit_bias" : named);
  }
  for (const CallPrompt& prompt : parts.prompts) {
    const int64_t most = most_outputs(parts.options, model_, std::ssize(prompt.tokens), field);
    const int first = static_cast<int>(std::ssize(parts.submissions) * parts.options.n);
    parts.submissions.push_back({.asked = asked(body, call, parts.options, prompt, most), .first_index = first});
  }
}

// What the engine would refuse is refused here, by the name of the field.
AskedRequest OpenAiApi::asked(const RequestBody& body, const CallFields& call, const CallOptions& options,
                              const CallPrompt& prompt, int64_t most) {
  if (const auto least = body.integer("min_tokens", 0, UINT32_MAX); least && *least > most)
    throw bad_request(fmt::format("min_tokens is {}, and {} is {}", *least, options.max_tokens_field, most),
                      "min_tokens");
  AskedRequest asked = reader_.asked(call, number_++, prompt.tokens);
  asked.spec.max_tokens = most;
  return asked;
}

std::string OpenAiApi::models() const { return model_list(model_); }

std::string OpenAiApi::model_named(std::string_view name) const { return model_entry(model_, name); }

std::string OpenAiApi::tokenizer_info() const { return nodewright::tokenizer_info(model_); }

std::string OpenAiApi::version() const { return RequestJson{{"version", NODEWRIGHT_VERSION}}.dump(); }

}  // namespace nodewright
