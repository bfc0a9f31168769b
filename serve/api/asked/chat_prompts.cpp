#include "serve/api/asked/chat_prompts.h"

#include <fmt/format.h>

#include <ctime>

#include "runtime/error.h"
#include "serve/api/asked/prompts.h"
#include "serve/tools/conversation.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_messages(const std::string& why) { throw bad_request(why, "messages"); }

// The prompt up to the end of what its last message says, as transformers cuts it.
void leave_open(ChatPrompt& prompt, const std::string& last) {
  const size_t begin = last.find_first_not_of(" \t\r\n"), end = last.find_last_not_of(" \t\r\n");
  if (begin == std::string::npos) refuse_messages("messages ends with an empty message, which cannot be continued");
  const std::string trimmed = last.substr(begin, end + 1 - begin), behind = last.substr(begin);
  const size_t at = prompt.text.rfind(trimmed);
  if (at == std::string::npos)
    refuse_messages("messages ends with a message that the chat template does not print as it is");
  const bool keeps_space = prompt.text.compare(at, behind.size(), behind) == 0;
  prompt.text.resize(at + (keeps_space ? behind.size() : trimmed.size()));
  prompt.plain.resize(prompt.text.size());
}

}  // namespace

ChatPrompts::ChatPrompts(const ServedModel& model) : model_(model) {
  try {
    template_.emplace(ChatTemplate::from_folder(model.folder));
    source_ = template_->source();
  } catch (const Error& error) {
    why_none_ = error.what();
  }
}

ChatPrompts::ChatTokens ChatPrompts::tokens_of(const RequestBody& body, bool of_any_length) const {
  if (!template_) refuse_messages(fmt::format("messages need a chat template: {}; see /v1/completions", why_none_));
  if (!model_.tokenizer) refuse_messages("messages are text, and the model has no tokenizer.json");
  ChatPrompt prompt = render(body);
  if (!of_any_length && !body.has("truncate_prompt_tokens"))
    refuse_endless_text(model_, prompt.text.size(), "messages");
  std::vector<int32_t> tokens;
  refusing(body, "messages", [&] {
    tokens = model_.tokenizer->encode(
        prompt.text,
        {.parse_special = true, .plain = prompt.plain, .add_special_tokens = body.flag("add_special_tokens", false)});
  });
  if (tokens.empty()) refuse_messages("messages make a prompt without tokens");
  return {std::move(tokens), std::move(prompt.text)};
}

ChatPrompt ChatPrompts::render(const RequestBody& body) const {
  RequestJson variables = model_.defaults.template_args;
  if (const RequestJson* more = body.object("chat_template_kwargs")) variables.update(*more);
  if (variables.contains("chat_template"))
    throw bad_request("chat_template_kwargs brings a chat_template, and the checkpoint's is the only one",
                      "chat_template_kwargs");
  const bool continues = body.flag("continue_final_message", false),
             generates = body.flag("add_generation_prompt", true);
  if (continues && generates)
    throw bad_request("continue_final_message needs add_generation_prompt false", "continue_final_message");
  const RequestJson* messages = body.array("messages");
  if (messages == nullptr) refuse_messages("messages is missing");
  refusing(body, "messages", [&] { variables["messages"] = checked_conversation(*messages, source_); });
  variables["add_generation_prompt"] = generates;
  for (const char* name : {"tools", "documents"})
    if (const RequestJson* list = body.array(name); list != nullptr && !list->empty()) variables[name] = *list;
  ChatPrompt prompt;
  refusing(body, "messages", [&] { prompt = template_->render(variables, std::time(nullptr)); });
  if (continues) leave_open(prompt, variables["messages"].back()["content"].get<std::string>());
  return prompt;
}

}  // namespace nodewright
