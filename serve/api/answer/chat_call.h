// A call of /v1/chat/completions: its chunks, and its body.
#pragma once

#include <string>
#include <vector>

#include "serve/api/answer/api_call.h"
#include "serve/api/answer/logprob_shapes.h"
#include "serve/tools/answer_parts.h"

namespace nodewright {

class ChatCall final : public ApiCall {
 public:
  ChatCall(CallParts parts, const ServedModel& model, const ChatForm& answer);

 private:
  // What one output says.
  struct Message {
    AnswerParts text;
    std::string reasoning, content;  // of calls that do not stream
    std::string logprobs;            // the same; of a stream those that wait for an event
    std::vector<ToolCall> calls;     // of calls that do not stream
    std::vector<int32_t> ids;        // of a stream: that wait for an event
  };

  std::string_view chunk_object() const override { return "chat.completion.chunk"; }
  void append_piece(std::string& events, const Output& output, const OutputPiece& piece) override;
  void keep_piece(const Output& output, const OutputPiece& piece) override;
  std::string body(const std::string& usage) override;

  Message& message_of(const Output& output) { return messages_[static_cast<size_t>(output.index)]; }
  void append_delta(std::string& events, const Output& output, bool begins, const AnswerPart& part,
                    const ToolCall* call, int64_t place) const;
  void append_rest(std::string& events, Message& message, const OutputPiece& piece) const;
  void append_choice(std::string& out, const Output& output);
  std::string_view reason_of(const Message& message, std::string_view finish_reason) const;

  TokenSpelling spelling_;
  bool names_one_;                 // the request names the function to be called
  bool thinks_;                    // thoughts are looked for
  std::string head_;               // of every chunk
  std::vector<Message> messages_;  // by the index of the output
};

}  // namespace nodewright
