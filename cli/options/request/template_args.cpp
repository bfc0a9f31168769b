#include "cli/options/request/template_args.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/json_depth.h"
#include "runtime/error.h"
#include "text/chat/chat_template.h"

namespace nodewright::cli {
namespace {

// What a conversation gives its template by itself.
constexpr const char* kGiven[] = {"messages", "tools", "documents", "add_generation_prompt", "chat_template"};

[[noreturn]] void refuse_argument(const std::string& argument, std::string why) {
  throw Error({.doing = "use --template-arg", .object = argument, .detail = std::move(why), .fault = Fault::usage});
}

}  // namespace

void add_template_args(CLI::App& command, std::vector<std::string>& args) {
  command
      .add_option("--template-arg", args,
                  "NAME=VALUE of a variable of the chat template, such as enable_thinking=false, with "
                  "VALUE in JSON or else a string; repeat it for others")
      ->allow_extra_args(false);
}

void add_chat_template(CLI::App& command, std::filesystem::path& file) {
  command.add_option(
      "--chat-template", file,
      "file with a chat template in Jinja, used instead of the checkpoint's (default: the checkpoint's)");
}

void check_chat_template(const std::filesystem::path& folder, const std::filesystem::path& file) {
  if (!file.empty()) ChatTemplates::from_folder(folder, file);
}

RequestJson template_args_of(const std::vector<std::string>& args) {
  RequestJson values = RequestJson::object();
  for (const std::string& arg : args) {
    const size_t sign = arg.find('=');
    if (sign == 0 || sign == std::string::npos) refuse_argument(arg, "it is not NAME=VALUE");
    const std::string name = arg.substr(0, sign), value = arg.substr(sign + 1);
    for (const char* given : kGiven)
      if (name == given) refuse_argument(arg, fmt::format("{} is given to the template by the conversation", name));
    if (values.contains(name)) refuse_argument(arg, fmt::format("{} is there twice", name));
    if (nests_too_deep(value))
      refuse_argument(name, fmt::format("its value nests deeper than {} levels", kDeepestRequestJson));
    RequestJson parsed = RequestJson::parse(value, nullptr, false);
    values[name] = parsed.is_discarded() ? RequestJson(value) : std::move(parsed);
  }
  return values;
}

}  // namespace nodewright::cli
