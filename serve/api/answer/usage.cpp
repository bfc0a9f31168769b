#include "serve/api/answer/usage.h"

#include <fmt/format.h>

#include <iterator>

namespace nodewright {

void append_usage(std::string& out, const Usage& usage) {
  fmt::format_to(std::back_inserter(out),
                 R"({{"prompt_tokens":{},"total_tokens":{},"completion_tokens":{},"prompt_tokens_details":)",
                 usage.prompt_tokens, usage.prompt_tokens + usage.completion_tokens, usage.completion_tokens);
  if (usage.cached_tokens)
    fmt::format_to(std::back_inserter(out), R"({{"cached_tokens":{}}}}})", *usage.cached_tokens);
  else
    out += "null}";
}

}  // namespace nodewright
