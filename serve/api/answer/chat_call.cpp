#include "serve/api/answer/chat_call.h"

#include <fmt/format.h>

#include <iterator>

#include "serve/api/answer/event_text.h"

namespace nodewright {
namespace {

// `place`: in the list, which a delta names; below 0: none.
void append_tool_call(std::string& out, const ToolCall& call, int64_t place) {
  out += '{';
  if (place >= 0) fmt::format_to(std::back_inserter(out), R"("index":{},)", place);
  out += R"("id":)";
  append_json_string(out, call.id);
  out += R"(,"type":"function","function":{"name":)";
  append_json_string(out, call.name);
  out += R"(,"arguments":)";
  append_json_string(out, call.arguments);
  out += "}}";
}

}  // namespace

ChatCall::ChatCall(CallParts parts, const ServedModel& model, const ChatForm& answer)
    : ApiCall(std::move(parts), model),
      spelling_(model.tokenizer, options().tokens_as_ids),
      names_one_(answer.tools.names_one),
      thinks_(answer.reasoning != ReasoningParser::none),
      messages_(outputs(), Message{.text = AnswerParts(answer)}) {
  head_ = "data: ";
  append_head(head_, chunk_object());
}

// The finish reason as calls of tools make it. A function that the request names ends with "stop", as at OpenAI.
std::string_view ChatCall::reason_of(const Message& message, std::string_view finish_reason) const {
  return finish_reason == "stop" && message.text.calls() > 0 && !names_one_ ? "tool_calls" : finish_reason;
}

// A piece is one chunk or, where it completes several calls, one for each. Where all of it may belong to a call, it
// waits.
void ChatCall::append_piece(std::string& events, const Output& output, const OutputPiece& piece) {
  Message& message = message_of(output);
  AnswerPart part = message.text.push(piece.text);
  const bool last = !piece.finish_reason.empty();
  if (last) {
    const AnswerPart rest = message.text.finish();
    part.reasoning += rest.reasoning;
    part.content += rest.content;
  }
  const std::vector<ToolCall> calls = message.text.take_calls();
  if (options().logprobs >= 0) append_chat_logprobs(message.logprobs, spelling_, piece.logprobs);
  if (options().return_token_ids) message.ids.insert(message.ids.end(), piece.tokens.begin(), piece.tokens.end());
  const bool says = !part.reasoning.empty() || !part.content.empty();
  const bool waits = !says && calls.empty() && !piece.text.empty();  // unlike a token of no whole character
  if (waits && output.has_begun && !last) return;
  const int64_t before = message.text.calls() - std::ssize(calls);
  for (size_t i = 0; i + 1 < calls.size(); ++i) {
    append_delta(events, output, i == 0 && !output.has_begun, std::exchange(part, {}), &calls[i],
                 before + static_cast<int64_t>(i));
    events += R"(,"logprobs":null,"finish_reason":null}])";
    append_tail(events, output);
  }
  append_delta(events, output, calls.size() < 2 && !output.has_begun, part, calls.empty() ? nullptr : &calls.back(),
               message.text.calls() - 1);
  append_rest(events, message, piece);
  append_tail(events, output);
}

// The rest of a chunk's choice: what has gathered since the last one.
void ChatCall::append_rest(std::string& events, Message& message, const OutputPiece& piece) const {
  events += R"(,"logprobs":)";
  if (options().logprobs >= 0)
    fmt::format_to(std::back_inserter(events), R"({{"content":[{}]}})", std::exchange(message.logprobs, {}));
  else
    events += "null";
  events += ',';
  append_finish(events, reason_of(message, piece.finish_reason), piece.stop_reason);
  if (options().return_token_ids) {
    events += R"(,"token_ids":)";
    append_json_ids(events, std::exchange(message.ids, {}));
  }
  events += "}]";
}

// The beginning of a chunk up to its delta. `begins`: the first of its output. `call`: null, or one that is complete,
// with its place among those of the output.
void ChatCall::append_delta(std::string& events, const Output& output, bool begins, const AnswerPart& part,
                            const ToolCall* call, int64_t place) const {
  events += head_;
  if (begins && options().return_token_ids) {
    events += R"(,"prompt_token_ids":)";
    append_json_ids(events, prompt_of(output).tokens);
  }
  fmt::format_to(std::back_inserter(events), R"(,"choices":[{{"index":{},"delta":{{)", output.index);
  if (begins) events += R"("role":"assistant",)";
  bool has_field = false;
  const auto add = [&](const char* name, const std::string& text) {
    fmt::format_to(std::back_inserter(events), R"({}"{}":)", std::exchange(has_field, true) ? "," : "", name);
    append_json_string(events, text);
  };
  if (!part.reasoning.empty()) add("reasoning_content", part.reasoning);
  if ((call == nullptr && !has_field) || begins || !part.content.empty()) add("content", part.content);
  if (call != nullptr && has_field) events += ',';
  if (call != nullptr) {
    events += R"("tool_calls":[)";
    append_tool_call(events, *call, place);
    events += ']';
  }
  events += '}';
}

void ChatCall::keep_piece(const Output& output, const OutputPiece& piece) {
  Message& message = message_of(output);
  const auto keep = [&](const AnswerPart& part) {
    message.reasoning += part.reasoning;
    message.content += part.content;
  };
  keep(message.text.push(piece.text));
  if (!piece.finish_reason.empty()) keep(message.text.finish());
  for (ToolCall& call : message.text.take_calls()) message.calls.push_back(std::move(call));
  if (options().logprobs >= 0) append_chat_logprobs(message.logprobs, spelling_, piece.logprobs);
}

std::string ChatCall::body(const std::string& usage) {
  std::string out;
  append_head(out, "chat.completion");
  out += R"(,"choices":[)";
  for (size_t i = 0; i < outputs(); ++i) {
    if (i > 0) out += ',';
    append_choice(out, output(i));
  }
  out += ']';
  if (options().prompt_logprobs >= 0) {
    out += R"(,"prompt_logprobs":)";
    append_prompt_logprobs(out, spelling_, prompt_logprobs(output(0)));
  }
  if (options().return_token_ids) {
    out += R"(,"prompt_token_ids":)";
    append_json_ids(out, prompt_of(output(0)).tokens);
  }
  fmt::format_to(std::back_inserter(out), R"(,"usage":{}}})", usage);
  return out;
}

void ChatCall::append_choice(std::string& out, const Output& output) {
  Message& message = message_of(output);
  fmt::format_to(std::back_inserter(out), R"({{"index":{},"message":{{"role":"assistant","content":)", output.index);
  if (message.content.empty() && (!message.calls.empty() || !message.reasoning.empty()))
    out += "null";
  else
    append_json_string(out, message.content);
  if (thinks_) {
    out += R"(,"reasoning_content":)";
    if (message.reasoning.empty())
      out += "null";
    else
      append_json_string(out, message.reasoning);
  }
  out += R"(,"refusal":null)";
  for (size_t i = 0; i < message.calls.size(); ++i) {
    out += i == 0 ? R"(,"tool_calls":[)" : ",";
    append_tool_call(out, message.calls[i], -1);
    if (i + 1 == message.calls.size()) out += ']';
  }
  out += R"(},"logprobs":)";
  if (options().logprobs >= 0)
    fmt::format_to(std::back_inserter(out), R"({{"content":[{}]}})", message.logprobs);
  else
    out += "null";
  out += ',';
  append_finish(out, reason_of(message, output.finish_reason), output.stop_reason);
  if (options().return_token_ids) {
    out += R"(,"token_ids":)";
    append_json_ids(out, output.ids);
  }
  out += '}';
}

}  // namespace nodewright
