#include "cli/run/result_lines.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/written_number.h"
#include "cli/output/npy.h"
#include "cli/output/standard_output.h"
#include "serve/fields/denying_fields.h"

namespace nodewright::cli {
namespace {

RequestJson usage_json(const LineOutput& output, const Resolution& end) {
  return {{"prompt_tokens", output.prompt_tokens},
          {"completion_tokens", end.outputs.size()},
          {"cached_tokens", end.found_tokens}};
}

}  // namespace

LineOutput output_of(const RequestLine& line, size_t k) {
  LineOutput output;
  output.line = line.number;
  output.id = line.id;
  if (line.says_n) output.index = static_cast<int>(k);
  output.stream = line.stream;
  output.batch = line.batch;
  output.prompt_tokens = std::ssize(line.spec.prompt);
  if (k < line.outputs.size()) output.choice = line.outputs[k].choice;
  if (!line.answer.is_plain()) output.parts.emplace(line.answer);
  output.shown = line.answer.shown;
  output.denying = line.denying;
  output.names_one = line.answer.tools.names_one;
  return output;
}

RequestJson ResultLines::head_of(const LineOutput& output) const {
  RequestJson line{{"id", output.id}};
  if (output.index) line["index"] = *output.index;
  return line;
}

void ResultLines::stream(LineOutput& output, const std::vector<int32_t>& tokens) {
  std::string text;
  if (tokenizer_ && !output.choice.stops) {
    if (!output.text) output.text.emplace(*tokenizer_, true, TextStart::behind_prompt, output.shown);
    for (const int32_t token : tokens) text += output.text->push(token);
  }
  output.unsent.insert(output.unsent.end(), tokens.begin(), tokens.end());
  print_delta(output, std::move(text));
}

// `text`: what is new of an output without stop strings. Tokens wait for the text that they complete.
void ResultLines::print_delta(LineOutput& output, std::string text, bool last) {
  if (output.choice.stops) {
    text = output.choice.stops->text().substr(output.streamed);
    output.streamed += text.size();
  }
  const AnswerPart part = new_part(output, text, last);
  const bool is_silent = part.content.empty() && part.reasoning.empty();
  if (is_silent && (output.unsent.empty() || (tokenizer_ && !last))) return;
  RequestJson line = head_of(output);
  if (tokenizer_) line["delta"] = part.content;
  if (!part.reasoning.empty()) line["reasoning_delta"] = part.reasoning;
  line["token_ids"] = std::exchange(output.unsent, {});
  print(line);
}

void ResultLines::end(LineOutput& output, const Resolution& end) {
  std::vector<int32_t> text_ids = end.outputs;
  RequestJson result{{"token_ids", end.outputs}};
  if (end.reason == EndReason::stop_id) {
    result["stop_reason"] = text_ids.back();
    text_ids.pop_back();  // no part of the text
  }
  if (output.choice.stops) {
    output.choice.stops->finish();
    if (end.reason == EndReason::stop_string) result["stop_reason"] = output.choice.stops->matched();
  }
  if (output.stream) print_delta(output, output.text ? output.text->flush() : "", true);
  std::string_view reason = finish_word(end.reason, "cancelled", "failed");
  if (tokenizer_) {
    std::string text = output.choice.stops ? output.choice.stops->text() : text_of(output, text_ids);
    if (output.parts)
      reason = add_parts(output, text, reason, result);
    else
      result["text"] = std::move(text);
  }
  std::string fields;
  if (output.choice.options.logprobs >= 0) fields += R"(,"logprobs":)" + logprobs_text(output.logprobs);
  if (output.choice.options.prompt_logprobs >= 0)
    fields += R"(,"prompt_logprobs":)" + logprobs_text(output.prompt_logprobs);
  std::string message = end.message;
  if (end.by_request && !output.denying.empty()) {
    reason = "refused";
    message = asked_in_vain(output.denying, message);
  }
  if (output.hidden_tokens > 0) result["hidden"] = written_hidden(output, message);
  result["usage"] = usage_json(output, end);
  print_result(output, reason, std::move(result), message, fields);
}

// What `text`, which is new, adds to the answer.
AnswerPart ResultLines::new_part(LineOutput& output, const std::string& text, bool last) {
  if (!output.parts) return {.reasoning = {}, .content = text};
  AnswerPart part = output.parts->push(text);
  if (last) {
    const AnswerPart rest = output.parts->finish();
    part.reasoning += rest.reasoning;
    part.content += rest.content;
  }
  output.said.reasoning += part.reasoning;
  output.said.content += part.content;
  return part;
}

std::string_view ResultLines::add_parts(LineOutput& output, const std::string& text, std::string_view reason,
                                        RequestJson& result) {
  if (!output.stream) new_part(output, text, true);  // a stream has told all of it
  result["text"] = output.said.content;
  if (!output.said.reasoning.empty()) result["reasoning_content"] = output.said.reasoning;
  RequestJson calls = RequestJson::array();
  for (const ToolCall& call : output.parts->take_calls())
    calls.push_back(
        {{"id", call.id}, {"type", "function"}, {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  if (calls.empty()) return reason;
  result["tool_calls"] = std::move(calls);
  return reason == "stop" && !output.names_one ? "tool_calls" : reason;
}

std::string ResultLines::text_of(const LineOutput& output, const std::vector<int32_t>& ids) const {
  TextStream stream(*tokenizer_, true, TextStart::behind_prompt, output.shown);
  std::string text;
  for (const int32_t id : ids) text += stream.push(id);
  return text + stream.flush();
}

void ResultLines::answer(BatchCall& batch, int64_t line, int status, const std::string& body) {
  batch.is_answered = true;
  std::string reason = status < 500 ? "refused" : "failed", message;
  if (status != 200) message = RequestJson::parse(body)["error"]["message"].get<std::string>();
  if (status == 503) reason = "cancelled";
  if (status == 200) reason = batch.call->counts().finish_reasons.front();
  write_line(batch_answer(batch, status, body));
  count(line, reason, message);
}

void ResultLines::refuse(const LineOutput& output, const std::string& message) {
  if (output.batch) {
    write_line(batch_refusal(*output.batch, "invalid_line", message));
    return count(output.line, "refused", message);
  }
  print_result(output, "refused", {{"token_ids", RequestJson::array()}}, message);
}

void ResultLines::cancel(const RequestLine& line) {
  if (!line.refused.empty()) return refuse(output_of(line, 0), line.refused);
  if (line.batch) {
    write_line(batch_refusal(*line.batch, "cancelled", "the program was told to end"));
    return count(line.number, "cancelled", "");
  }
  for (size_t k = 0; k < line.outputs.size(); ++k)
    print_result(output_of(line, k), "cancelled", {{"token_ids", RequestJson::array()}}, "");
}

void ResultLines::print_result(const LineOutput& output, std::string_view reason, RequestJson result,
                               const std::string& message, const std::string& fields) {
  RequestJson line = head_of(output);
  line["finish_reason"] = reason;
  line.update(result);
  if (!message.empty()) line["message"] = message;
  print(line, fields);
  count(output.line, reason, message);
}

void ResultLines::count(int64_t line, std::string_view reason, const std::string& message) {
  const bool served = reason == "stop" || reason == "length" || reason == "tool_calls";
  if (!served && first_unserved_.empty())
    first_unserved_ = fmt::format("line {} was {}{}{}", line, reason, message.empty() ? "" : ": ", message);
  ++counts_[std::string(reason)];
  ++count_;
  if (!is_closed()) ++written_;
}

// The path, or null: what could not be written is the message, and in the end the first of them is an error.
RequestJson ResultLines::written_hidden(const LineOutput& output, std::string& message) {
  const std::string number =
      output.index ? fmt::format("{}.{}", output.line, *output.index) : std::to_string(output.line);
  const std::filesystem::path path = hidden_dir_ / (number + ".npy");
  try {
    write_npy(path, output.hidden, output.hidden_tokens,
              static_cast<int64_t>(output.hidden.size()) / output.hidden_tokens);
    return path.string();
  } catch (const Error& error) {
    message += (message.empty() ? "" : "; ") + std::string(error.what());
    if (!hidden_unwritten_) hidden_unwritten_ = error;
    return nullptr;
  }
}

void ResultLines::print(const RequestJson& line, const std::string& fields) {
  std::string text = json_text(line);
  text.insert(text.size() - 1, fields);
  write_line(text);
}

void ResultLines::write_line(const std::string& text) {
  if (is_closed()) return;
  try {
    write_standard_output(text + "\n");
  } catch (const Error& error) {
    Error::Parts parts = error.parts();
    parts.detail += fmt::format("; {} whole results were written before", written_);
    unwritten_.emplace(parts);
  }
}

void ResultLines::demand_all_served() const {
  if (unwritten_) throw *unwritten_;
  if (hidden_unwritten_) throw *hidden_unwritten_;
  if (first_unserved_.empty()) return;
  int64_t unserved = 0;
  for (const char* reason : {"refused", "failed", "cancelled"})
    if (const auto count = counts_.find(reason); count != counts_.end()) unserved += count->second;
  throw Error({.doing = "serve",
               .object = fmt::format("{} of {} requests", unserved, count_),
               .detail = "the first of them, " + first_unserved_});
}

}  // namespace nodewright::cli
