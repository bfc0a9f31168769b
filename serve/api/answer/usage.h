// How many tokens a call took, in OpenAI's words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nodewright {

struct Usage {
  int64_t prompt_tokens = 0;  // of each prompt once, however many outputs it has
  int64_t completion_tokens = 0;
  std::optional<int64_t> cached_tokens;  // of the prompts; none before they are known
};

// Appends {"prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details"}.
void append_usage(std::string& out, const Usage& usage);

}  // namespace nodewright
