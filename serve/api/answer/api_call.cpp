#include "serve/api/answer/api_call.h"

#include <fmt/format.h>

#include <iterator>

#include "serve/api/answer/event_text.h"
#include "serve/api/served_model.h"
#include "serve/fields/denying_fields.h"

namespace nodewright {
namespace {

int64_t echoed_characters(const CallPrompt& prompt, const CallOptions& options) {
  return options.echo && prompt.text ? count_characters(*prompt.text) : 0;
}

}  // namespace

ApiCall::ApiCall(CallParts parts, const ServedModel& model)
    : parts_(std::move(parts)), model_(model), prompt_logprobs_(parts_.prompts.size()), cached_(parts_.prompts.size()) {
  if (!parts_.submissions.empty()) adapter_ = parts_.submissions.front().asked.spec.adapter;
  for (const Submission& submission : parts_.submissions)
    for (size_t k = 0; k < submission.asked.outputs.size(); ++k) {
      const int index = submission.first_index + static_cast<int>(k);
      const CallPrompt& prompt = parts_.prompts[outputs_.size() / static_cast<size_t>(parts_.options.n)];
      outputs_.push_back(
          {.index = index,
           .text = OutputText(model.tokenizer, parts_.options, submission.asked.outputs[k].choice.stops != nullptr,
                              echoed_characters(prompt, parts_.options))});
    }
}

// What the request itself asks for in vain is its own fault: the server's are 500.
ApiError ApiCall::error_of(const Resolution& end) const {
  const std::string& why = end.message;
  if (end.reason == EndReason::cancelled) return {503, why.empty() ? "the request was cancelled" : why};
  const std::vector<std::string>& fields = options().denying;
  if (!end.by_request || fields.empty()) return {500, why.empty() ? "the request failed" : why};
  return bad_request(asked_in_vain(fields, why), fields.front().substr(0, fields.front().find('.')));
}

std::string ApiCall::update(const OutputUpdate& update) {
  Output& output = outputs_.at(static_cast<size_t>(update.index));
  if (is_done() || !output.finish_reason.empty()) return {};
  if (update.end && (update.end->reason == EndReason::failed || update.end->reason == EndReason::cancelled)) {
    std::string events = fail(error_of(*update.end));
    if (streams()) return events;
    is_finished_ = false;  // finish() has the body
    return {};
  }
  if (output.index % options().n == 0) {  // the engine tells them once
    std::vector<TokenLogprobs>& scored = prompt_logprobs_[prompt_index(output)];
    scored.insert(scored.end(), update.prompt_logprobs.begin(), update.prompt_logprobs.end());
  }
  std::string events;
  for (const OutputPiece& piece : output.text.pieces(update)) tell(events, output, piece);
  if (update.end) {
    if (output.index % options().n == 0) cached_[prompt_index(output)] = update.end->found_tokens;
    ++ended_;
  }
  return events;
}

void ApiCall::tell(std::string& events, Output& output, const OutputPiece& piece) {
  output.tokens += std::ssize(piece.tokens);
  output.finish_reason = piece.finish_reason;
  output.stop_reason = piece.stop_reason;
  if (streams()) {
    append_piece(events, output, piece);
  } else {
    if (options().return_token_ids) output.ids.insert(output.ids.end(), piece.tokens.begin(), piece.tokens.end());
    keep_piece(output, piece);
  }
  output.has_begun = true;
}

std::string ApiCall::finish() {
  if (is_finished_) return {};
  is_finished_ = true;
  if (failure_) return streams() ? std::string() : error_body(*failure_);
  std::string counted;
  append_usage(counted, usage());
  if (!streams()) return body(counted);
  std::string events;
  if (options().include_usage) {
    std::string chunk;
    append_head(chunk, chunk_object());
    append_event(events, fmt::format(R"({},"choices":[],"usage":{}}})", chunk, counted));
  }
  return events.append(kDoneEvent);
}

ApiError ApiCall::refusal(const std::string& reason) const {
  if (!adapter_.empty() && !model_.adapters->has(adapter_)) return no_such_adapter(adapter_, "model");
  return bad_request(reason);
}

std::string ApiCall::fail(const ApiError& error) {
  if (is_finished_) return {};
  is_finished_ = true;
  failure_ = error;
  if (!streams()) return error_body(error);
  std::string events;
  append_event(events, error_body(error));
  return events.append(kDoneEvent);
}

CallCounts ApiCall::counts() const {
  CallCounts counts{.usage = usage()};
  for (const Output& output : outputs_) counts.finish_reasons.push_back(output.finish_reason);
  return counts;
}

Usage ApiCall::usage() const {
  Usage usage{.cached_tokens = 0};
  for (const CallPrompt& prompt : parts_.prompts) usage.prompt_tokens += std::ssize(prompt.tokens);
  for (const Output& output : outputs_) usage.completion_tokens += output.tokens;
  for (const int64_t cached : cached_) *usage.cached_tokens += cached;
  return usage;
}

const std::vector<TokenLogprobs>& ApiCall::prompt_logprobs(const Output& output) const {
  return prompt_logprobs_[prompt_index(output)];
}

void ApiCall::append_head(std::string& out, std::string_view object) const {
  out += R"({"id":)";
  append_json_string(out, parts_.id);
  fmt::format_to(std::back_inserter(out), R"(,"object":"{}","created":{},"model":)", object, parts_.created);
  append_json_string(out, parts_.model);
}

void ApiCall::append_tail(std::string& out, const Output& output) const {
  if (options().continuous_usage) {
    out += R"(,"usage":)";
    append_usage(out, {.prompt_tokens = std::ssize(prompt_of(output).tokens), .completion_tokens = output.tokens});
  } else if (options().include_usage) {
    out += R"(,"usage":null)";
  }
  out += "}\n\n";
}

void ApiCall::append_finish(std::string& out, std::string_view finish_reason, const std::string& stop_reason) {
  if (finish_reason.empty())
    out += R"("finish_reason":null)";
  else
    fmt::format_to(std::back_inserter(out), R"("finish_reason":"{}","stop_reason":{})", finish_reason, stop_reason);
}

}  // namespace nodewright
