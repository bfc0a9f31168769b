#include "cli/generate/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "cli/output/answer_output.h"
#include "runtime/error.h"

namespace nodewright::cli {

Conversation::Conversation(Engine& engine, const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                           ChoiceReader& choices, const ModelConfig& config, ConversationOptions options)
    : engine_(engine),
      tokenizer_(tokenizer),
      template_(chat_template),
      choices_(choices),
      config_(config),
      options_(std::move(options)) {
  reset();
}

void Conversation::reset() {
  messages_.clear();
  if (options_.system) messages_.push_back({"system", *options_.system});
}

void Conversation::replace(std::vector<ChatMessage> messages) {
  messages_ = std::move(messages);
  options_.system.reset();
  if (!messages_.empty() && messages_.front().role == "system") options_.system = messages_.front().content;
}

void Conversation::set_system(std::optional<std::string> text) {
  if (options_.system) messages_.erase(messages_.begin());
  options_.system = std::move(text);
  if (options_.system) messages_.insert(messages_.begin(), {"system", *options_.system});
}

std::optional<std::string> Conversation::take_back() {
  if (turns() == 0) return std::nullopt;
  std::string message = std::move(messages_[messages_.size() - 2].content);
  messages_.resize(messages_.size() - 2);
  return message;
}

std::vector<TokenId> Conversation::prompt_of(const std::vector<ChatMessage>& messages) const {
  return encode_prompt(tokenizer_, template_.render(messages, options_.template_args));
}

RequestOutcome Conversation::answer(const std::string& message, const Sampling& sampling,
                                    const std::function<bool()>& stopped,
                                    const std::function<void(size_t turns, const std::string& first)>& left_out) {
  const size_t oldest = options_.system ? 1 : 0;
  std::vector<ChatMessage> messages = messages_;
  messages.push_back({"user", message});
  std::vector<TokenId> prompt = prompt_of(messages);
  const int64_t room =
      std::min(options_.settings.max_tokens, std::max<int64_t>(options_.context / 4, 1));  // for the answer
  const auto fits = [&](int64_t of_answer) {
    return static_cast<int64_t>(prompt.size()) + of_answer <= options_.context;
  };
  size_t turns = 0;
  const std::string first = messages[oldest].content;
  for (; !fits(room) && messages.size() > oldest + 1; ++turns) {
    messages.erase(messages.begin() + static_cast<std::ptrdiff_t>(oldest),
                   messages.begin() + static_cast<std::ptrdiff_t>(oldest + 2));
    prompt = prompt_of(messages);
  }
  if (prompt.empty() || !fits(1))
    throw Error({.doing = "answer the message",
                 .detail = prompt.empty() ? "the chat template makes no tokens of it"
                                          : fmt::format("it has {} tokens, {} fit, and an answer needs room",
                                                        prompt.size(), options_.context),
                 .advice = prompt.empty() ? "" : "a shorter one, or a larger --max-context",
                 .fault = Fault::usage});
  if (turns > 0) left_out(turns, first);
  messages_ = std::move(messages);

  RequestChoice choice = read_choice(choices_, options_.choice, options_.settings.sampling, options_.eos);
  AnswerText text(tokenizer_, choice.stops);
  std::string said;
  AnswerOutput output;
  const auto write = [&](const std::string& part) {
    said += part;
    output.write(part);
  };
  RequestSpec spec{.prompt = std::move(prompt),
                   .max_tokens = options_.settings.max_tokens,
                   .stop_ids = stop_ids_of(options_.choice, options_.eos, config_.vocab),
                   .adapter = options_.adapter};
  const RequestOutcome outcome = serve_one(
      engine_, std::move(spec), sampling, std::move(choice.options), [&](int32_t token) { write(text.push(token)); },
      stopped);
  write(text.finish());
  output.write("\n");
  is_last_answered_ = !said.empty() || !stopped();
  if (is_last_answered_)
    messages_.push_back({"assistant", std::move(said)});
  else
    messages_.pop_back();
  return outcome;
}

}  // namespace nodewright::cli
