// Finding the template, and JSON as the values of a template: all that comes from the caller is the user's.
#include "text/chat/chat_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/file_to_read.h"
#include "base/gguf_file.h"
#include "base/json_depth.h"
#include "base/json_file.h"
#include "base/visible_text.h"
#include "base/written_number.h"
#include "runtime/error.h"
#include "text/tokenizer/files/gguf_tokenizer.h"
#include "text/tokenizer/files/token_settings.h"
#include "text/unicode/utf8.h"

namespace nodewright {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char *kDefaultName = "default", *kWhiteSpace = " \t\r\n";

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

// How deep variables nest: arguments of a call, which may nest as deep as a request, in the list of messages, a
// message, its calls, a call and its function.
constexpr int kDeepestVariable = kDeepestRequestJson + 5;
static_assert(kDeepestVariable + 20 < jinja::kDeepestValue, "a template puts them into lists of its own");

constexpr std::uint64_t kLongestTemplate = std::uint64_t{256} << 20;  // bytes, of tokenizer_config.json, too
constexpr std::size_t kNamesBytes = 500;                              // of the templates, in an error

std::string visible_name(const std::string& name) {
  std::string shown = visible_text(name);
  for (char& c : shown)
    if (c == '\n' || c == '\t') c = ' ';
  return shown;
}

// `named`: by a person, so that it may be a pipe.
std::string read_template(const std::filesystem::path& path, bool named) {
  return read_whole_file(path, kLongestTemplate, {.doing = "read the chat template", .takes_pipes = named});
}

// A template is text. Where a byte of it is not, the file is damaged, or no template at all.
void check_text(const std::string& source, const std::filesystem::path& file, const std::string& name) {
  const std::string of_name = name.empty() ? "" : fmt::format("of chat_template '{}' ", visible_name(name));
  for (size_t at = 0; at < source.size();) {
    const Utf8Step step = read_utf8(std::string_view(source).substr(at));
    if (step.kind != Utf8Kind::complete || source[at] == '\0')
      throw TemplateBytesError(
          {.doing = "read the chat template",
           .object = file.string(),
           .detail = fmt::format("byte {} {}is 0x{:02x}, which {}", at, of_name, static_cast<unsigned char>(source[at]),
                                 source[at] == '\0' ? "stands in no text" : "is not UTF-8"),
           .advice = "copy the file again"});
    at += step.size;
  }
}

// "chat_template": a string, or a list of {"name", "template"}; by their names.
std::map<std::string, std::string> sources_in(const Json& config, const std::filesystem::path& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null())
    fail_without_template(file.parent_path(),
                          "there is no chat_template.jinja, and no chat_template in tokenizer_config.json");
  if (found->is_string()) return {{kDefaultName, found->get<std::string>()}};
  if (!found->is_array()) fail(file, fmt::format("chat_template is {}, not a string or a list", found->type_name()));
  std::map<std::string, std::string> sources;
  for (const auto& entry : *found) {
    if (!entry.is_object() || !entry.contains("name") || !entry["name"].is_string() || !entry.contains("template") ||
        !entry["template"].is_string())
      fail(file, "an entry of chat_template is not a name with a template");
    sources[entry["name"].get<std::string>()] = entry["template"].get<std::string>();
  }
  return sources;
}

// A file of its own for each.
std::map<std::string, std::filesystem::path> template_files(const std::filesystem::path& folder) {
  std::map<std::string, std::filesystem::path> files;
  std::error_code ignored;
  if (is_present(folder / "chat_template.jinja")) files.emplace(kDefaultName, folder / "chat_template.jinja");
  for (const auto& entry : std::filesystem::directory_iterator(folder / "additional_chat_templates", ignored))
    if (entry.path().extension() == ".jinja") files.emplace(entry.path().stem().string(), entry.path());
  return files;
}

jinja::Value number_value_of(const Json& number) {
  const std::string text = number_text(number);
  return jinja::WrittenNumber{number_value(number), text, text.find_first_of(".eE") == std::string::npos};
}

jinja::Value value_of(const Json& json, int depth, char mark = jinja::Text::kUser) {
  if (depth > kDeepestVariable)
    throw Error({.doing = "render the chat template",
                 .detail = fmt::format("a variable nests deeper than {} levels", kDeepestVariable)});
  switch (json.type()) {
    case Json::value_t::boolean:
      return json.get<bool>();
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      if (json.is_number_unsigned() && json.get<std::uint64_t>() > INT64_MAX) return number_value_of(json);
      return json.get<std::int64_t>();
    case Json::value_t::number_float:
      return json.get<double>();
    case Json::value_t::binary:
      return number_value_of(json);
    case Json::value_t::string:
      return jinja::Text(to_valid_utf8(json.get_ref<const std::string&>()), mark);
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const auto& item : json) items.push_back(value_of(item, depth + 1, mark));
      return items;
    }
    case Json::value_t::object: {
      std::vector<std::pair<jinja::Value, jinja::Value>> entries;
      for (const auto& [key, value] : json.items())
        entries.emplace_back(jinja::Text(to_valid_utf8(key), true), value_of(value, depth + 1, mark));
      return entries;
    }
    default:
      return jinja::None{};
  }
}

ChatPrompt prompt_of(const jinja::Text& text) {
  ChatPrompt prompt{text.bytes(), text.mask()};
  for (char& mark : prompt.plain) mark = mark == jinja::Text::kTemplate ? 0 : 1;
  return prompt;
}

// The text of a message: its content, or the last part of it that is text. Null where it has none.
std::string* text_said(Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return nullptr;
  if (content->is_string()) return content->get_ptr<std::string*>();
  if (!content->is_array()) return nullptr;
  for (size_t i = content->size(); i-- > 0;)
    if (Json& part = (*content)[i]; part.is_object() && part.contains("text") && part["text"].is_string())
      return part["text"].get_ptr<std::string*>();
  return nullptr;
}

// What the last message says is marked as what is continued.
jinja::Value messages_with_marks(const Json& messages) {
  std::vector<jinja::Value> items;
  for (const Json& message : messages) {
    if (&message != &messages.back()) {
      items.push_back(value_of(message, 1));
      continue;
    }
    std::vector<std::pair<jinja::Value, jinja::Value>> entries;
    for (const auto& [key, value] : message.items())
      entries.emplace_back(jinja::Text(to_valid_utf8(key), true),
                           value_of(value, 2, key == "content" ? jinja::Text::kContinued : jinja::Text::kUser));
    items.emplace_back(std::move(entries));
  }
  return items;
}

}  // namespace

ChatTemplates ChatTemplates::from_folder(const std::filesystem::path& folder, const std::filesystem::path& instead) {
  const std::filesystem::path config_file = folder / "tokenizer_config.json";
  const auto files =
      instead.empty() ? template_files(folder) : std::map<std::string, std::filesystem::path>{{kDefaultName, instead}};
  const bool has_config = is_present(config_file);
  const bool gguf = is_gguf(folder);
  if (files.empty() && !has_config && !gguf)
    fail_without_template(folder, "there is neither chat_template.jinja nor tokenizer_config.json");
  const Json config =
      has_config ? Json::parse(read_json_text(config_file, "read the chat template", kLongestTemplate), nullptr, false)
                 : Json::object();
  if (!config.is_object()) fail(config_file, "it is not a JSON object");
  TokenSettings settings = read_token_settings(folder);
  const ChatTemplate::Tokens tokens{std::move(settings.named), std::move(settings.more)};
  ChatTemplates made;
  made.place_ = !instead.empty() ? instead : files.empty() && !gguf ? config_file : folder;
  const auto add = [&](const std::string& name, const std::string& source, const std::filesystem::path& file) {
    check_text(source, file, files.empty() ? name : "");
    made.templates_.emplace(name, ChatTemplate(source, file.string(), tokens));
  };
  for (const auto& [name, file] : files) {
    add(name, read_template(file, !instead.empty()), file);
  }
  if (!files.empty()) return made;
  const auto sources = gguf ? read_gguf_templates(folder) : sources_in(config, config_file);
  if (sources.empty()) fail_without_template(folder, "its metadata has no tokenizer.chat_template");
  for (const auto& [name, source] : sources) add(name, source, made.place_);
  return made;
}

const ChatTemplate& ChatTemplates::chosen(bool has_tools, const std::string& name) const {
  const auto named = [&](const std::string& wanted) {
    const auto found = templates_.find(wanted);
    return found == templates_.end() ? nullptr : &found->second;
  };
  if (!name.empty()) {
    if (const ChatTemplate* found = named(name)) return *found;
    fail(place_, fmt::format("no chat template is called '{}', only: {}", visible_name(name), names()));
  }
  if (const ChatTemplate* found = has_tools ? named("tool_use") : nullptr) return *found;
  if (const ChatTemplate* found = named(kDefaultName)) return *found;
  fail(place_, fmt::format("no chat_template is called 'default', only: {}", names()));
}

std::string ChatTemplates::names() const {
  std::string all;
  for (const auto& [name, unused] : templates_) {
    if (all.size() + name.size() > kNamesBytes) return all + ", ...";
    all += (all.empty() ? "" : ", ") + visible_name(name);
  }
  return all;
}

ChatTemplate ChatTemplate::from_folder(const std::filesystem::path& folder, const std::filesystem::path& instead) {
  ChatTemplates all = ChatTemplates::from_folder(folder, instead);
  all.chosen(false);  // throws where there is none
  return std::move(all.templates_.at(kDefaultName));
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
    : file_(std::move(file)), body_(jinja::parse(to_valid_utf8(source), file_)), tokens_(std::move(tokens)) {}

ChatPrompt ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
  return render(messages, Json::object());
}

ChatPrompt ChatTemplate::render(const std::vector<ChatMessage>& messages, const Json& more) const {
  Json list = Json::array();
  for (const auto& [role, content] : messages)
    list.push_back({{"role", to_valid_utf8(role)}, {"content", to_valid_utf8(content)}});
  Json variables = more;
  variables["messages"] = shaped_messages(list, shape());
  variables["add_generation_prompt"] = true;
  return render(variables, std::time(nullptr));
}

ChatPrompt ChatTemplate::render(const Json& variables, std::time_t now) const {
  return prompt_of(rendered(variables, now, false));
}

OpenPrompt ChatTemplate::render_open(Json variables, std::time_t now) const {
  Json& last = variables.at("messages").back();
  std::string* said = text_said(last);
  // An empty text leaves no mark to find, so a letter takes its place.
  const bool says_nothing = said == nullptr || said->find_first_not_of(kWhiteSpace) == std::string::npos;
  if (says_nothing && said != nullptr) *said = "x";
  if (said == nullptr) last["content"] = "x";
  const jinja::Text text = rendered(variables, now, true);
  const size_t begin = text.mask().find(jinja::Text::kContinued), end = text.mask().rfind(jinja::Text::kContinued);
  if (begin == std::string::npos)
    throw Error({.doing = "continue the last message of",
                 .object = "messages",
                 .detail = "the chat template does not print it"});
  OpenPrompt open{prompt_of(text), begin};
  open.prompt.text.resize(says_nothing ? begin : end + 1);
  open.prompt.plain.resize(open.prompt.text.size());
  return open;
}

const TemplateShape& ChatTemplate::shape() const {
  std::call_once(found_->once, [&] { found_->shape = shape_of(*this); });
  return found_->shape;
}

jinja::Text ChatTemplate::rendered(const Json& variables, std::time_t now, bool marks_last) const {
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
    values.emplace_back(name, marks_last && name == "messages" ? messages_with_marks(value) : value_of(value, 0));
  }
  return jinja::render(body_, std::move(values), file_, now);
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const ChatPrompt& prompt) {
  return tokenizer.encode(prompt.text, {.parse_special = true, .plain = prompt.plain});
}

}  // namespace nodewright
