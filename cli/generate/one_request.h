// One request at a time on an engine that serves no other: its tokens as they come, its text, its end and its times.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "text/stop_strings.h"
#include "text/text_stream.h"

namespace nodewright::cli {

struct RequestOutcome {
  EndReason reason = EndReason::length;
  int64_t prompt_tokens = 0, found_tokens = 0;  // the latter needed no computation: the cache had them
  int64_t tokens = 0;                           // chosen, a stop id included
  double first_s = 0;                           // from the submission to the first token
  double rest_s = 0;                            // from there to the last
  bool context_full = false;                    // `length`, and not by its max_tokens
};

// `token` gets each token of the answer, without a stop id that ends it. Where `stopped` turns true it is cancelled.
// Throws Error where the engine refuses the request or fails.
RequestOutcome serve_one(Engine& engine, RequestSpec spec, const Sampling& sampling, ChoiceOptions choice,
                         const std::function<void(int32_t)>& token, const std::function<bool()>& stopped);

// The program ends here where a step did not end in time: to free its memory the driver would wait for the kernel.
void end_if_timed_out(const Engine& engine, const std::string& message);

// The lines that --stats adds for it, but for what the command itself knows.
std::string outcome_report(const RequestOutcome& outcome);

// The text of an answer, given in pieces: what may still become a stop string is held back.
class AnswerText {
 public:
  // `stops`: of the request, which pushes the tokens itself; null: it has none.
  AnswerText(const Tokenizer& tokenizer, std::shared_ptr<StopStrings> stops)
      : stream_(tokenizer, true, TextStart::behind_prompt), stops_(std::move(stops)) {}
  // What this token adds.
  std::string push(int32_t token) { return stops_ ? grown() : stream_.push(token); }
  // What is left when no token follows.
  std::string finish();

 private:
  std::string grown();

  TextStream stream_;
  std::shared_ptr<StopStrings> stops_;
  size_t given_ = 0;  // bytes of the stops' text
};

}  // namespace nodewright::cli
