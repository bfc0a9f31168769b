// The tokens of a completions call's prompts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "serve/api/asked/call_options.h"

namespace nodewright {

struct CallPrompt {
  std::vector<int32_t> tokens;
  std::optional<std::string> text;  // as the client wrote it; none of a prompt of ids
};

// Reads "prompt": a string, strings, ids, or lists of ids. Special tokens in a text are taken as such, as in vLLM:
// clients render chat templates themselves. Throws ApiError 400.
std::vector<CallPrompt> completion_prompts(const RequestBody& body, const CallOptions& options,
                                           const ServedModel& model);

// Throws ApiError 400 naming `field` where no text of `bytes` bytes fits the context, however it is tokenized.
void refuse_endless_text(const ServedModel& model, size_t bytes, const std::string& field);

// Keeps the last tokens where "truncate_prompt_tokens" says how many; -1: as many as leave room for the outputs.
void truncate(const RequestBody& body, const CallOptions& options, const ServedModel& model,
              std::vector<int32_t>& tokens);

// The most outputs of a prompt of `prompt_tokens` tokens. Throws ApiError 400 naming `field` where the context has no
// room, and that of max_tokens where it asks for more than there is.
int64_t most_outputs(const CallOptions& options, const ServedModel& model, int64_t prompt_tokens,
                     const std::string& field);

// The same for texts of any length that are tokenized or made and answered as they are: 400 where `field` has more than
// 8 MiB of them. Their ids and spellings take ten times as much. `verb`: what the field does with them.
void refuse_long_text(size_t bytes, const std::string& field, const char* verb);

}  // namespace nodewright
