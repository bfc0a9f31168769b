// The messages of a conversation and the answers to them, on an engine whose prefix cache keeps what was said: a turn
// computes only what is new in its prompt. Where the context is full the oldest turns are left out.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/generate/chat_settings.h"
#include "cli/generate/one_request.h"
#include "cli/options/request/choice_flags.h"
#include "text/chat/chat_template.h"

namespace nodewright::cli {

struct ConversationOptions {
  std::optional<std::string> system;
  int64_t context = 0;  // tokens of a prompt and its answer
  std::vector<int32_t> eos;
  const ChoiceFlags& choice;
  const ChatSettings& settings;    // as they are when an answer begins
  RequestJson template_args = {};  // variables of the template; null: none
  std::string adapter = {};        // of all answers; empty: none
};

class Conversation {
 public:
  // All but the options must outlive this.
  Conversation(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate& chat_template, ChoiceReader& choices,
               const ModelConfig& config, ConversationOptions options);

  // Nothing was said yet, but by the system.
  void reset();

  // Writes the answer to standard output as it comes. Throws Error (usage), and the message counts as not said, where
  // the template refuses it or it leaves no room for an answer. `left_out` hears of turns that no longer fit: how
  // many, and what the first of them was.
  RequestOutcome answer(const std::string& message, const Sampling& sampling, const std::function<bool()>& stopped,
                        const std::function<void(size_t turns, const std::string& first)>& left_out);

  // The system's first where there is one, then user and assistant in turn.
  const std::vector<ChatMessage>& messages() const { return messages_; }
  // Goes on with these instead, a message of the system among them or none.
  void replace(std::vector<ChatMessage> messages);
  // The message of the system from now on; nothing: none.
  void set_system(std::optional<std::string> text);
  const std::optional<std::string>& system() const { return options_.system; }
  // Forgets the last answer and the message before it, which is returned. Nothing where nothing was answered.
  std::optional<std::string> take_back();

  size_t turns() const { return messages_.size() / 2; }  // that are in the context
  int64_t context() const { return options_.context; }
  // False where the last answer() was stopped before the answer had a character: its message counts as not said.
  bool is_last_answered() const { return is_last_answered_; }

 private:
  std::vector<TokenId> prompt_of(const std::vector<ChatMessage>& messages) const;

  Engine& engine_;
  const Tokenizer& tokenizer_;
  const ChatTemplate& template_;
  ChoiceReader& choices_;
  const ModelConfig& config_;
  ConversationOptions options_;
  std::vector<ChatMessage> messages_;  // the system's first, then user and assistant in turn
  bool is_last_answered_ = true;
};

}  // namespace nodewright::cli
