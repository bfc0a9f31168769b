// One call of a client from its submissions to its answer: updates of the engine in, events of a stream or one JSON
// body out. Knows no socket and no engine.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/api/answer/output_text.h"
#include "serve/api/answer/usage.h"
#include "serve/api/api_error.h"
#include "serve/api/asked/call_options.h"
#include "serve/api/asked/prompts.h"
#include "serve/loop/submission.h"

namespace nodewright {

// Counts of a call, for the log.
struct CallCounts {
  Usage usage;
  std::vector<std::string> finish_reasons;  // of each output by its index; empty: it has not ended
};

// What a call is made of.
struct CallParts {
  CallOptions options;
  std::string id, model;  // as answers say
  int64_t created = 0;    // seconds since 1970
  std::vector<CallPrompt> prompts;
  std::vector<Submission> submissions;  // one for each prompt, with n outputs each
};

// Used by one thread at a time. `model` must outlive it.
class ApiCall {
 public:
  ApiCall(CallParts parts, const ServedModel& model);
  virtual ~ApiCall() = default;
  ApiCall(const ApiCall&) = delete;
  ApiCall& operator=(const ApiCall&) = delete;

  // One for each prompt, to be given listeners. The second call returns none.
  std::vector<Submission> submissions() { return std::exchange(parts_.submissions, {}); }
  bool streams() const { return parts_.options.stream; }
  const std::string& id() const { return parts_.id; }  // "cmpl-..." or "chatcmpl-..."

  // The events to be sent now; empty where the call does not stream, or there is nothing to send. An output that failed
  // or was cancelled ends the call as fail() does: is_done(), and the others should be cancelled.
  std::string update(const OutputUpdate& update);
  // Every output has ended, or one has failed.
  bool is_done() const { return failure_ || ended_ == outputs_.size(); }
  // To be called once, when it is done. For a stream: the rest to be sent, which is the usage, if asked for, and
  // [DONE]. Otherwise: the body, whose status is status().
  std::string finish();
  // The error for the client where the engine refuses the call with `reason`: 404 where its adapter has gone since the
  // call was read, else 400.
  ApiError refusal(const std::string& reason) const;
  // Ends the call with this error. For a stream: the event of the error and [DONE]; otherwise: the body.
  std::string fail(const ApiError& error);

  // The error that the call has ended with; null: none.
  const ApiError* failure() const { return failure_ ? &*failure_ : nullptr; }
  int status() const { return failure_ ? failure_->status() : 200; }
  CallCounts counts() const;

 protected:
  struct Output {
    int index = 0;  // of its choice
    OutputText text;
    bool has_begun = false;    // a piece was sent
    int64_t tokens = 0;        // chosen
    std::vector<int32_t> ids;  // the same; of calls that return them and do not stream
    std::string finish_reason, stop_reason;
  };

  const CallOptions& options() const { return parts_.options; }
  const ServedModel& model() const { return model_; }
  size_t outputs() const { return outputs_.size(); }
  const Output& output(size_t index) const { return outputs_[index]; }
  size_t prompt_index(const Output& output) const {
    return static_cast<size_t>(output.index) / static_cast<size_t>(parts_.options.n);
  }
  const CallPrompt& prompt_of(const Output& output) const { return parts_.prompts[prompt_index(output)]; }
  // The engine's log probabilities of the prompt, without its first token.
  const std::vector<TokenLogprobs>& prompt_logprobs(const Output& output) const;

  // Appends {"id","object","created","model": the beginning of every answer.
  void append_head(std::string& out, std::string_view object) const;
  // Appends ,"usage":... and the end of a stream's event, where the call has it.
  void append_tail(std::string& out, const Output& output) const;
  // Appends "finish_reason":..., and "stop_reason":... where it has ended.
  static void append_finish(std::string& out, std::string_view finish_reason, const std::string& stop_reason);

 private:
  // The object of chunks, and of the body.
  virtual std::string_view chunk_object() const = 0;
  // Appends the events of the piece.
  virtual void append_piece(std::string& events, const Output& output, const OutputPiece& piece) = 0;
  // Keeps the piece for the body.
  virtual void keep_piece(const Output& output, const OutputPiece& piece) = 0;
  virtual std::string body(const std::string& usage) = 0;

  ApiError error_of(const Resolution& end) const;
  void tell(std::string& events, Output& output, const OutputPiece& piece);
  Usage usage() const;

  CallParts parts_;
  const ServedModel& model_;
  std::string adapter_;                                      // empty: none
  std::vector<Output> outputs_;                              // by index
  std::vector<std::vector<TokenLogprobs>> prompt_logprobs_;  // [prompts]
  std::vector<int64_t> cached_;                              // [prompts] tokens
  size_t ended_ = 0;
  std::optional<ApiError> failure_;
  bool is_finished_ = false;
};

}  // namespace nodewright
