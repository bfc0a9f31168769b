// Log probabilities in the three shapes that clients read: of completions, of chats, and vLLM's prompt_logprobs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/sampling/choice_options.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// How tokens are spelled: their text; "bytes:\xe2\x82" where that is a part of a character only, as OpenAI has it, so
// that no two of a list are alike; "token_id:5" without a tokenizer, or where `as_ids`. The tokenizer must outlive
// this.
class TokenSpelling {
 public:
  explicit TokenSpelling(const std::optional<Tokenizer>& tokenizer, bool as_ids = false)
      : tokenizer_(tokenizer && !as_ids ? &*tokenizer : nullptr) {}

  std::string of(int32_t token) const;
  // The bytes of the token; empty where `of` tells its id.
  std::string_view bytes(int32_t token) const;

 private:
  const Tokenizer* tokenizer_;
};

// {"text_offset","token_logprobs","tokens","top_logprobs"}: the lists grow side by side.
class CompletionLogprobs {
 public:
  // `offset`: characters of the text before the token.
  void add(const TokenSpelling& spelling, const TokenLogprobs& token, int64_t offset);
  // The first token of a prompt, of which nothing is known.
  void add_unscored(const TokenSpelling& spelling, int32_t token, int64_t offset);
  // Puts the entries of `later` after these.
  void append(const CompletionLogprobs& later);
  void append_to(std::string& out) const;

 private:
  void begin_entry(const std::string& token, int64_t offset);

  std::string offsets_, logprobs_, tokens_, top_;  // without their brackets
};

// Appends entries {"token","logprob","bytes","top_logprobs"}, with commas between them; `out` is the inside of a list.
void append_chat_logprobs(std::string& out, const TokenSpelling& spelling, std::span<const TokenLogprobs> tokens);

// Appends [null, {"id": {"logprob","rank","decoded_token"}, ...}, ...]: `scored` are the tokens but for the first.
void append_prompt_logprobs(std::string& out, const TokenSpelling& spelling, std::span<const TokenLogprobs> scored);

}  // namespace nodewright
