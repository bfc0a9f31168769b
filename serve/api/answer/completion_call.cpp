#include "serve/api/answer/completion_call.h"

#include <fmt/format.h>

#include <iterator>

#include "serve/api/answer/event_text.h"
#include "text/text_stream.h"

namespace nodewright {

CompletionCall::CompletionCall(CallParts parts, const ServedModel& model)
    : ApiCall(std::move(parts), model),
      spelling_(model.tokenizer, options().tokens_as_ids),
      echoed_(outputs() / static_cast<size_t>(options().n)),
      scored_(echoed_.size()),
      texts_(streams() ? 0 : outputs()),
      logprobs_(streams() ? 0 : outputs()) {
  head_ = "data: ";
  append_head(head_, chunk_object());
  head_ += R"(,"choices":[{"index":)";
}

void CompletionCall::append_piece(std::string& events, const Output& output, const OutputPiece& piece) {
  const bool echoes = options().echo && !output.has_begun;
  events += head_;
  fmt::format_to(std::back_inserter(events), R"({},"text":)", output.index);
  append_json_string(events, echoes ? echoed_text(output) + piece.text : piece.text);
  events += R"(,"logprobs":)";
  if (options().logprobs >= 0) {
    CompletionLogprobs logprobs;
    if (echoes) logprobs = echoed_logprobs(output);
    add_logprobs(piece, logprobs);
    logprobs.append_to(events);
  } else {
    events += "null";
  }
  events += ',';
  append_finish(events, piece.finish_reason, piece.stop_reason);
  if (options().return_token_ids) {
    if (!output.has_begun) {
      events += R"(,"prompt_token_ids":)";
      append_json_ids(events, prompt_of(output).tokens);
    }
    events += R"(,"token_ids":)";
    append_json_ids(events, piece.tokens);
  }
  events += "}]";
  append_tail(events, output);
}

void CompletionCall::keep_piece(const Output& output, const OutputPiece& piece) {
  const auto index = static_cast<size_t>(output.index);
  texts_[index] += piece.text;
  if (options().logprobs >= 0) add_logprobs(piece, logprobs_[index]);
}

void CompletionCall::add_logprobs(const OutputPiece& piece, CompletionLogprobs& logprobs) const {
  for (size_t i = 0; i < piece.logprobs.size(); ++i)
    logprobs.add(spelling_, piece.logprobs[i], i < piece.offsets.size() ? piece.offsets[i] : 0);
}

std::string CompletionCall::echoed_text(const Output& output) const {
  const std::optional<std::string>& text = prompt_of(output).text;
  return text ? *text : std::string();
}

const CompletionLogprobs& CompletionCall::echoed_logprobs(const Output& output) {
  std::optional<CompletionLogprobs>& kept = echoed_[prompt_index(output)];
  if (kept) return *kept;
  CompletionLogprobs& logprobs = kept.emplace();
  const std::vector<int32_t>& tokens = prompt_of(output).tokens;
  const std::vector<TokenLogprobs>& scored = prompt_logprobs(output);
  std::optional<TextStream> text;
  if (model().tokenizer) text.emplace(*model().tokenizer, options().skip_special);
  int64_t offset = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && i <= scored.size())
      logprobs.add(spelling_, scored[i - 1], offset);
    else
      logprobs.add_unscored(spelling_, tokens[i], offset);
    if (text) offset += count_characters(text->push(tokens[i]));
  }
  return logprobs;
}

const std::string& CompletionCall::scored_text(const Output& output) {
  std::string& kept = scored_[prompt_index(output)];
  if (kept.empty()) append_prompt_logprobs(kept, spelling_, prompt_logprobs(output));
  return kept;
}

std::string CompletionCall::body(const std::string& usage) {
  std::string out;
  append_head(out, "text_completion");
  out += R"(,"choices":[)";
  for (size_t i = 0; i < outputs(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, output(i));
  }
  fmt::format_to(std::back_inserter(out), R"(],"usage":{}}})", usage);
  return out;
}

void CompletionCall::append_choice(std::string& out, const Output& output) {
  const auto index = static_cast<size_t>(output.index);
  fmt::format_to(std::back_inserter(out), R"({{"index":{},"text":)", output.index);
  append_json_string(out, options().echo ? echoed_text(output) + texts_[index] : texts_[index]);
  out += R"(,"logprobs":)";
  if (options().logprobs >= 0 && options().echo) {
    CompletionLogprobs logprobs = echoed_logprobs(output);
    logprobs.append(logprobs_[index]);
    logprobs.append_to(out);
  } else if (options().logprobs >= 0) {
    logprobs_[index].append_to(out);
  } else {
    out += "null";
  }
  out += ',';
  append_finish(out, output.finish_reason, output.stop_reason);
  if (options().prompt_logprobs >= 0) {
    out += R"(,"prompt_logprobs":)";
    out += scored_text(output);
  }
  if (options().return_token_ids) {
    out += R"(,"prompt_token_ids":)";
    append_json_ids(out, prompt_of(output).tokens);
    out += R"(,"token_ids":)";
    append_json_ids(out, output.ids);
  }
  out += '}';
}

}  // namespace nodewright
