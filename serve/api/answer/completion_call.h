// A call of /v1/completions: its chunks, and its body.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/api/answer/api_call.h"
#include "serve/api/answer/logprob_shapes.h"

namespace nodewright {

class CompletionCall final : public ApiCall {
 public:
  CompletionCall(CallParts parts, const ServedModel& model);

 private:
  std::string_view chunk_object() const override { return "text_completion"; }
  void append_piece(std::string& events, const Output& output, const OutputPiece& piece) override;
  void keep_piece(const Output& output, const OutputPiece& piece) override;
  std::string body(const std::string& usage) override;

  void append_choice(std::string& out, const Output& output);
  std::string echoed_text(const Output& output) const;
  const CompletionLogprobs& echoed_logprobs(const Output& output);
  const std::string& scored_text(const Output& output);
  void add_logprobs(const OutputPiece& piece, CompletionLogprobs& logprobs) const;

  TokenSpelling spelling_;
  std::string head_;  // of every chunk
  // [prompts]; made for the first output of a prompt, all of whose tokens are scored before one is chosen.
  std::vector<std::optional<CompletionLogprobs>> echoed_;
  std::vector<std::string> scored_;  // the field prompt_logprobs
  // The texts of calls that do not stream, by the index of the output.
  std::vector<std::string> texts_;
  std::vector<CompletionLogprobs> logprobs_;
};

}  // namespace nodewright
