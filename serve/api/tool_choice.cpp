// What a request says about tools: which there are, and which must be called.
#include <fmt/format.h>

#include <algorithm>

#include "serve/api/structured_output.h"
#include "serve/api/tool_calls.h"

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

// The function that tool_choice names, which is one of `choice`.
void force_function(const RequestBody& body, const RequestJson& tools, const RequestJson& asked, ToolChoice& choice) {
  const RequestJson function = asked.value("function", RequestJson());
  const RequestJson name = function.is_object() ? function.value("name", RequestJson()) : RequestJson();
  if (!name.is_string())
    throw bad_request(
        fmt::format("tool_choice is {}, expected none, auto, required or a function with a name", shown(asked)),
        "tool_choice");
  const auto place = std::ranges::find(choice.names, name.get_ref<const std::string&>());
  if (place == choice.names.end())
    throw bad_request(fmt::format("tool_choice names {}, which is not among tools", shown(name)), "tool_choice");
  const RequestJson& tool = tools[static_cast<size_t>(place - choice.names.begin())];
  choice.form = ToolCallForm::named;
  choice.pattern = schema_pattern(body, "tool_choice", parameters_of(tool));
  choice.names = {name.get<std::string>()};
}

void force_some(const RequestBody& body, const RequestJson& tools, ToolChoice& choice) {
  RequestJson calls = RequestJson::array();
  for (const RequestJson& tool : tools)
    calls.push_back(
        {{"type", "object"},
         {"properties", {{"name", {{"const", tool["function"]["name"]}}}, {"parameters", parameters_of(tool)}}},
         {"required", {"name", "parameters"}}});
  RequestJson list{{"type", "array"}, {"items", {{"anyOf", calls}}}, {"minItems", 1}};
  if (!choice.parallel) list["maxItems"] = 1;
  choice.form = ToolCallForm::listed;
  choice.pattern = schema_pattern(body, "tool_choice", list);
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
  if (asked == nullptr || *asked == "auto") {
    if (template_source.find("<tool_call>") != std::string::npos)
      choice.form = ToolCallForm::tagged;
    else if (template_source.find("\"parameters\"") != std::string::npos)
      choice.form = ToolCallForm::bare;
    else
      throw not_supported("tools", "how the model's chat template has it call them is not known");
  } else if (*asked == "required") {
    force_some(body, *tools, choice);
  } else if (asked->is_object()) {
    force_function(body, *tools, *asked, choice);
  } else {
    throw bad_request(fmt::format("tool_choice is {}, expected none, auto, required or a function", shown(*asked)),
                      "tool_choice");
  }
  return choice;
}

}  // namespace nodewright
