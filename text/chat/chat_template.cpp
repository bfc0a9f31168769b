// Finding the template, and JSON as the values of a template: all that comes from the caller is the user's.
#include "text/chat/chat_template.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "runtime/error.h"
#include "text/tokenizer/files/token_settings.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void fail_without_template(const std::filesystem::path& folder, std::string detail) {
  throw Error({.doing = "find a chat template in",
               .object = folder.string(),
               .detail = std::move(detail),
               .advice =
                   "a checkpoint made for conversation, whose name often says Instruct or Chat; this one continues "
                   "texts, as nodewright generate does"});
}

[[noreturn]] void fail(const std::filesystem::path& file, std::string detail, std::string advice = {}) {
  throw Error({.doing = "read the chat template",
               .object = file.string(),
               .detail = std::move(detail),
               .advice = std::move(advice)});
}

std::optional<std::string> read_file(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return std::nullopt;
  std::ifstream stream(path, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
  if (!stream || std::filesystem::is_directory(path, ignored)) fail(path, "the file cannot be read");
  return text;
}

// "chat_template": a string, or a list of {"name", "template"}.
std::string template_in(const Json& config, const std::filesystem::path& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null())
    fail_without_template(file.parent_path(),
                          "there is no chat_template.jinja, and no chat_template in tokenizer_config.json");
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) fail(file, fmt::format("chat_template is {}, not a string or a list", found->type_name()));
  std::string names;
  for (const auto& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("template") ||
        !entry["template"].is_string())
      fail(file, "an entry of chat_template is not a name with a template");
    if (entry["name"] == "default") return entry["template"].get<std::string>();
    names += (names.empty() ? "" : ", ") + entry["name"].get<std::string>();
  }
  fail(file, fmt::format("no chat_template is called 'default', only: {}", names));
}

jinja::Value value_of(const Json& json, int depth) {
  if (depth > jinja::kDeepestValue / 2) {
    throw Error({.doing = "render the chat template", .detail = "a message is nested too deep"});
  }
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) return json.get<double>();
      return json.get<std::int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::string:
      return jinja::Text(to_valid_utf8(json.get_ref<const std::string&>()), true);
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const auto& item : json) items.push_back(value_of(item, depth + 1));
      return items;
    }
    case Json::value_t::object: {
      std::vector<std::pair<jinja::Value, jinja::Value>> entries;
      for (const auto& [key, value] : json.items())
        entries.emplace_back(jinja::Text(to_valid_utf8(key), true), value_of(value, depth + 1));
      return entries;
    }
    default:
      return jinja::None{};
  }
}

}  // namespace

ChatTemplate ChatTemplate::from_folder(const std::filesystem::path& folder) {
  const std::filesystem::path own = folder / "chat_template.jinja", config_file = folder / "tokenizer_config.json";
  const auto source = read_file(own);
  const auto config_text = read_file(config_file);
  if (!source && !config_text)
    fail_without_template(folder, "there is neither chat_template.jinja nor tokenizer_config.json");
  const Json config = config_text ? Json::parse(*config_text, nullptr, false) : Json::object();
  if (!config.is_object()) fail(config_file, "it is not a JSON object");
  TokenSettings settings = read_token_settings(folder);
  Tokens tokens{std::move(settings.named), std::move(settings.more)};
  if (source) return ChatTemplate(*source, own.string(), std::move(tokens));
  return ChatTemplate(template_in(config, config_file), config_file.string(), std::move(tokens));
}

static ChatTemplate::Tokens named_tokens(const std::optional<std::string>& bos, const std::optional<std::string>& eos) {
  ChatTemplate::Tokens tokens;
  if (bos) tokens.named.emplace("bos_token", *bos);
  if (eos) tokens.named.emplace("eos_token", *eos);
  return tokens;
}

ChatTemplate::ChatTemplate(const std::string& source, std::string file, const std::optional<std::string>& bos_token,
                           const std::optional<std::string>& eos_token)
    : ChatTemplate(source, std::move(file), named_tokens(bos_token, eos_token)) {}

ChatTemplate::ChatTemplate(const std::string& source, std::string file, Tokens tokens)
    : source_(to_valid_utf8(source)),
      file_(std::move(file)),
      body_(jinja::parse(source_, file_)),
      tokens_(std::move(tokens)) {}

ChatPrompt ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
  return render(messages, Json::object());
}

ChatPrompt ChatTemplate::render(const std::vector<ChatMessage>& messages, const Json& more) const {
  Json list = Json::array();
  for (const auto& [role, content] : messages)
    list.push_back({{"role", to_valid_utf8(role)}, {"content", to_valid_utf8(content)}});
  Json variables = more;
  variables["messages"] = std::move(list);
  variables["add_generation_prompt"] = true;
  return render(variables, std::time(nullptr));
}

ChatPrompt ChatTemplate::render(const Json& variables, std::time_t now) const {
  jinja::Variables values;
  // `transformers` passes these two always, as none where there is nothing.
  for (const char* name : {"tools", "documents"}) values.emplace_back(name, jinja::None{});
  for (const auto& [name, token] : tokens_.named) values.emplace_back(name, jinja::Text(token));
  if (!tokens_.more.empty()) {
    const std::vector<jinja::Value> more(tokens_.more.begin(), tokens_.more.end());
    for (const char* name : {"additional_special_tokens", "extra_special_tokens"}) values.emplace_back(name, more);
  }
  for (const auto& [name, value] : variables.items()) {
    std::erase_if(values, [&](const auto& known) { return known.first == name; });
    values.emplace_back(name, value_of(value, 0));
  }
  const jinja::Text text = jinja::render(body_, std::move(values), file_, now);
  return {text.bytes(), text.mask()};
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const ChatPrompt& prompt) {
  return tokenizer.encode(prompt.text, {.parse_special = true, .plain = prompt.plain});
}

}  // namespace nodewright
