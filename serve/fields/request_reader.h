// The fields of a request as what the engine is asked for: those of `run`'s lines, of `serve`'s bodies, and of
// generate's and chat's options. docs/requests.md has them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/device/step_inputs.h"
#include "engine/sampling/sampling_options.h"
#include "engine/schedule/request.h"
#include "models/config/model_config.h"
#include "serve/fields/choice_fields.h"
#include "serve/fields/json_fields.h"
#include "serve/fields/request_fields.h"
#include "serve/tools/answer_parts.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// Values of requests that give none.
struct RequestDefaults {
  std::filesystem::path model;  // its chat template
  SamplingOptions sampling;
  int64_t max_tokens = 128;
  RequestJson template_args = RequestJson::object();  // variables of the chat template
  AnswerParsers parsers;
  std::filesystem::path chat_template = {};  // a file in place of the checkpoint's templates; empty: those
};

// One of the n outputs of a request.
struct AskedOutput {
  Sampling sampling;
  RequestChoice choice;
};

struct AskedRequest {
  RequestSpec spec;
  std::vector<AskedOutput> outputs;
  bool says_n = false;  // its results have an index
  bool stream = false;
  ChatForm answer;                   // of a conversation
  std::vector<std::string> denying;  // fields that say which tokens may come (serve/fields/denying_fields.h)
};

// What a request asks for but for its prompt.
struct CallFields {
  RequestSpec spec;
  CallChoice choice;
  SamplingOptions sampling;
  int64_t outputs = 1;
  bool has_seed = false, says_n = false, stream = false;
  std::vector<std::string> denying;  // as in AskedRequest
};

// Thread-safe.
class RequestReader {
 public:
  // `config` and `tokenizer` must outlive this.
  RequestReader(RequestDefaults defaults, const ModelConfig& config, const std::optional<Tokenizer>& tokenizer);

  // `number`: of the request; requests of different numbers that have no seed never draw the same numbers. Throws
  // std::invalid_argument or Error naming the field that cannot be.
  AskedRequest read(const RequestFields& fields, int64_t number);
  // What all prompts of a call share, read once; and one of its prompts.
  // `structure`: see ChoiceReader::read_call.
  CallFields read_call(const RequestFields& fields, ChatForm answer = {}, const TextStructure* structure = nullptr);
  AskedRequest asked(const CallFields& call, int64_t number, SharedList<int32_t> prompt) const;

 private:
  // The tokens of "prompt", "prompt_token_ids" or "messages", of which there must be one. Throws as read() does.
  std::vector<int32_t> prompt_of(const RequestFields& fields, ChatForm& answer);
  // The tokens of "messages" by the checkpoint's template.
  std::vector<int32_t> chat_prompt(const RequestFields& fields, ChatForm& answer);
  SamplingOptions sampling_of_request(const RequestFields& fields) const;
  const ChatTemplates& chat_templates();

  RequestDefaults defaults_;
  uint64_t seed_;  // with the number of a request, that of a request without one
  const ModelConfig& config_;
  const std::optional<Tokenizer>& tokenizer_;
  std::mutex template_mutex_;
  std::optional<ChatTemplates> templates_;  // read for the first request with messages
  ChoiceReader choices_;
};

}  // namespace nodewright
