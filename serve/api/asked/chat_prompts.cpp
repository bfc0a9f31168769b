#include "serve/api/asked/chat_prompts.h"

#include <fmt/format.h>

#include <utility>

#include "runtime/error.h"
#include "serve/api/asked/prompts.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_messages(const std::string& why) { throw bad_request(why, "messages"); }

}  // namespace

ChatPrompts::ChatPrompts(const ServedModel& model) : model_(model) {
  try {
    templates_.emplace(ChatTemplates::from_folder(model.folder, model.defaults.chat_template));
  } catch (const TemplateBytesError&) {
    throw;
  } catch (const Error& error) {
    why_none_ = error.what();
  }
}

const TemplateShape* ChatPrompts::shape(const RequestBody& body) const {
  if (!templates_) return nullptr;
  const RequestJson* tools = body.array("tools");
  const TemplateShape* shape = nullptr;
  refusing(body, "messages",
           [&] { shape = &templates_->chosen(tools != nullptr && !tools->empty(), template_name(body)).shape(); });
  return shape;
}

ChatPrompts::ChatTokens ChatPrompts::tokens_of(const RequestBody& body, bool of_any_length) const {
  if (!templates_) refuse_messages(fmt::format("messages need a chat template: {}; see /v1/completions", why_none_));
  if (!model_.tokenizer) refuse_messages("messages are text, and the model has no tokenizer.json");
  const RenderedChat rendered = render(body);
  if (!of_any_length && !body.has("truncate_prompt_tokens"))
    refuse_endless_text(model_, rendered.prompt.text.size(), "messages");
  if (of_any_length) refuse_long_text(rendered.prompt.text.size(), "messages", "make");
  std::vector<int32_t> tokens;
  refusing(body, "messages", [&] {
    tokens =
        model_.tokenizer->encode(rendered.prompt.text, {.parse_special = true,
                                                        .plain = rendered.prompt.plain,
                                                        .add_special_tokens = body.flag("add_special_tokens", false)});
  });
  if (tokens.empty()) refuse_messages("messages make a prompt without tokens");
  return {std::move(tokens), rendered.thought};
}

// The name of one of the checkpoint's templates, the only ones there are; empty where the call names none.
std::string ChatPrompts::template_name(const RequestBody& body) const {
  const RequestJson* more = body.object("chat_template_kwargs");
  const bool is_variable = more != nullptr && more->contains("chat_template") && !(*more)["chat_template"].is_null();
  const RequestJson* named = is_variable ? &(*more)["chat_template"] : body.find("chat_template");
  if (named == nullptr) return {};
  const char* const field = is_variable ? "chat_template_kwargs" : "chat_template";
  if (!named->is_string() || !templates_->has(named->get<std::string>()))
    throw bad_request(
        fmt::format("{} brings a chat_template, and the checkpoint's are the only ones, by their names: {}", field,
                    templates_->names()),
        field);
  return named->get<std::string>();
}

RenderedChat ChatPrompts::render(const RequestBody& body) const {
  const RequestJson* messages = body.array("messages");
  if (messages == nullptr) refuse_messages("messages is missing");
  ChatAsk asked{.messages = *messages, .variables = model_.defaults.template_args};
  if (const RequestJson* more = body.object("chat_template_kwargs")) asked.variables.update(*more);
  asked.variables.erase("chat_template");
  asked.tools = body.array("tools");
  asked.documents = body.array("documents");
  asked.template_name = template_name(body);
  asked.generates = body.flag("add_generation_prompt", true);
  asked.continues = body.flag("continue_final_message", false);
  if (asked.continues && asked.generates)
    throw bad_request("continue_final_message needs add_generation_prompt false", "continue_final_message");
  RenderedChat rendered;
  refusing(body, "messages", [&] { rendered = rendered_chat(*templates_, std::move(asked)); });
  return rendered;
}

}  // namespace nodewright
