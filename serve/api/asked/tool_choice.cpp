// What a request says about tools: which there are, and which must be called.
#include <fmt/format.h>

#include <algorithm>

#include "serve/api/answer/tool_calls.h"
#include "serve/fields/text_structure.h"
#include "text/text_stream.h"

namespace nodewright {
namespace {

std::string function_name(const RequestJson& tool) {
  const auto refuse = [&](const char* expected) {
    throw bad_request(fmt::format("tools holds {}, expected {}", shown(tool), expected), "tools");
  };
  if (!tool.is_object()) refuse("an object");
  if (tool.value("type", RequestJson()) != "function") refuse("the type function");
  const RequestJson function = tool.value("function", RequestJson());
  if (!function.is_object() || !function.value("name", RequestJson()).is_string()) refuse("a function with a name");
  if (const RequestJson parameters = function.value("parameters", RequestJson());
      !parameters.is_null() && !parameters.is_object())
    refuse("parameters that are an object");
  return function["name"].get<std::string>();
}

RequestJson parameters_of(const RequestJson& tool) {
  const RequestJson parameters = tool["function"].value("parameters", RequestJson());
  return parameters.is_null() || parameters.empty()
             ? RequestJson{{"type", "object"}, {"properties", RequestJson::object()}}
             : parameters;
}

// As the models write them that these templates belong to.
const CallShape kTaggedCalls{"", "<tool_call>\n{\"name\": ", ", \"arguments\": ", "}\n</tool_call>", "\n", ""};
const CallShape kBareCalls{"", "{\"name\": ", ", \"parameters\": ", "}", "; ", ""};
const CallShape kListedCalls{"[", "{\"name\": ", ", \"parameters\": ", "}", ", ", "]"};

// The form that a template shows; none where it shows none that we know.
ToolCallForm form_of(const std::string& template_source) {
  if (template_source.find("<tool_call>") != std::string::npos) return ToolCallForm::tagged;
  return template_source.find("\"parameters\"") != std::string::npos ? ToolCallForm::bare : ToolCallForm::none;
}

// The place among `choice.names` of the function that tool_choice names.
size_t named_function(const RequestJson& asked, const ToolChoice& choice) {
  const RequestJson function = asked.value("function", RequestJson());
  const RequestJson name = function.is_object() ? function.value("name", RequestJson()) : RequestJson();
  if (!name.is_string())
    throw bad_request(
        fmt::format("tool_choice is {}, expected none, auto, required or a function with a name", shown(asked)),
        "tool_choice");
  const auto place = std::ranges::find(choice.names, name.get_ref<const std::string&>());
  if (place == choice.names.end())
    throw bad_request(fmt::format("tool_choice names {}, which is not among tools", shown(name)), "tool_choice");
  return static_cast<size_t>(place - choice.names.begin());
}

// Forces a call of one of `tools`, in the form of the template.
void force_calls(const RequestBody& body, const std::vector<RequestJson>& tools, ToolCallForm form,
                 ToolChoice& choice) {
  std::vector<CallableFunction> functions;
  for (const RequestJson& tool : tools) functions.push_back({function_name(tool), parameters_of(tool)});
  choice.form = form != ToolCallForm::none ? form : choice.names_one ? ToolCallForm::named : ToolCallForm::listed;
  refusing(body, "tool_choice", [&] {
    const bool only_one = choice.names_one || !choice.parallel;
    if (choice.form == ToolCallForm::named)
      choice.structure = structure_of_schema(functions.front().parameters);
    else
      choice.structure = structure_of_calls(functions,
                                            form == ToolCallForm::tagged ? kTaggedCalls
                                            : form == ToolCallForm::bare ? kBareCalls
                                                                         : kListedCalls,
                                            only_one);
  });
}

}  // namespace

ToolChoice tool_choice_of(const RequestBody& body, const std::string& template_source) {
  ToolChoice choice{.parallel = body.flag("parallel_tool_calls", true)};
  const RequestJson* tools = body.array("tools");
  const RequestJson* asked = body.find("tool_choice");
  if (tools == nullptr || tools->empty()) {
    if (asked != nullptr && *asked != "none" && *asked != "auto")
      throw bad_request(fmt::format("tool_choice is {}, and there are no tools", shown(*asked)), "tool_choice");
    return choice;
  }
  for (const RequestJson& tool : *tools) choice.names.push_back(function_name(tool));
  if (asked != nullptr && *asked == "none") return choice;
  if (template_source.find("tools") == std::string::npos)
    throw not_supported("tools", "the model's chat template does not know them");
  const ToolCallForm form = form_of(template_source);
  if (asked == nullptr || *asked == "auto") {
    if (form == ToolCallForm::none)
      throw not_supported("tools", "how the model's chat template has it call them is not known");
    choice.form = form;
  } else if (*asked == "required") {
    force_calls(body, *tools, form, choice);
  } else if (asked->is_object()) {
    const size_t place = named_function(*asked, choice);
    choice.names = {choice.names[place]};
    choice.names_one = true;
    force_calls(body, {(*tools)[place]}, form, choice);
  } else {
    throw bad_request(fmt::format("tool_choice is {}, expected none, auto, required or a function", shown(*asked)),
                      "tool_choice");
  }
  return choice;
}

// Counted in the text, and not in the grammar: 16 copies of the schemas of 20 functions are 190 000 states of a
// pattern.
EndFunction end_after_calls(EndFunction inner, const ToolChoice& choice, const Tokenizer& tokenizer,
                            bool skip_special) {
  constexpr int64_t kMostForcedCalls = 16;
  return [inner = std::move(inner), stream = TextStream(tokenizer, skip_special),
          text = ToolCallText(choice)](int32_t token) mutable -> std::optional<EndReason> {
    const std::optional<EndReason> end = inner ? inner(token) : std::nullopt;
    text.push(stream.push(token));
    return !end && text.count() >= kMostForcedCalls ? EndReason::complete : end;
  };
}

}  // namespace nodewright
