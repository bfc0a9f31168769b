#include "serve/tools/tool_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <tuple>
#include <utility>

#include "runtime/error.h"

namespace nodewright {
namespace {

[[noreturn]] void refuse_tools(const std::string& why) { throw std::invalid_argument(why); }

// `place`: of the tool, as tools[0].
std::string function_name(const RequestJson& tool, const std::string& place) {
  const auto member = [](const RequestJson& object, const char* name) {
    const auto found = object.find(name);
    return found == object.end() ? nullptr : &*found;
  };
  if (!tool.is_object()) refuse_value(place, &tool, "an object with type and function");
  const RequestJson *type = member(tool, "type"), *function = member(tool, "function");
  if (type == nullptr || *type != "function") refuse_value(place + ".type", type, "\"function\"");
  const std::string of_function = place + ".function";
  if (function == nullptr || !function->is_object()) refuse_value(of_function, function, "an object with a name");
  const RequestJson* name = member(*function, "name");
  if (name == nullptr || !name->is_string()) refuse_value(of_function + ".name", name, "a string");
  for (const auto& [key, is_kind, kind] : {std::tuple("description", &RequestJson::is_string, "a string"),
                                           std::tuple("parameters", &RequestJson::is_object, "an object")})
    if (const RequestJson* value = member(*function, key);
        value != nullptr && !value->is_null() && !(value->*is_kind)())
      refuse_value(fmt::format("{}.{}", of_function, key), value, kind);
  return name->get<std::string>();
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
const CallShape kListedCalls{"[", "{\"name\": ", ", \"arguments\": ", "}", ", ", "]"};

// The place among `choice.names` of the function that tool_choice names.
size_t named_function(const RequestJson& asked, const ToolChoice& choice) {
  const RequestJson function = asked.value("function", RequestJson());
  const RequestJson name = function.is_object() ? function.value("name", RequestJson()) : RequestJson();
  if (!name.is_string())
    refuse_tools(
        fmt::format("tool_choice is {}, expected none, auto, required or a function with a name", described(asked)));
  const auto place = std::ranges::find(choice.names, name.get_ref<const std::string&>());
  if (place == choice.names.end())
    refuse_tools(fmt::format("tool_choice names {}, which is not among tools", shown(name)));
  return static_cast<size_t>(place - choice.names.begin());
}

TextStructure structure_of(const std::vector<CallableFunction>& functions, const ToolChoice& choice) {
  if (choice.form == ToolCallForm::named) return structure_of_schema(functions.front().parameters);
  return structure_of_calls(functions,
                            choice.form == ToolCallForm::tagged ? kTaggedCalls
                            : choice.form == ToolCallForm::bare ? kBareCalls
                                                                : kListedCalls,
                            choice.names_one || !choice.parallel);
}

// "the parameters of "f": " of the first function whose schema is at fault by itself.
std::string place_of_fault(const std::vector<CallableFunction>& functions) {
  for (const CallableFunction& function : functions) try {
      structure_of_schema(function.parameters);
    } catch (const std::exception&) {
      return fmt::format("the parameters of {}: ", shown(function.name));
    }
  return "";
}

// Forces a call of one of `tools`, in the form of the model. Mistral's begins with a special token, which no grammar
// makes: its list is forced alone.
void force_calls(const std::vector<RequestJson>& tools, ToolCallForm form, ToolChoice& choice) {
  std::vector<CallableFunction> functions;
  for (const RequestJson& tool : tools)
    functions.push_back({tool["function"]["name"].get<std::string>(), parameters_of(tool)});
  choice.form = form == ToolCallForm::marked ? ToolCallForm::listed
                : form != ToolCallForm::none ? form
                : choice.names_one           ? ToolCallForm::named
                                             : ToolCallForm::listed;
  const auto refuse = [&](const std::exception& error) {
    refuse_tools(fmt::format("tool_choice cannot be forced: {}{}", place_of_fault(functions), error.what()));
  };
  try {
    choice.structure = structure_of(functions, choice);
  } catch (const std::invalid_argument& error) {
    refuse(error);
  } catch (const Error& error) {
    refuse(error);
  }
}

// What a template writes around calls shows their form, where we know it.
std::optional<ToolCallForm> form_in(const std::string& text) {
  const auto has = [&](std::string_view word) { return text.find(word) != std::string::npos; };
  if (has("<function=") || has("<arg_key>")) return ToolCallForm::none;  // XML within the tags
  if (has("<tool_call>")) return ToolCallForm::tagged;
  if (has("[TOOL_CALLS]")) return ToolCallForm::marked;
  if (has("<|python_tag|>") || has("\"parameters\"")) return ToolCallForm::bare;
  return std::nullopt;
}

}  // namespace

std::optional<ToolCallParser> tool_call_parser_of(std::string_view name) {
  constexpr std::pair<std::string_view, ToolCallParser> kNames[] = {{"auto", ToolCallParser::automatic},
                                                                    {"hermes", ToolCallParser::hermes},
                                                                    {"llama3_json", ToolCallParser::llama3_json},
                                                                    {"mistral", ToolCallParser::mistral},
                                                                    {"none", ToolCallParser::none}};
  for (const auto& [known, parser] : kNames)
    if (known == name) return parser;
  return std::nullopt;
}

ToolCallForm tool_call_form_of(const ToolModel& model) {
  switch (model.parser) {
    case ToolCallParser::hermes:
      return ToolCallForm::tagged;
    case ToolCallParser::llama3_json:
      return ToolCallForm::bare;
    case ToolCallParser::mistral:
      return ToolCallForm::marked;
    case ToolCallParser::none:
      return ToolCallForm::none;
    case ToolCallParser::automatic:
      break;
  }
  if (model.shape != nullptr)
    for (const std::string* text : {&model.shape->calls, &model.shape->tools})
      if (const auto form = form_in(*text)) return *form;
  const auto knows = [&](std::string_view token) { return model.tokenizer && model.tokenizer->token_to_id(token); };
  if (knows("[TOOL_CALLS]")) return ToolCallForm::marked;
  return knows("<|python_tag|>") ? ToolCallForm::bare : ToolCallForm::none;
}

ToolChoice tool_choice_of(const ToolFields& fields, const ToolModel& model) {
  ToolChoice choice{.parallel = fields.parallel};
  const RequestJson *tools = fields.tools, *asked = fields.choice;
  if (tools != nullptr && !tools->is_array()) refuse_value("tools", tools, "a list of functions");
  if (tools == nullptr || tools->empty()) {
    if (asked != nullptr && *asked != "none" && *asked != "auto")
      refuse_tools(fmt::format("tool_choice is {}, and there are no tools", shown(*asked)));
    return choice;
  }
  for (size_t i = 0; i < tools->size(); ++i)
    choice.names.push_back(function_name((*tools)[i], fmt::format("tools[{}]", i)));
  if (asked != nullptr && *asked == "none") return choice;
  const ToolCallForm form = tool_call_form_of(model);
  const bool is_silent = fields.only_if_known && asked == nullptr;
  if (model.shape == nullptr || !(is_silent ? model.shape->reads_tools : model.shape->shows_tools))
    refuse_tools("tools is not supported: the model's chat template does not know them");
  if (asked == nullptr || *asked == "auto") {
    if (form == ToolCallForm::none && model.parser == ToolCallParser::automatic && !is_silent)
      refuse_tools(
          "tools is not supported: how the model's chat template has it call them is not known (see "
          "--tool-call-parser)");
    choice.form = form;
  } else if (*asked == "required") {
    force_calls(*tools, form, choice);
  } else if (asked->is_object()) {
    const size_t place = named_function(*asked, choice);
    choice.names = {choice.names[place]};
    choice.names_one = true;
    force_calls({(*tools)[place]}, form, choice);
  } else {
    refuse_tools(fmt::format("tool_choice is {}, expected none, auto, required or a function", described(*asked)));
  }
  return choice;
}

}  // namespace nodewright
