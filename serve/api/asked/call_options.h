// What a call wants of its answer's shape, and the line of request fields (docs/requests.md) that says what it wants of
// the engine.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/asked/request_body.h"
#include "serve/api/asked/structured_output.h"
#include "serve/api/served_model.h"

namespace nodewright {

enum class Endpoint : uint8_t { completions, chat };

struct CallOptions {
  Endpoint endpoint = Endpoint::completions;
  bool stream = false;
  bool include_usage = false;     // a stream ends with a chunk that has no choice but the usage
  bool continuous_usage = false;  // every chunk has one
  bool echo = false;              // the text begins with the prompt
  int64_t n = 1;                  // outputs of each prompt
  std::optional<int64_t> max_tokens;
  std::string max_tokens_field = "max_tokens";  // as the body calls it
  int logprobs = -1;         // of each token of the answer, with this many of the likeliest; -1: none
  int prompt_logprobs = -1;  // the same of the prompt, in a field of its own
  bool skip_special = true;
  bool include_stop = false;         // the stop string or token is part of the text
  bool return_token_ids = false;     // beside the text
  bool tokens_as_ids = false;        // of log probabilities: "token_id:5" for the spelling
  std::vector<int32_t> stop_ids;     // that the body names: as stop_reason
  std::vector<int32_t> allowed;      // token ids; empty: all
  std::vector<std::string> denying;  // fields that say which tokens may come
  std::vector<int32_t> shown;        // special tokens that are text although skip_special
  // An echo of nothing but the prompt: the engine chooses one token, which is dropped.
  bool drops_output() const { return max_tokens == 0; }
  // What the engine is asked to score the prompt with; -1: nothing.
  int scored_prompt() const { return echo ? std::max(logprobs, prompt_logprobs) : prompt_logprobs; }
};

// Throws ApiError 400 naming the field.
CallOptions call_options(const RequestBody& body, Endpoint endpoint, const ServedModel& model);

// The fields of the body by which the engine chooses tokens, but for the prompt, max_tokens and stream. Throws ApiError
// 400 naming the field for what would change the answer and cannot be done; the values are RequestReader's to judge.
struct ChoiceLine {
  RequestJson fields;
  std::optional<FieldStructure> structure;  // what the text must follow
};
ChoiceLine choice_line(const RequestBody& body, const CallOptions& options, const ServedModel& model);

// How tokens of a call are chosen whose body names no such field. The seed is the command line's; without one each call
// draws its own.
Sampling default_sampling(const ServedModel& model);

}  // namespace nodewright
