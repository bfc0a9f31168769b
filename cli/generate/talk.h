// A person and a model at a terminal, or lines of a file: reads messages and commands until /exit, the end of the input
// or a second Ctrl-C at the prompt, and prints the answers. Ctrl-C during an answer ends the answer.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "cli/generate/chat_command.h"
#include "cli/generate/chat_settings.h"
#include "cli/generate/conversation.h"
#include "cli/generate/line_editor.h"

namespace nodewright::cli {

class Talk {
 public:
  // All must outlive this. `stats`: the times of each answer go to standard error.
  Talk(Conversation& conversation, ChatSettings& settings, const GenerationDefaults& defaults, bool stats);

  // Returns the exit code: 1 where a message could not be answered or a command could not be obeyed.
  int run();

  const Sampling& sampling() const { return sampling_; }  // of the next answer

 private:
  // What is counted over the answers so far.
  struct Totals {
    int64_t answers = 0, prompt_tokens = 0, found_tokens = 0, tokens = 0;
    RequestOutcome last;
  };

  // The next message, which may have several lines.
  ReadLine read_message();
  void obey(const ChatCommand& command);
  [[noreturn]] static void refuse(const ChatCommand& command);
  void answer(const std::string& message);
  void regenerate();
  void load(const std::string& file);
  void save(const std::string& file);
  void set(const std::string& words);
  void set_system(const std::string& text);
  void print_totals() const;
  // A word to a person at a terminal; a script gets none.
  void confirm(std::string_view words) const;

  Conversation& conversation_;
  ChatSettings& settings_;
  const GenerationDefaults& defaults_;
  const bool stats_;
  const int64_t usual_tokens_;
  Sampling sampling_;
  LineEditor editor_;
  Totals totals_;
};

}  // namespace nodewright::cli
