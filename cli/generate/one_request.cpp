#include "cli/generate/one_request.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "cli/output/say.h"
#include "runtime/error.h"

namespace nodewright::cli {
namespace {

using Clock = std::chrono::steady_clock;
double seconds(Clock::duration time) { return std::chrono::duration<double>(time).count(); }

std::string_view words_for(const RequestOutcome& outcome) {
  switch (outcome.reason) {
    case EndReason::stop_id:
      return "a token that ends a text";
    case EndReason::stop_string:
      return "a stop string";
    case EndReason::complete:
      return "all that the grammar asks for";
    case EndReason::length:
      return outcome.context_full ? "the context is full: see --max-context" : "as many tokens as --max-tokens allows";
    case EndReason::cancelled:
      return "interrupted";
    case EndReason::failed:
      return "it failed";
  }
  return "?";
}

}  // namespace

RequestOutcome serve_one(Engine& engine, RequestSpec spec, const Sampling& sampling, ChoiceOptions choice,
                         const std::function<void(int32_t)>& token, const std::function<bool()>& stopped) {
  RequestOutcome outcome{.prompt_tokens = static_cast<int64_t>(spec.prompt.size())};
  const int64_t found_before = engine.pipeline().pool().stats().found_tokens, most = spec.max_tokens;
  const auto start = Clock::now();
  Clock::time_point first = start, last = start;
  const auto [id, refusal] = engine.submit(std::move(spec), sampling, std::move(choice));
  if (!id) throw Error({.doing = "serve the prompt", .detail = refusal, .fault = Fault::usage});
  std::optional<Resolution> end;
  while (engine.advance() || !end) {
    if (!end && stopped()) engine.cancel(*id);
    for (const CommittedToken& one : engine.take_tokens()) {
      last = Clock::now();
      if (outcome.tokens++ == 0) first = last;
      if (one.end != EndReason::stop_id) token(one.token);
    }
    for (Resolution& one : engine.take_resolutions()) end = std::move(one);
  }
  if (end->reason == EndReason::failed) {
    end_if_timed_out(engine, end->message);
    if (end->by_request)
      throw Error({.doing = "choose a token",
                   .detail = end->message,
                   .advice = "what the options that restrict the answer ask for leaves no token: drop one of them",
                   .fault = Fault::usage});
    throw Error({.doing = "choose a token",
                 .detail = end->message,
                 .advice = "where logits hold a NaN, look for NaN or infinite values in the checkpoint"});
  }
  outcome.reason = end->reason;
  outcome.context_full = outcome.tokens < most;
  outcome.found_tokens = engine.pipeline().pool().stats().found_tokens - found_before;
  outcome.first_s = seconds(first - start);
  outcome.rest_s = seconds(last - first);
  return outcome;
}

void end_if_timed_out(const Engine& engine, const std::string& message) {
  if (!engine.slots().timed_out()) return;
  say("nodewright: {}\n", message);
  std::fflush(nullptr);
  std::_Exit(1);
}

std::string outcome_report(const RequestOutcome& outcome) {
  const int64_t computed = outcome.prompt_tokens - outcome.found_tokens;
  std::string text = fmt::format("prompt    {} tokens, {} found in the cache and {} computed", outcome.prompt_tokens,
                                 outcome.found_tokens, computed);
  if (outcome.tokens > 0)
    text += fmt::format("\nfirst     token after {:.3f} ms, {:.1f} tokens/s of the prompt", outcome.first_s * 1e3,
                        static_cast<double>(computed) / outcome.first_s);
  if (const auto more = static_cast<double>(outcome.tokens - 1); more > 0)
    text += fmt::format("\ndecode    {} tokens, {:.1f} tokens/s, {:.3f} ms/token", outcome.tokens - 1,
                        more / outcome.rest_s, outcome.rest_s * 1e3 / more);
  return text + fmt::format("\nend       {}: {}, after {} tokens\n",
                            outcome.reason == EndReason::stop_id ? "stop" : name_of(outcome.reason), words_for(outcome),
                            outcome.tokens);
}

std::string AnswerText::finish() {
  if (!stops_) return stream_.flush();
  stops_->finish();
  return grown();
}

std::string AnswerText::grown() {
  std::string text = stops_->text().substr(given_);
  given_ += text.size();
  return text;
}

}  // namespace nodewright::cli
