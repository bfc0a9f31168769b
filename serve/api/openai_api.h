// The interface of OpenAI's and vLLM's clients: bodies of JSON in, calls and bodies out. Knows no socket and no engine.
//
//   OpenAiApi api(model);
//   auto call = api.completions(body);                                 // throws ApiError: error_body(error)
//   for (Submission& submission : call->submissions()) queue.push(...);
//   send(call->update(update));                                        // for each update of the engine
//   if (call->is_done()) send(call->finish());
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/answer/api_call.h"
#include "serve/api/asked/chat_prompts.h"
#include "serve/api/asked/request_body.h"
#include "serve/api/served_model.h"
#include "serve/fields/request_reader.h"
#include "serve/tools/answer_parts.h"

namespace nodewright {

// Thread-safe. Every function may throw ApiError: 400 for a field with an invalid value, 404 for another model.
class OpenAiApi {
 public:
  // What `model` refers to must outlive this.
  explicit OpenAiApi(ServedModel model);

  // POST /v1/completions, /v1/chat/completions. `request_id`: the header x-request-id, which takes precedence over the
  // body's; without either it is random. This must outlive the call.
  std::unique_ptr<ApiCall> completions(std::string_view body, std::string_view request_id = {});
  std::unique_ptr<ApiCall> chat(std::string_view body, std::string_view request_id = {});

  // GET /v1/models, /tokenizer_info, /version.
  std::string models() const;
  std::string model_named(std::string_view name) const;  // GET /v1/models/NAME
  std::string tokenizer_info() const;
  std::string version() const;
  // POST /tokenize: of "prompt", a text, or "messages". POST /detokenize: of "tokens".
  std::string tokenize(std::string_view body) const;
  std::string detokenize(std::string_view body) const;
  // POST /v1/completions/render, /v1/chat/completions/render: the tokens that a call would have, as vLLM reports them:
  // a list with an entry for each prompt, and one entry.
  std::string render_completion(std::string_view body);
  std::string render_chat(std::string_view body);

  const ServedModel& model() const { return model_; }
  // Whether chat() has a template to write conversations with.
  bool chats() const { return chat_prompts_.has_template(); }

 private:
  struct ParsedCall {
    CallParts parts;
    ChatForm answer;
  };

  ParsedCall parsed_completions(std::string_view text, std::string_view request_id);
  ParsedCall parsed_chat(std::string_view text, std::string_view request_id);
  CallParts parts_of(const RequestBody& body, CallOptions options, const char* prefix,
                     std::string_view request_id) const;
  ToolChoice tool_choice(const RequestBody& body) const;
  void add_submissions(const RequestBody& body, const ChoiceLine& line, const std::string& field,
                       const ChatForm& answer, CallParts& parts);
  AskedRequest asked(const RequestBody& body, const CallFields& call, const CallOptions& options,
                     const CallPrompt& prompt, int64_t most);

  ServedModel model_;
  RequestReader reader_;
  ChatPrompts chat_prompts_;
  std::atomic<int64_t> number_{0};  // of the next request
};

}  // namespace nodewright
