// What a request says about tools: which there are, which must be called, and how the model writes a call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "serve/fields/json_fields.h"
#include "serve/fields/text_structure.h"
#include "text/chat/template_shape.h"
#include "text/tokenizer/tokenizer.h"

namespace nodewright {

// How the text of an answer holds calls.
enum class ToolCallForm : uint8_t {
  none,    // not at all
  tagged,  // <tool_call>{"name", "arguments"}</tool_call> beside other text: Qwen, Hermes
  bare,    // {"name", "parameters"}; ... and nothing else, perhaps after <|python_tag|>: Llama-3
  marked,  // [TOOL_CALLS] [{"name", "arguments"}, ...], or [TOOL_CALLS]name[ARGS]{...} for each, after other text:
           // Mistral
  named,   // the whole text is the arguments of one function, where the request forces one and the form is not known
  listed,  // the whole text is a list of {"name", "arguments"}, where it forces some
};

// Which form is looked for: that of the model, or one for all models, by vLLM's names.
enum class ToolCallParser : uint8_t { automatic, hermes, llama3_json, mistral, none };
// Null where no parser is called so: auto, hermes, llama3_json, mistral, none.
std::optional<ToolCallParser> tool_call_parser_of(std::string_view name);

// What is known of the model.
struct ToolModel {
  const TemplateShape* shape;  // of its chat template; null: none
  const std::optional<Tokenizer>& tokenizer;
  ToolCallParser parser = ToolCallParser::automatic;
};
// The form in which the model writes calls, as its template prints earlier ones or says it, or its vocabulary shows;
// `none` where none shows one that we know.
ToolCallForm tool_call_form_of(const ToolModel& model);

// What a request says.
struct ToolChoice {
  ToolCallForm form = ToolCallForm::none;
  std::vector<std::string> names;          // of functions; where the request names one, that one
  bool names_one = false;                  // the request names the function to be called
  bool parallel = true;                    // more than one call is taken
  std::optional<TextStructure> structure;  // what the text must follow, where the request forces a call
};

// The fields of the request; null where it has none.
struct ToolFields {
  const RequestJson* tools = nullptr;   // a list
  const RequestJson* choice = nullptr;  // "tool_choice"
  bool parallel = true;                 // "parallel_tool_calls"
  bool only_if_known = false;  // without "tool_choice", tools that the model calls in no form that we know are no error
};

// Throws std::invalid_argument that begins with the field: a tool that is no function, a choice of a function that is
// not there, a template that knows no tools, or parameters that cannot be forced.
ToolChoice tool_choice_of(const ToolFields& fields, const ToolModel& model);

}  // namespace nodewright
